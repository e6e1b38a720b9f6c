"""/livez /readyz /metrics of an agent, on a listener of its own."""

from collections.abc import Callable
from pathlib import Path

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    generate_latest,
)

from vctl_agent.configuration import Address
from vctl_plans.node import NodeReport

_CLOSE_S = 1.0
"""For answers under way when the agent ends."""


class ConductorMetrics:
    """What a candidate for conductor counts; names begin with ``vctl_``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.is_conductor = Gauge(
            "vctl_agent_is_conductor", "1 while elected conductor", registry=self.registry
        )
        self.alerts = Counter(
            "vctl_alerts_total",
            "What became of alerts, for each webhook: delivered, retried, refused, expired;"
            " logged: no webhook wants it; unreadable",
            ["outcome"],
            registry=self.registry,
        )
        self.unconverged = Gauge(
            "vctl_unconverged_nodes",
            "Nodes present whose gateway does not act on the service's route; while conductor",
            ["service"],
            registry=self.registry,
        )


class Metrics(ConductorMetrics):
    """What a node's agent counts as well."""

    def __init__(self) -> None:
        super().__init__()
        self._releases = Gauge(
            "vctl_agent_release_phase",
            "1 for the phase that a release is in on this node",
            ["service", "release", "phase"],
            registry=self.registry,
        )
        self._routes = Gauge(
            "vctl_agent_route_revision",
            "Route revision that the gateway acts on",
            ["service"],
            registry=self.registry,
        )
        self._gateway = Gauge(
            "vctl_agent_gateway_ok",
            "1 while the gateway acts on what it was told last",
            registry=self.registry,
        )
        self.rotten = Gauge(
            "vctl_agent_rotten_artifacts",
            "Artifacts on this disk whose bytes are not those of their root any more",
            registry=self.registry,
        )
        self._shown: set[tuple[str, str, str]] = set()

    def show(self, report: NodeReport) -> None:
        """Take the figures of a report."""
        now = {(r.service, str(r.number), r.phase.value) for r in report.releases}
        for gone in self._shown - now:
            self._releases.remove(*gone)
        for labels in now:
            self._releases.labels(*labels).set(1)
        self._shown = now
        for service, revision in report.routes.items():
            self._routes.labels(service).set(revision)
        self._gateway.set(report.gateway_ok)


async def serve(
    address: Address,
    *,
    metrics: ConductorMetrics,
    problem: Callable[[], str],
    port_file: Path | None = None,
) -> web.AppRunner:
    """Start the listener.

    Args:
        address: Where; port 0 takes a free one.
        metrics: What /metrics shows.
        problem: What /readyz says; nothing when ready.
        port_file: Where to write the host:port that was taken.

    Raises:
        OSError: The address is taken or not this machine's.
    """

    async def livez(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        said = problem()
        return web.Response(text=f"{said or 'ok'}\n", status=503 if said else 200)

    async def show_metrics(_request: web.Request) -> web.Response:
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", show_metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSE_S)
    await runner.setup()
    site = web.TCPSite(runner, address.host, address.port)
    await site.start()
    if port_file:
        _note_address(port_file, runner)
    return runner


def _note_address(file: Path, runner: web.AppRunner) -> None:
    taken = runner.addresses[0]
    temporary = file.with_name(f"{file.name}.new")
    temporary.write_text(f"{taken[0]}:{taken[1]}\n", encoding="utf-8")
    temporary.replace(file)
