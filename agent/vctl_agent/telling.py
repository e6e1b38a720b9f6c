"""What a node tells: the gateway what it may serve, and the fleet what is here.

A report is handed on only when it differs from the one before: each is a write to the store. So
what moves all the time, as memory does, is told in steps.
"""

import math
from collections.abc import Callable

import msgspec

from vctl_agent.directmode import Judged, acted_on
from vctl_agent.engines.port import Description
from vctl_agent.gatewaylink import GatewayLink
from vctl_agent.holdings import Holdings
from vctl_agent.local import AgentState, ReadyRelease
from vctl_agent.placing import unmanaged
from vctl_agent.watched import report_interval_s, watched
from vctl_agent.work import attempt
from vctl_plans.node import NodeReport, ReleaseReport
from vctl_plans.node_machine import Verdict
from vctl_plans.phase import NodePhase
from vctl_plans.release import Release
from vctl_plans.snapshot import Fleet, Service

_MEMORY_STEP = 0.02
"""Of the engine's memory: a smaller change is not reported."""

_KV_STEPS = 20


class ThisNode(msgspec.Struct, frozen=True):
    """Who tells."""

    name: str
    boot_id: str  # this run of the agent
    engine_url: str  # where the gateway finds the engine


class Telling:
    """Makes what is told from what was judged.

    Args:
        who: Who tells.
        holdings: What is on this node.
        percent: How much of a release's long fetch is done.
        completed: Adds to a report what others of the agent have to say in it.
        on_report: Given every report that differs from the one before.
    """

    def __init__(
        self,
        who: ThisNode,
        holdings: Holdings,
        *,
        percent: Callable[[Release], int],
        completed: Callable[[NodeReport], NodeReport],
        on_report: Callable[[NodeReport], None],
    ) -> None:
        self._who = who
        self._holdings = holdings
        self._percent = percent
        self._completed = completed
        self._on_report = on_report
        self._report: NodeReport | None = None
        self._free_memory: float | None = None  # as last reported

    def to_gateway(self, fleet: Fleet, verdicts: Judged, engine: Description) -> AgentState:
        """Return what the gateway may serve."""
        ready = tuple(
            ReadyRelease(
                service=service.name,
                number=release.number,
                digest=release.digest,
                model=engine.model(release.engine_name),
                prompt=self._holdings.applied_prompt(release),
            )
            for service, release, verdict in verdicts
            if verdict.phase is NodePhase.READY and not service.is_direct
        )
        return AgentState(
            boot_id=self._who.boot_id,
            engine_url=self._who.engine_url,
            ready=ready,
            watched=watched(fleet),
            report_interval_s=report_interval_s(fleet),
        )

    def report(
        self,
        fleet: Fleet,
        verdicts: Judged,
        engine: Description | None,
        *,
        link: GatewayLink,
        base: str,
    ) -> None:
        """Make the report, and hand it on if it is another than before.

        Args:
            fleet: What is wanted.
            verdicts: What was judged.
            engine: The engine's latest description.
            link: What the gateway says.
            base: Root of the base that the engine holds.
        """
        report = NodeReport(
            node=self._who.name,
            boot_id=self._who.boot_id,
            incarnation=engine.incarnation if engine else "",
            cache_epoch=engine.cache_epoch if engine else 0,
            base=base,
            releases=tuple(
                self._line(service, release, verdict, engine)
                for service, release, verdict in verdicts
                if verdict.phase is not NodePhase.UNLOADED
            ),
            routes=acted_on(link.heard, verdicts),
            gateway_ok=link.is_current,
            free_memory=self._free(engine),
            kv_used=_kv_used(fleet, engine),
            adapters=len(engine.adapters) if engine else None,
            problem=engine.problem if engine else "",
            unmanaged=unmanaged(engine, fleet.services.values()),
        )
        report = self._completed(report)
        if report != self._report:
            self._report = report
            self._on_report(report)

    def _line(
        self, service: Service, release: Release, verdict: Verdict, engine: Description | None
    ) -> ReleaseReport:
        is_fetching = verdict.phase is NodePhase.FETCHING
        return ReleaseReport(
            service=service.name,
            number=release.number,
            digest=release.digest,
            phase=verdict.phase,
            attempt=attempt(service),
            reason=verdict.reason,
            is_permanent=verdict.is_permanent,
            fetched_percent=self._percent(release) if is_fetching else 0,
            fails_probe=verdict.fails_probe,
            probe=self._holdings.measured(service, release, engine),
        )

    def _free(self, engine: Description | None) -> float | None:
        """Return the free share of memory; a small change is no news, and would be a write."""
        now, before = engine.free_memory if engine else None, self._free_memory
        if now is None or before is None or abs(now - before) >= _MEMORY_STEP:
            self._free_memory = now
        return self._free_memory


def _kv_used(fleet: Fleet, engine: Description | None) -> float | None:
    """Return the share of the KV cache in use, while a rollout asks: else each step is a write.

    In steps, and never less than it is.
    """
    services = fleet.services.values()
    asks = any(s.is_running and s.rollout and s.rollout.asks_kv for s in services)
    if not asks or engine is None or engine.kv_used is None:
        return None
    return min(1.0, math.ceil(engine.kv_used * _KV_STEPS) / _KV_STEPS)
