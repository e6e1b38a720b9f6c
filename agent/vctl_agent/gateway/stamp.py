"""What the gateway itself says on an answer: who served it, by which route, the pin, its name."""

from vctl_agent.gateway import headers
from vctl_agent.gateway.hop import HOP_HEADER
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.passage import Passage
from vctl_agent.gateway.pins import COOKIE
from vctl_agent.gateway.wire.server import Answer
from vctl_plans.routing import RELEASE_HEADER, SESSION_HEADER, VECTOR_HEADER

SERVER = "vctl-gateway"
"""What stands in place of the names and versions of the engine's server and of our library."""


class Stamp:
    """Puts the gateway's own header fields on answers, before they are sent.

    Args:
        live: What is known of releases.
        has_cookie: Whether pins are given as a cookie as well.
    """

    def __init__(self, live: Live, *, has_cookie: bool) -> None:
        self.is_draining = False  # answers close their connections
        self._live = live
        self._has_cookie = has_cookie

    def put(self, response: Answer, passage: Passage) -> None:
        """Stamp *response*, and note its status."""
        passage.status = response.status
        response.headers["Server"] = SERVER
        response.headers[headers.REQUEST_ID_HEADER] = passage.request_id
        if passage.route:
            response.headers[headers.ROUTE_HEADER] = str(passage.route)
        if passage.release:
            response.headers[RELEASE_HEADER] = str(passage.release)
        if passage.pin:
            response.headers[SESSION_HEADER] = passage.pin
            if self._has_cookie:
                kept = f"{COOKIE}={passage.pin}; Path=/; HttpOnly; SameSite=Lax"
                response.headers.add("Set-Cookie", kept)
        if passage.leg.mark:
            response.headers[HOP_HEADER] = passage.leg.mark
        known = self._live.acted.known.releases.get((passage.service, passage.release))
        if known:
            response.headers[VECTOR_HEADER] = known.release.vector_text
        if self.is_draining:
            response.closes = True
