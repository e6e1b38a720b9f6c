"""A webhook of one's own on loopback, and alerts to send to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from vctl_agent.alerting.bodies import Kind
from vctl_agent.alerting.webhooks import Webhook
from vctl_plans.alert import Alert, Severity

Answer = tuple[int, str, Mapping[str, str]]
"""Status, text, headers."""

PATH = "/services/T000SECRET"
ALERT = Alert(
    id="r2-5",
    service="support",
    severity=Severity.P0,
    title="support: rolling back",
    sentence="why",
)


@dataclass
class Receiver:
    """A real server; `answers` are given in turn, the last one for ever. None: no answer."""

    answers: list[Answer | None] = field(default_factory=lambda: [(200, "ok", {})])
    got: list[dict[str, Any]] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    async def _answer(self, request: web.Request) -> web.Response:
        self.got.append(json.loads(await request.read()))
        self.queries.append(dict(request.query))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            await asyncio.Event().wait()
            raise AssertionError
        status, text, headers = answer
        return web.Response(status=status, text=text, headers=dict(headers))

    @property
    def ids(self) -> list[str]:
        return [each["id"] for each in self.got]

    def webhook(self, kind: Kind = Kind.GENERIC, **more: Any) -> Webhook:
        return Webhook(name=more.pop("name", "hook"), kind=kind, url=f"{self.url}{PATH}", **more)


@asynccontextmanager
async def receiving(*answers: Answer | None) -> AsyncIterator[Receiver]:
    """Run a receiver on a port of its own."""
    receiver = Receiver(list(answers)) if answers else Receiver()
    app = web.Application()
    app.router.add_post("/{tail:.*}", receiver._answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something, not for ever."""
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)
