"""What requests are decided by, now: replaced whole, in one step, by whoever learns more.

The request path only reads. Whoever changes something here rings the bells: the agent link and
the disk. What is *acknowledged* to the agent follows the disk: a gateway that has told that it acts
on a rollback still acts on it after a crash with etcd away (invariant I6).
"""

from collections.abc import Callable

import msgspec
import structlog

from vctl_agent.gateway.prompts import Prompts
from vctl_agent.gateway.state import (
    Known,
    PeersAt,
    ReleaseAt,
    ReleaseId,
    RouteAt,
    TenantAt,
    applied,
    forwardable,
    is_behind,
    loaded,
    refused,
    supplied,
    targets,
    unready,
)
from vctl_agent.gateway.target import Target
from vctl_agent.local import AgentState
from vctl_plans.errors import RestoredBackup
from vctl_plans.groups import Groups
from vctl_plans.store.port import Update

_log = structlog.get_logger()


class Acted(msgspec.Struct, frozen=True, kw_only=True):
    """Known and agent together: what one event-loop step acts on."""

    known: Known = Known()
    agent: AgentState | None = None
    cluster_id: int = 0  # etcd's, from which `known` is; 0 where unknown


def forgotten(acted: Acted) -> Acted:
    """Return all that is acted on as of no revision of any store."""
    known = acted.known
    return Acted(
        known=Known(
            routes={name: RouteAt(0, at.route) for name, at in known.routes.items()},
            groups=known.groups,
            releases={i: ReleaseAt(0, at.release) for i, at in known.releases.items()},
            peers={name: PeersAt(0, at.peers) for name, at in known.peers.items()},
            tenants={name: TenantAt(0, at.tenant) for name, at in known.tenants.items()},
        ),
        agent=acted.agent,
    )


class Live:
    """The present, and how long ago the store was last heard of.

    Args:
        acted: What an earlier run left on disk.
        prefix: ``Keys.services``.
        clock: Seconds, monotonic.
        engine_url: Where the engine is while no agent has told.
        sender: Our node's name, if requests can be passed to peers; empty: they can't.
        isolation_s: Seconds without contact after which nothing is served; 0: the last route is.
    """

    def __init__(
        self,
        acted: Acted,
        *,
        prefix: str,
        clock: Callable[[], float],
        engine_url: str = "",
        sender: str = "",
        isolation_s: float = 0.0,
    ) -> None:
        self.acted = acted
        self.acknowledged = acted
        self._prompts = Prompts()
        templates = self._prompts.of(acted.agent)
        self.targets: dict[ReleaseId, Target] = targets(acted.known, acted.agent, templates)
        self.named_headers = acted.known.named_headers()
        self.loaded = loaded(acted.known, acted.agent, templates)  # what peers may ask for as well
        self.suspended = ""  # why no update is taken any more; empty: updates are taken
        self.overrides: dict[str, int] = {}  # root's word for this node, over any route's
        self.is_frozen = False  # the agent's word stays as it is: another process hears it now
        self.bells: list[Callable[[], None]] = []
        self.has_been_in_contact = False  # since the start
        self.overdue_s: Callable[[], float] = _never  # see `watch.Source`
        self._prefix = prefix
        self._clock = clock
        self._given_url = engine_url
        self.engine_url = self._engine()
        self._sender = sender
        self._isolation_s = isolation_s
        self._was_ready = False
        self._contact: float | None = clock()  # when contact was lost; None: in contact now
        self._latch()

    def _engine(self) -> str:
        """Return where the engine is; empty while nobody has told."""
        told = self.acted.agent.engine_url if self.acted.agent else ""
        return (told or self._given_url).rstrip("/")

    @property
    def can_forward(self) -> bool:
        """Whether requests can be passed to peers."""
        return bool(self._sender)

    @property
    def is_connected(self) -> bool:
        """Whether the store's watch is live."""
        return self._contact is None

    def is_revoked(self, release_id: ReleaseId) -> bool:
        """Whether the newest route that was seen revokes the release."""
        service, number = release_id
        at = self.acted.known.routes.get(service)
        return at is not None and number in at.route.revoked

    def last_contact_s(self) -> float:
        """Return the seconds since the store's watch was live (or the start); 0 while it is."""
        return self.overdue_s() if self._contact is None else self._clock() - self._contact

    @property
    def is_isolated(self) -> bool:
        """Whether the store has been away for longer than this gateway may serve without it."""
        return bool(self._isolation_s) and self.last_contact_s() > self._isolation_s

    def learn(self, update: Update, *, cluster_id: int = 0) -> None:
        """Take an update of the store. A broken watch changes nothing that is served.

        Raises:
            RestoredBackup: The store is behind what was acted on; nothing was taken.
        """
        if not update.is_live:
            self.lose_contact()
            return
        if is_behind(self.acted.known, update):
            raise RestoredBackup(
                f"the store is at revision {update.revision}, behind {self.acted.known.newest},"
                " which this gateway has acted on"
            )
        known = applied(self.acted.known, update, self._prefix)
        self._contact = None
        self.has_been_in_contact = True
        self._act(Acted(known=known, agent=self.acted.agent, cluster_id=cluster_id))

    def supply(self, digest: str, groups: Groups) -> None:
        """Take groups that were read, and act on the routes that waited for them alone."""
        known = supplied(self.acted.known, digest, groups)
        self._act(msgspec.structs.replace(self.acted, known=known))

    def refuse(self, digest: str, problem: str) -> None:
        """Have the routes that wait for the groups of *digest* count as unreadable."""
        known = refused(self.acted.known, digest, problem, self._prefix)
        self._act(msgspec.structs.replace(self.acted, known=known))

    def override(self, overrides: dict[str, int]) -> None:
        """Have services be served by these releases here, whatever their routes say."""
        self.overrides = overrides
        self._act(self.acted)

    def overridden(self, service: str) -> int:
        """Return the release that root has this service served by here, or 0."""
        release = self.overrides.get(service, 0)
        return 0 if release and self.is_revoked((service, release)) else release

    def lose_contact(self) -> None:
        """Go on with the last that is known."""
        if self._contact is None:
            self._contact = self._clock()
            self._ring()

    def suspend(self, reason: str) -> None:
        """Take no more updates: the store is not the one that was known."""
        self.suspended = reason
        self.lose_contact()

    def accept_restored(self) -> None:
        """Take updates again, whatever their revisions: what was known before is not compared.

        Traffic goes on by it until the restored store is read.
        """
        self.suspended = ""
        self._act(forgotten(self.acted))

    def accept(self, agent: AgentState) -> None:
        """Take the agent's word; it stays in force until the agent's next, also when it is gone."""
        if self.is_frozen:
            return
        self._act(msgspec.structs.replace(self.acted, agent=agent))

    def acknowledge(self, acted: Acted) -> None:
        """Let the agent know that *acted* is acted on, for good."""
        self.acknowledged = acted
        self._ring()

    def obstacle(self, *, has_passthrough: bool = False) -> str:
        """Return why the gateway is not ready, or nothing.

        Latches: once all that is routed was ready, only a node that can serve nothing, and pass
        nothing on, is not.
        """
        known = self.acted.known
        if self.is_isolated:
            return "cut off from etcd for longer than it may serve"
        if not known.serving():
            return "" if has_passthrough and self.engine_url else "nothing is routed"
        missing = ", ".join(unready(known, self.targets))
        if missing and not self._was_ready:
            return f"not ready here: {missing}"
        if self.targets or (self._sender and forwardable(known, self._sender)):
            return ""
        return f"nothing routed can be served here: {missing}"

    def _act(self, acted: Acted) -> None:
        _log_moved(self.acted.known.route_revisions(), acted.known.route_revisions())
        self.acted = acted
        self.engine_url = self._engine()
        templates = self._prompts.of(acted.agent)
        self.named_headers = acted.known.named_headers()
        self.loaded = loaded(acted.known, acted.agent, templates)
        named = {i: self.loaded[i] for i in self.overrides.items() if i in self.loaded}
        self.targets = targets(acted.known, acted.agent, templates) | named
        self._latch()
        self._ring()

    def _latch(self) -> None:
        if not self.obstacle():
            self._was_ready = True

    def _ring(self) -> None:
        for bell in self.bells:
            bell()


def _log_moved(before: dict[str, int], after: dict[str, int]) -> None:
    for service in sorted(before.keys() | after.keys()):
        if before.get(service) != after.get(service):
            _log.info("route acted on", service=service, route=after.get(service, 0))


def _never() -> float:
    return 0.0
