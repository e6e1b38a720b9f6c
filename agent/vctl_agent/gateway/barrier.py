"""The barrier before a strict change: who may pass, who waits, who is sent away (DESIGN section 7).

A route with a *hold* has two stages. `fenced`: all goes on as ever, but a gateway that has been out
of contact with etcd for longer than the fence refuses, so that whoever writes the next route knows
that no gateway serves by an older one after that time. `hold`: new requests wait as well. Only a
route write ends a hold; a request's own patience ends in 503 and never in an answer.

The rule to keep: what `admits` or `wait` has found holds until the caller's next ``await``, so the
caller chooses in the same event-loop step, by the route that it was given. A request that waits has
chosen nothing and holds no reference.
"""

import asyncio
import math
import time
from collections.abc import Callable

from vctl_agent.gateway.answers import Refused
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.state import RouteAt
from vctl_plans.route import Hold, Stage

MOST_HELD = 10_000
"""Requests that wait at a time, their bodies in memory; further ones are sent away."""


class _Turn:
    """The next change for a service, awaited by all of its waiting requests."""

    def __init__(self, seen: object) -> None:
        self.seen = seen
        self.has_come = asyncio.Event()


class Barrier:
    """Holds new requests back as their service's route says.

    Args:
        live: What requests are decided by.
        clock: Seconds, monotonic.
        most_held: Requests that may wait at a time.
    """

    def __init__(
        self,
        live: Live,
        *,
        clock: Callable[[], float] = time.monotonic,
        most_held: int = MOST_HELD,
    ) -> None:
        self.held: dict[str, int] = {}  # service -> requests that wait now; every count is above 0
        self.timeouts: dict[str, int] = {}  # service -> requests that waited for nothing
        self._live = live
        self._clock = clock
        self._most_held = most_held
        self._turns: dict[str, _Turn] = {}
        live.bells.append(self._call_up)

    def admits(self, at: RouteAt) -> bool:
        """Whether a request of the route's service may be served now; False: it has to `wait`.

        Raises:
            Refused: 503, it may not, since this gateway may be behind the others.
        """
        hold = at.route.hold
        if hold is None:
            return True
        if self._is_cut_off(hold):
            message = f"{at.route.service} is switching, and this gateway is out of contact"
            raise Refused(503, message, code="fenced")
        return hold.stage is Stage.FENCED

    async def wait(self, service: str) -> RouteAt | None:
        """Return the service's route once it admits requests; None: there is no such service now.

        Raises:
            Refused: 503, the hold was too long, contact was lost, or too many wait.
        """
        if sum(self.held.values()) >= self._most_held:
            raise Refused(503, f"too many requests wait for {service} to switch", code="hold_full")
        began = self._clock()
        self.held[service] = self.held.get(service, 0) + 1
        try:
            while True:
                at = self._live.acted.known.routes.get(service)
                if at is None or at.route.hold is None or self.admits(at):
                    return at
                left_s = at.route.hold.limit_s - (self._clock() - began)
                if left_s <= 0:
                    self.timeouts[service] = self.timeouts.get(service, 0) + 1
                    message = f"{service} is switching, and did not finish in time"
                    raise Refused(503, message, code="hold_timeout")
                await self._change(service, min(left_s, self._fence_left_s(at.route.hold)))
        finally:
            self._leave(service)

    def _is_cut_off(self, hold: Hold) -> bool:
        """Whether the route may have moved on elsewhere.

        How long a gateway that has just started was out of contact, nobody knows.
        """
        return not self._live.has_been_in_contact or self._live.last_contact_s() > hold.fence_s

    def _fence_left_s(self, hold: Hold) -> float:
        if self._live.is_connected:
            return math.inf
        return hold.fence_s - self._live.last_contact_s()

    async def _change(self, service: str, timeout_s: float) -> None:
        """Return when something has changed for the service, or the time is over."""
        turn = self._turns.get(service)
        if turn is None:
            turn = self._turns[service] = _Turn(self._seen(service))
        try:
            # A loop's timer may fire a tick before the clock agrees.
            async with asyncio.timeout(max(timeout_s, 0.0) + 0.001):
                await turn.has_come.wait()
        except TimeoutError:
            return

    def _seen(self, service: str) -> object:
        return self._live.acted.known.routes.get(service), self._live.is_connected

    def _call_up(self) -> None:
        """Wake those for whom something has changed; thousands are not woken for nothing."""
        for service, turn in list(self._turns.items()):
            if turn.seen != self._seen(service):
                del self._turns[service]
                turn.has_come.set()

    def _leave(self, service: str) -> None:
        self.held[service] -= 1
        if not self.held[service]:
            del self.held[service]
            self._turns.pop(service, None)
