"""Takes this node out of service when an operator asks for it, and back.

The request is a key without a lease, so a drain lasts until somebody ends it, whatever restarts.
What is resident stays resident and what a rollout brings is brought: only the gateway is told of
nothing that it may serve, so that peers answer. No request is lost on the way: first the report
says that the node is to be drained, then the conductor names peers without it, and only once every
release that serves has one elsewhere is the gateway told. A node that is alone serves on, and says
why.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from vctl_agent.local import AgentState, GatewayState, ReadyRelease
from vctl_plans.codec import decode
from vctl_plans.errors import VctlError
from vctl_plans.inspection import Drained, DrainPhase, DrainRequest, OperatorRequest
from vctl_plans.keys import Keys
from vctl_plans.peers import Peers
from vctl_plans.snapshot import Fleet
from vctl_plans.store.port import KeyValue

_log = structlog.get_logger(__name__)


class Draining:
    """What is asked of this node, and how far it is.

    Args:
        node: The node's name.
        keys: The fleet's keys.
        wake: Called when something has changed that a cycle must see.
    """

    def __init__(self, node: str, keys: Keys, wake: Callable[[], None]) -> None:
        self._node = node
        self._keys = keys
        self._wake = wake
        self._request: DrainRequest | None = None
        self._others: frozenset[str] = frozenset()  # that are to be drained too
        self._fleet = Fleet()
        self._peers: dict[str, tuple[int, Peers]] = {}  # by service, with the key's mod_revision
        self._problem = ""
        self._is_out = False  # the gateway is told of nothing that it may serve
        self.is_known = False  # whether an operator wants it is known, so the gateway may be told

    def ask(self, requests: Sequence[OperatorRequest]) -> None:
        """Take the requests that stand: this node's own, and who else is to be drained.

        Of two nodes that are to be drained at once, the one whose request came later sees both, so
        they never count on each other.
        """
        asked = [each for each in requests if isinstance(each, DrainRequest)]
        found = next((each for each in asked if self._node in each.nodes), None)
        others = frozenset(node for each in asked for node in each.nodes) - {self._node}
        if self.is_known and (found, others) == (self._request, self._others):
            return
        self._others = others
        if bool(found) != bool(self._request):
            _log.info("drain asked" if found else "drain ended", by=found.by.user if found else "")
        self._request, self.is_known = found, True
        self._is_out = self._is_out and found is not None
        self._wake()

    def refuse(self) -> None:
        """Go on without requests: this node may not read them, or the store does not answer."""
        if not self.is_known:
            self.is_known = True
            self._wake()

    def follow(self, fleet: Fleet, entries: Mapping[str, KeyValue]) -> None:
        """Take the services, and who else serves their releases."""
        self._fleet = fleet
        for name in fleet.services:
            entry = entries.get(self._keys.peers(name))
            known = self._peers.get(name)
            if entry is None:
                self._peers.pop(name, None)
            elif known is None or known[0] != entry.mod_revision:
                self._peers[name] = entry.mod_revision, _read(entry)

    def offered(self, state: AgentState, heard: GatewayState | None) -> AgentState:
        """Return what the gateway is told: that nothing is ready, once the node is out."""
        if self._request is None:
            self._problem = ""
            return state
        self._problem = "" if self._is_out else self._obstacle(state.ready, heard)
        self._is_out = self._is_out or not self._problem
        return msgspec.structs.replace(state, ready=()) if self._is_out else state

    def answer(self, heard: GatewayState | None) -> Drained | None:
        """Return what the report says of it; None: nobody asked."""
        if self._request is None:
            return None
        direct = [name for name, each in self._fleet.services.items() if each.is_direct]
        note = f"clients of {', '.join(sorted(direct))} call its engine themselves"
        return Drained(
            request=self._request.id,
            phase=self._phase(heard),
            problem=self._problem,
            note=note if direct else "",
            by=self._request.by,
            reason=self._request.reason,
        )

    def _phase(self, heard: GatewayState | None) -> DrainPhase:
        if not self._is_out:
            return DrainPhase.WAITING
        is_idle = heard is not None and not heard.accepted and not heard.in_flight
        return DrainPhase.DRAINED if is_idle or heard is None else DrainPhase.DRAINING

    def _obstacle(self, ready: Sequence[ReadyRelease], heard: GatewayState | None) -> str:
        """Return why the node must serve on; empty: others serve all that it does."""
        if ready and heard is not None and not heard.can_forward:
            return "its gateway passes no request on: give it --fleet-key-file, as all others"
        for here in ready:
            service = self._fleet.services.get(here.service)
            if service is None or here.number not in service.current_route.serving:
                continue
            _, peers = self._peers.get(here.service, (0, Peers(service=here.service)))
            named = peers.confirmed(here.number, here.digest)
            # While the list names this node, it is from before the drain, and so may the others be.
            if self._node in named or not named - self._others:
                return (
                    f"no other node that its gateway can reach is ready for release {here.number}"
                    f" of {here.service}"
                )
        return ""


def _read(entry: KeyValue) -> Peers:
    """Return the peers; what cannot be read names nobody."""
    try:
        return decode(entry.value, Peers, key=entry.key)
    except VctlError as problem:
        _log.warning("peers unreadable", problem=problem.message)
        return Peers(service="")
