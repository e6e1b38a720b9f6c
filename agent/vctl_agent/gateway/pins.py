"""Pins: a session holds on to its release by echoing what the gateway returned.

A pin is text in ``x-vctl-session`` (and in a cookie, where that is set): the release and the
session's key, signed with the fleet key for one service and one release's digest. So any gateway of
the fleet can read it, nobody else can make one, and one of a release that was made anew under the
same number is none. It holds nothing of what was said: the key of a conversation is a digest.

It is stateless, so any number of pins costs a gateway no memory. Which releases may be pinned
stands in the route; how long, in the plan.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie

import msgspec
from blake3 import blake3

from vctl_agent.gateway.fleetkey import FleetKey
from vctl_plans.routing import SESSION_HEADER

COOKIE = "vctl-session"
MAX_CHARS = 512
"""A longer pin is none; ours are shorter."""

_PREFIX = "p1."
_MAX_KEY_CHARS = 160
_PURPOSE = b"vctl pin v1"


class Pin(msgspec.Struct, frozen=True):
    """What a session that was here before brings back."""

    release: int
    key: str


class Pins:
    """Makes and reads pins.

    Args:
        key: The fleet key.
        fleet: Our fleet.
        digest: Gives the digest of a service's release; empty: there is none of that number.
    """

    def __init__(self, key: FleetKey, *, fleet: str, digest: Callable[[str, int], str]) -> None:
        self._key = key
        self._fleet = fleet
        self._digest = digest

    def make(self, service: str, pin: Pin) -> str:
        """Return the pin's text."""
        key = bounded(pin.key)
        written = base64.urlsafe_b64encode(key.encode(errors="replace")).decode().rstrip("=")
        body = f"{pin.release}.{written}"
        return f"{_PREFIX}{body}.{self._sign(service, pin.release, body)}"

    def read(self, service: str, headers: Mapping[str, str]) -> Pin | None:
        """Return the pin that a request brings; None: none, or none of ours."""
        text = given(headers)
        if not text:
            return None
        body, _, proof = text.removeprefix(_PREFIX).rpartition(".")
        number, _, written = body.partition(".")
        if not (number.isascii() and number.isdigit()):
            return None
        release = int(number)
        if not self._digest(service, release) or not self._key.has_signed(
            proof, *self._parts(service, release, body)
        ):
            return None
        try:
            key = base64.urlsafe_b64decode(written + "=" * (-len(written) % 4)).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        return Pin(release, key)

    def _sign(self, service: str, release: int, body: str) -> str:
        return self._key.sign(*self._parts(service, release, body))

    def _parts(self, service: str, release: int, body: str) -> tuple[bytes, ...]:
        named = (self._fleet, service, self._digest(service, release), body)
        return (_PURPOSE, *(part.encode(errors="replace") for part in named))


def bounded(key: str) -> str:
    """Return what is kept of a session's key: a client's own may be of any length."""
    if len(key) <= _MAX_KEY_CHARS:
        return key
    return f"digest:{blake3(key.encode(errors='replace')).hexdigest()}"


def given(headers: Mapping[str, str]) -> str:
    """Return the text of the pin that a request brings, be it ours or not; empty: it brings none.

    A session header without a pin's beginning is the client's own id of its session.
    """
    text = headers.get(SESSION_HEADER, "")
    if not text.startswith(_PREFIX):
        cookie = headers.get("cookie", "")
        text = _in_cookie(cookie) if COOKIE in cookie else ""
    return text if text.startswith(_PREFIX) and len(text) <= MAX_CHARS else ""


def own_id(headers: Mapping[str, str]) -> str:
    """Return the client's own id of its session; empty: it has none, or brings a pin instead."""
    text = headers.get(SESSION_HEADER, "")
    return "" if text.startswith(_PREFIX) else text


def _in_cookie(text: str) -> str:
    try:
        morsel = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
