"""Which release a request gets here: the route's word, what the session brings, root's own word.

`routing.choose` decides; this gathers what it decides by, and remembers what follows from it: who
was answered by a candidate, and the pin that the client is given.
"""

import msgspec

from vctl_agent.gateway.answers import Refused
from vctl_agent.gateway.call import Call, read_asked
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.moved import Moved
from vctl_agent.gateway.passage import Passage
from vctl_agent.gateway.pins import Pin, Pins
from vctl_agent.gateway.state import RouteAt
from vctl_agent.gateway.tenancy import Tenancy
from vctl_agent.gateway.wire.fields import Fields
from vctl_agent.gateway.wire.heads import Head
from vctl_plans.routing import RELEASE_HEADER, Asked, Choice, Refusal, Why, choose

_MOST_SERVICES = 1024


class Choosing:
    """Chooses.

    Args:
        live: What is decided by.
        pins: Reads and makes pins; None: there are none.
        tenancy: Says by what groups are told.
        moved: Who was answered by what.
    """

    def __init__(self, live: Live, pins: Pins | None, tenancy: Tenancy, moved: Moved) -> None:
        self._live = live
        self._pins = pins
        self._tenancy = tenancy
        self._moved = moved
        self._for_all: dict[str, tuple[RouteAt, Choice]] = {}

    def choose(self, head: Head, call: Call, at: RouteAt, passage: Passage) -> None:
        """Choose, and note in *passage* what was chosen, why, and the pin to give.

        Raises:
            Refused: No release may serve the request.
        """
        if at.is_plain and not head.has_own and not self._live.overrides:
            self._choose_for_all(at, passage)
            return
        self._choose(head.fields, call, at, passage)

    def _choose_for_all(self, at: RouteAt, passage: Passage) -> None:
        """Choose once what every request of a route gets that names no release."""
        service = at.route.service
        before = self._for_all.get(service)
        if before is None or before[0] is not at:
            if len(self._for_all) >= _MOST_SERVICES:  # services come and go
                self._for_all.clear()
            before = self._for_all[service] = at, _allowed(choose(at.route, Asked("")))
        passage.release, passage.why = before[1].release, before[1].why

    def _choose(self, headers: Fields, call: Call, at: RouteAt, passage: Passage) -> None:
        live, route = self._live, at.route
        _refuse_two_releases(headers)
        pin = self._pins.read(call.model, headers) if self._pins and at.is_split else None
        asked = read_asked(
            call,
            self._tenancy.grouped(headers, passage.tenant),
            passage.request_id,
            named=live.named_headers,
            is_split=at.is_split,
            pin=pin,
        )
        if route.candidate and self._moved.has(call.model, asked.key, route.candidate):
            asked = msgspec.structs.replace(asked, has_moved=True)
        choice = self._glass(call.model)
        if choice is None:
            choice = _allowed(choose(route, asked, live.acted.known.groups))
        passage.release, passage.why, passage.group = choice.release, choice.why, choice.group
        if route.candidate and choice.why is not Why.BREAK_GLASS:
            self._moved.note(call.model, asked.key, choice.release, candidate=route.candidate)
        if self._pins and choice.release in route.pinnable:
            passage.pin = self._pins.make(call.model, Pin(choice.release, asked.key))

    def _glass(self, service: str) -> Choice | None:
        """Return what root has said for this node, if anything."""
        release = self._live.overridden(service) if self._live.overrides else 0
        return Choice(release, Why.BREAK_GLASS) if release else None


def _refuse_two_releases(headers: Fields) -> None:
    named = headers.getall(RELEASE_HEADER, ())
    if len(named) > 1 and len(set(named)) > 1:
        message = f"{RELEASE_HEADER} names two releases"
        raise Refused(400, message, code="invalid_release", param=RELEASE_HEADER)


def _allowed(choice: Choice | Refusal) -> Choice:
    if isinstance(choice, Refusal):
        raise Refused(choice.status, choice.reason, code="release_not_served")
    return choice
