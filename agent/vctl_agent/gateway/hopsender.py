"""The sending side of a hop: a request whose release is not ready here is served by a peer.

The release was chosen here, and the peer serves exactly that or refuses. One peer is asked, and one
more where the first was not there, or refused before its engine had the request. What a client has
the beginning of is never asked for again: a peer that breaks off is a cut for the client.

No reference is held here meanwhile: it is the peer's engine that must not lose the release.
"""

import math
import random
import time
from collections.abc import Callable

import msgspec
import structlog

from vctl_agent.gateway import headers
from vctl_agent.gateway.answers import Refused
from vctl_agent.gateway.fleetkey import FleetKey
from vctl_agent.gateway.hop import (
    HOP_HEADER,
    PROOF_HEADER,
    REFUSED,
    Hop,
    Leg,
    Outcome,
    headers_of,
    is_receipt,
    message_of,
    path_of,
)
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.observation import Observation
from vctl_agent.gateway.rewrite import ModelName
from vctl_agent.gateway.tenancy import Tenancy
from vctl_agent.gateway.upstream import Stamp, Upstream, relay
from vctl_agent.gateway.wire.fields import written
from vctl_agent.gateway.wire.incoming import Incoming
from vctl_agent.gateway.wire.message import Answer, Request
from vctl_plans.peers import Peer

SENT = "sent"
MOST_TRIES = 2

ASIDE_S = 2.0
"""A peer that was not there is asked again after this time, or when there is no other."""

_GATEWAY_TIMEOUT = 504
_log = structlog.get_logger()


class HopSender:
    """Passes requests to peers.

    Args:
        live: What is known of releases and peers.
        upstream: Connections.
        metrics: Where hops are counted.
        fleet: Our fleet.
        node: Our node.
        key: The fleet key; None: nothing is passed on.
        tenancy: Keeps clients' keys from peers.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        live: Live,
        upstream: Upstream,
        metrics: Metrics,
        *,
        fleet: str,
        node: str,
        key: FleetKey | None,
        tenancy: Tenancy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._live = live
        self._upstream = upstream
        self._metrics = metrics
        self._fleet = fleet
        self._node = node
        self._key = key
        self._tenancy = tenancy or Tenancy()
        self._clock = clock
        self._aside: dict[str, float] = {}  # a peer's URL -> until when it is left aside

    def hop(
        self, service: str, number: int, *, route: int, request_id: str, tenant: str = ""
    ) -> Hop:
        """Return the hop that asks for a release that was chosen here."""
        released = self._live.acted.known.releases.get((service, number))
        return Hop(
            fleet=self._fleet,
            sender=self._node,
            service=service,
            number=number,
            digest=released.release.digest if released else "",
            route=route,
            request_id=request_id,
            tenant=tenant,
        )

    async def pass_on(
        self,
        request: Request,
        body: bytes,
        hop: Hop,
        *,
        leg: Leg,
        stamp: Stamp,
        seen: Observation,
    ) -> Answer | None:
        """Have a peer answer the request; None: none did, and the client was sent nothing.

        Args:
            request: The client's request.
            body: Its body, as it came.
            hop: What was chosen.
            leg: Gets the peer's name.
            stamp: Called before an answer's header is sent.
            seen: Told what becomes of the answer.

        Raises:
            Refused: 504, the peer did not answer in time.
            EngineBroke: The peer broke off an answer of which the client has the beginning.
        """
        if self._key is None:
            return None
        proven = headers_of(hop, message_of(request, body), self._key)
        lines = headers.for_engine(request.head, self._tenancy.kept_here) + headers.id_line(
            hop.request_id
        )
        lines += written(proven.items())
        asking = _Asking(request, body, hop, lines, proven[PROOF_HEADER], seen)
        for peer in self._picked(hop):
            if self._live.is_revoked((hop.service, hop.number)):
                break  # since it was chosen: whoever has seen that asks nobody for it (I6)
            leg.peer = peer.node
            response = await self._ask(peer, asking, self._key, stamp)
            if response is not None:
                return response
        return None

    def _picked(self, hop: Hop) -> list[Peer]:
        """Return whom to ask, in this order: at random, since all gateways have the same list."""
        listed = self._live.acted.known.peers_of((hop.service, hop.number))
        others = [peer for peer in listed if peer.node != self._node]
        fresh = [peer for peer in others if not self._is_aside(peer)]
        picked = random.sample(fresh, min(MOST_TRIES, len(fresh)))
        left = [peer for peer in others if self._is_aside(peer)]
        return picked + random.sample(left, min(MOST_TRIES - len(picked), len(left)))

    async def _ask(
        self, peer: Peer, asking: "_Asking", key: FleetKey, stamp: Stamp
    ) -> Answer | None:
        """Ask one peer, and count what came of it; None: another may be asked."""
        outcome = Outcome.BROKEN
        try:
            path = path_of(asking.request)
            answer = await self._upstream.ask(peer.url, path, asking.lines, asking.body)
            try:
                judged = _judged(answer, asking.proof, key)
                if judged is not Outcome.SERVED:
                    outcome = judged
                    return None
                response = await relay(
                    answer,
                    asking.request,
                    name=_name(answer, asking),
                    stamp=stamp,
                    seen=asking.seen,
                )
                outcome = Outcome.SERVED
                return response
            finally:
                answer.close()
        except Refused as refused:
            if refused.status == _GATEWAY_TIMEOUT:
                outcome = Outcome.TIMEOUT
                raise
            outcome = Outcome.UNREACHABLE
            return None
        finally:
            self._note(peer, asking.hop, outcome)

    def _is_aside(self, peer: Peer) -> bool:
        return self._aside.get(peer.url, -math.inf) > self._clock()

    def _note(self, peer: Peer, hop: Hop, outcome: Outcome) -> None:
        self._metrics.hop(hop.service, hop.number, SENT, outcome)
        if outcome not in {Outcome.UNREACHABLE, Outcome.DENIED}:
            return
        if not self._is_aside(peer):
            _log.warning("peer left aside", peer=peer.node, url=peer.url, cause=outcome.value)
        self._aside[peer.url] = self._clock() + ASIDE_S


class _Asking(msgspec.Struct, frozen=True):
    """A request as it is sent to any peer."""

    request: Request
    body: bytes
    hop: Hop
    lines: bytes  # the fields that it is sent with
    proof: str  # which the answer has to be one to
    seen: Observation


def _judged(answer: Incoming, proof: str, key: FleetKey) -> Outcome:
    """Return what an answer is, by its header: to be passed on only if a peer has signed it."""
    mark = answer.headers.get(HOP_HEADER, "")
    if mark == REFUSED:
        return Outcome.REFUSED
    return Outcome.SERVED if is_receipt(mark, proof, key) else Outcome.DENIED


def _name(answer: Incoming, asking: _Asking) -> ModelName | None:
    """Return the names to exchange: the peer has done it, so they are the same.

    What is not a stream is read whole all the same, so that a peer that cuts it off is a 503, or
    another peer's turn, and no cut for the client. A stream is read only for what it says of
    itself.
    """
    if answer.content_type == "text/event-stream" and not asking.seen.is_read:
        return None
    return ModelName(asking.hop.service, asking.hop.service, asking.seen.read)
