"""The receiving side of a hop: prove it, serve exactly what was chosen, or refuse.

The peer does not choose again, and never passes a hop on, so there are no loops. It may not have
seen the sender's route yet, and serves all the same: what is ready here was verified, loaded and
probed under that digest. Only what it has seen revoked it refuses, whatever the sender has seen
(invariant I6).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from vctl_agent.gateway.answers import Elsewhere, Refused
from vctl_agent.gateway.fleetkey import FleetKey
from vctl_agent.gateway.hop import (
    PROOF_HEADER,
    REFUSED,
    Hop,
    Leg,
    Outcome,
    is_hop,
    message_of,
    read_hop,
    receipt,
)
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.target import Target
from vctl_agent.gateway.tenancy import Tenancy
from vctl_agent.gateway.wire.message import Request

RECEIVED = "received"


class HopReceiver:
    """Lets hops in.

    Args:
        live: What is ready here, and the newest routes.
        metrics: Where hops are counted.
        fleet: Our fleet.
        key: The fleet key; None: every hop is refused.
        tenancy: Tells whether a request may reach its service here as well.
    """

    def __init__(
        self,
        live: Live,
        metrics: Metrics,
        *,
        fleet: str,
        key: FleetKey | None,
        tenancy: Tenancy | None = None,
    ) -> None:
        self._live = live
        self._metrics = metrics
        self._fleet = fleet
        self._key = key
        self._tenancy = tenancy or Tenancy()

    def read(self, request: Request, body: bytes, leg: Leg) -> Hop | None:
        """Return the hop that *request* is; None: it is a client's.

        Raises:
            Refused: 403, it says that it is a hop, and is none of this fleet.
        """
        if not is_hop(request.head):
            return None
        hop, key = None, self._key
        if key is not None:
            hop = read_hop(request.headers, message_of(request, body), fleet=self._fleet, key=key)
        if hop is None or key is None:
            self._metrics.hop("", 0, RECEIVED, Outcome.DENIED)  # of whom, nothing proves
            raise Refused(403, "this is no hop of this fleet", code="hop_denied")
        leg.sender = hop.sender
        leg.mark = receipt(request.headers[PROOF_HEADER], key)
        return hop

    @contextmanager
    def answering(self, hop: Hop, leg: Leg) -> Iterator[None]:
        """Answer a hop inside the block: count what comes of it, and mark a refusal as such."""
        outcome = Outcome.BROKEN
        try:
            yield
            outcome = Outcome.SERVED
        except Elsewhere:
            leg.mark, outcome = REFUSED, Outcome.REFUSED
            raise
        except Refused:
            outcome = Outcome.SERVED  # an answer like any other: to ask again would not help
            raise
        finally:
            self._metrics.hop(hop.service, hop.number, RECEIVED, outcome)

    def target(self, hop: Hop) -> Target:
        """Return what to ask our engine for; the caller holds a reference on the release.

        Raises:
            Elsewhere: It is not ready here under that digest, or was revoked, or is not of the
                tenant that the sender has let in.
        """
        release_id = (hop.service, hop.number)
        if not self._tenancy.takes(hop, self._live.acted.known):
            message = f"{hop.service} is not of the tenant that this is asked for"
            raise Elsewhere(message, code="hop_other_tenant")
        if self._live.is_revoked(release_id):
            message = f"release {hop.number} of {hop.service} is revoked"
            raise Elsewhere(message, code="hop_revoked")
        target, routes = self._live.loaded.get(release_id), self._live.acted.known.routes
        # Without a route, nothing tells what is revoked.
        if target is None or target.digest != hop.digest or hop.service not in routes:
            message = f"release {hop.number} of {hop.service} is not ready on this peer"
            raise Elsewhere(message, code="hop_not_ready")
        return target
