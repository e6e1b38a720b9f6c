"""What the gateway itself says on an answer: who served it, by which route, the pin, its name."""

from vctl_agent.gateway.headers import ROUTE_HEADER
from vctl_agent.gateway.hop import HOP_HEADER
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.passage import Passage
from vctl_agent.gateway.pins import COOKIE
from vctl_agent.gateway.state import Known
from vctl_agent.gateway.wire.fields import written
from vctl_agent.gateway.wire.message import Answer
from vctl_plans.routing import RELEASE_HEADER, SESSION_HEADER, VECTOR_HEADER

SERVER = "vctl-gateway"
"""What stands in place of the names and versions of the engine's server and of our library."""

_MOST_KEPT = 1024
"""Releases whose lines are kept; beyond, all are written anew."""


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
        self._known: Known | None = None  # that the lines were written by
        self._lines: dict[tuple[str, int, int], bytes] = {}

    def put(self, response: Answer, passage: Passage) -> None:
        """Stamp *response*, in place of an earlier stamp, and note its status."""
        passage.status = response.status
        marks = self._of_release(passage) + passage.id_line
        if passage.pin or passage.leg.mark:
            marks += written(self._of_request(passage))
        response.marks = marks
        if self.is_draining:
            response.closes = True

    def _of_release(self, passage: Passage) -> bytes:
        """Return what is the same for all requests of a release under one route."""
        known = self._live.acted.known
        if known is not self._known or len(self._lines) > _MOST_KEPT:
            self._known = known
            self._lines.clear()
        key = (passage.service, passage.release, passage.route)
        lines = self._lines.get(key)
        if lines is None:
            lines = self._lines[key] = written(_fields(known, passage))
        return lines

    def _of_request(self, passage: Passage) -> list[tuple[str, str]]:
        fields = []
        if passage.pin:
            fields.append((SESSION_HEADER, passage.pin))
            if self._has_cookie:
                kept = f"{COOKIE}={passage.pin}; Path=/; HttpOnly; SameSite=Lax"
                fields.append(("Set-Cookie", kept))
        if passage.leg.mark:
            fields.append((HOP_HEADER, passage.leg.mark))
        return fields


def _fields(known: Known, passage: Passage) -> list[tuple[str, str]]:
    fields = [("Server", SERVER)]
    if passage.route:
        fields.append((ROUTE_HEADER, str(passage.route)))
    if passage.release:
        fields.append((RELEASE_HEADER, str(passage.release)))
    released = known.releases.get((passage.service, passage.release))
    if released:
        fields.append((VECTOR_HEADER, released.release.vector_text))
    return fields
