"""The admin listener: /livez, /readyz, /metrics; apart from the clients' own listener."""

from collections.abc import Callable

import msgspec

from vctl_agent.gateway.answers import json_answer, plain_answer, unreadable
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.state import unready
from vctl_agent.gateway.tenancy import Tenancy
from vctl_agent.gateway.wire.message import Answer, Limits, Request
from vctl_agent.gateway.wire.server import Listener

_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What /readyz says."""

    is_ready: bool
    reason: str  # why not; empty when it is ready
    routes: dict[str, int]  # service -> route revision acted on
    not_ready: list[str]  # serving releases, as service/number, also while the answer is yes
    is_connected: bool  # to etcd
    last_contact_s: float
    suspended: str  # why no new route is taken any more; empty: new routes are taken
    unreadable: list[str]  # keys whose value was refused
    overrides: dict[str, int]  # service -> the release that root has it served by here
    waiting: dict[str, int]  # service -> route revision not acted on until its groups are read
    checks_keys: bool  # whether clients need an API key
    api_keys_problem: str  # why the file of keys was not taken; empty: it was, or there is none


def readiness(
    live: Live, *, has_passthrough: bool, is_draining: bool, tenancy: Tenancy
) -> Readiness:
    """Return whether requests should come here, and all that explains it."""
    reason = "draining" if is_draining else live.obstacle(has_passthrough=has_passthrough)
    known = live.acted.known
    return Readiness(
        is_ready=not reason,
        reason=reason,
        routes=known.route_revisions(),
        not_ready=unready(known, live.targets),
        is_connected=live.is_connected,
        last_contact_s=round(live.last_contact_s(), 3),
        suspended=live.suspended,
        unreadable=[each.key for each in known.unreadable],
        overrides=live.overrides,
        waiting={service: at.revision for service, at in known.waiting.items()},
        checks_keys=tenancy.checks_keys,
        api_keys_problem=tenancy.problem,
    )


class Admin:
    """Answers probes and scrapes.

    Args:
        assess: Returns the present readiness.
        metrics: What is scraped.
    """

    def __init__(self, assess: Callable[[], Readiness], metrics: Metrics) -> None:
        self._assess = assess
        self._metrics = metrics

    def listener(self) -> Listener:
        """Return the listener for probes and scrapes."""
        return Listener(self.answer, unreadable, Limits(max_body_bytes=0))

    async def answer(self, request: Request) -> Answer:
        """Answer one probe or scrape."""
        if request.path == "/livez":
            return plain_answer("alive\n")
        if request.path == "/readyz":
            found = self._assess()
            return json_answer(found, status=200 if found.is_ready else 503)
        if request.path == "/metrics":
            return plain_answer(self._metrics.text(), content_type=_METRICS)
        return plain_answer("/livez /readyz /metrics\n", status=404)
