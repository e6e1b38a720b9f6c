"""Sessions of several turns behind a load balancer that knows nothing: any gateway, each time."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, lgamma, log, log1p

import aiohttp

from tests.e2e.support import SERVICE
from vctl_plans.routing import SESSION_HEADER

AT_ONCE = 16


@dataclass
class Session:
    """A conversation: what tells it apart, and which releases answered it, in order."""

    name: str
    echoes: bool  # the pin that it was given last
    pin: str = ""
    seen: list[int] = field(default_factory=list)
    seen_agreed: list[int] = field(default_factory=list)  # while all gateways had the same route

    def request(self) -> tuple[str, dict[str, str], dict[str, object]]:
        """Return the path, the header fields and the body of its next turn.

        By one of the ways in which a session is known: its beginning, its own id, its user.
        """
        body: dict[str, object] = {"model": SERVICE, "max_tokens": 1, "temperature": 0}
        chat, plain = "/v1/chat/completions", "/v1/completions"
        if self.echoes and self.pin:
            return plain, {SESSION_HEADER: self.pin}, body | {"prompt": f"turn {len(self.seen)}"}
        kind = sum(self.name.encode()) % 3
        if self.echoes or kind == 0:
            messages = [{"role": "user", "content": f"I am {self.name}"}]
            if self.seen:
                messages += [{"role": "assistant", "content": "yes"}]
                messages += [{"role": "user", "content": f"turn {len(self.seen)}"}]
            return chat, {}, body | {"messages": messages}
        if kind == 1:
            return plain, {SESSION_HEADER: self.name}, body | {"prompt": "go on"}
        return plain, {}, body | {"prompt": "go on", "user": self.name}


class Crowd:
    """Has sessions take turns.

    Args:
        urls: The gateways.
        draw: Picks one for each request.
    """

    def __init__(self, urls: Sequence[str], draw: random.Random) -> None:
        self._urls = urls
        self._draw = draw

    async def turn(self, sessions: Iterable[Session], *, is_agreed: bool) -> None:
        """Have each of them ask once, `AT_ONCE` at a time, in any order."""
        waiting = list(sessions)
        self._draw.shuffle(waiting)
        left = iter(waiting)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as client:

            async def ask_on() -> None:
                for session in left:
                    await self._ask(client, session, is_agreed=is_agreed)

            await asyncio.gather(*(ask_on() for _ in range(AT_ONCE)))

    async def turn_while(
        self, sessions: Sequence[Session], act: Callable[[], Awaitable[None]]
    ) -> None:
        """Have them take turns for as long as *act* takes, and once more at least."""
        acting = asyncio.ensure_future(act())
        try:
            while True:
                is_over = acting.done()
                some = self._draw.sample(sessions, min(len(sessions), 300))
                await self.turn(some, is_agreed=False)
                if is_over:
                    break
        finally:
            await acting

    async def _ask(
        self, client: aiohttp.ClientSession, session: Session, *, is_agreed: bool
    ) -> None:
        path, headers, body = session.request()
        url = self._draw.choice(self._urls)
        async with client.post(f"{url}{path}", headers=headers, json=body) as answer:
            text = await answer.text()
            assert answer.status == 200, (session.name, answer.status, text)
            release = int(answer.headers["x-vctl-release"])
            session.pin = answer.headers.get(SESSION_HEADER, session.pin)
        session.seen.append(release)
        if is_agreed:
            session.seen_agreed.append(release)


def went_back(seen: Sequence[int], new: int) -> bool:
    """Whether another release answered after *new* had."""
    return new in seen and any(release != new for release in seen[seen.index(new) :])


def interval(count: int, percent: float, *, sure: float = 0.99) -> tuple[int, int]:
    """Return between which numbers a binomial one of *count* lies, with this probability or more.

    Exact: the quantiles of the distribution itself, and no normal in its place.
    """
    p = percent / 100
    if p in {0.0, 1.0}:
        return int(count * p), int(count * p)
    tail, low, high, below = (1 - sure) / 2, -1, count, 0.0
    for k in range(count + 1):
        chosen = lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1)
        below += exp(chosen + k * log(p) + (count - k) * log1p(-p))
        if low < 0 and below > tail:
            low = k
        if below >= 1 - tail:
            high = k
            break
    return low, high
