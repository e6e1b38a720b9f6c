"""What the gateway's tests stand on: builders, a stand-in for an engine, an agent's socket end."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from vctl_agent.configuration import Address
from vctl_agent.gateway.program import Addresses, Gateway
from vctl_agent.gateway.settings import Settings
from vctl_agent.gateway.watch import Source
from vctl_agent.local import (
    AgentState,
    GatewayState,
    GatewayStatistics,
    ReadyRelease,
    from_line,
    to_line,
)
from vctl_plans.codec import encode
from vctl_plans.groups import Groups
from vctl_plans.keys import Keys
from vctl_plans.phase import Component
from vctl_plans.release import Artifact, Release, release_digest
from vctl_plans.route import Override, Route
from vctl_plans.statistics import Statistics
from vctl_plans.store.guard import Fingerprint
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Put, Store, Txn

FLEET = "dev"
SERVICE = "support"
KEYS = Keys(FLEET)
DEADLINE_S = 5.0

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def a_root(seed: int) -> str:
    return f"b3:{seed:02x}" + "5e" * 31


def a_release(number: int, *, service: str = SERVICE, weights: int = 0) -> Release:
    components = {Component.ADAPTER: Artifact(root=a_root(number), source=f"file:///v{number}")}
    if weights:
        components[Component.WEIGHTS] = Artifact(root=a_root(weights), source="file:///base")
    vector = dict.fromkeys(components, number)
    draft = Release(service=service, number=number, components=components, vector=vector)
    return msgspec.structs.replace(draft, digest=release_digest(draft))


def a_route(stable: int = 1, *, service: str = SERVICE, **fields: Any) -> Route:
    return Route(service=service, stable=stable, salt="salt", **fields)


def nobody_url() -> str:
    """Return an address on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def ready(
    *releases: Release, engine_url: str = "http://nowhere.invalid", **more: Any
) -> AgentState:
    listed = tuple(
        ReadyRelease(service=r.service, number=r.number, digest=r.digest, model=r.engine_name)
        for r in releases
    )
    return AgentState(boot_id="agent-boot", engine_url=engine_url, ready=listed, **more)


async def publish(store: Store, route: Route | None, *releases: Release) -> int:
    """Write a route and releases in one transaction; return its revision: the route revision."""
    puts = [Put(KEYS.release(r.service, r.number), encode(r)) for r in releases]
    if route is not None:
        puts.append(Put(KEYS.route(route.service), encode(route)))
    return await store.commit(Txn(operations=tuple(puts)))


async def publish_groups(store: Store, *groups: Groups) -> None:
    for each in groups:
        await store.put(KEYS.groups(each.digest), encode(each))


def overridden(stable: int, *overrides: tuple[Groups, int], **fields: Any) -> Route:
    """Return a route on which groups get releases of their own."""
    listed = tuple(Override(group=groups.digest, release=n) for groups, n in overrides)
    return a_route(stable, overrides=listed, **fields)


async def eventually(holds: Callable[[], bool], *, deadline_s: float = DEADLINE_S) -> None:
    ends = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < ends, "did not come true in time"
        await asyncio.sleep(0.002)


class StubEngine:
    """A real HTTP server with exact answers in place of an engine."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        self.headers: list[Any] = []
        self.paths: list[str] = []
        self.open = 0
        self.aborted = 0
        self.answer: Answer = answer_plainly

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.open += 1
        try:
            raw = await request.read()
            self.bodies.append(raw)
            self.headers.append(request.headers)
            self.paths.append(request.path_qs)
            return await self.answer(request, json.loads(raw))
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            raise
        finally:
            self.open -= 1

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["StubEngine"]:
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()


async def answer_plainly(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    if body.get("stream"):
        return await stream_events(request, body, [f"t{i}" for i in range(3)])
    return web.json_response(
        {"id": "c1", "model": body["model"], "choices": [{"text": f"by {body['model']}"}]}
    )


def event(model: str, text: str) -> bytes:
    document = {"id": "c1", "model": model, "choices": [{"text": text}]}
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


async def stream_events(
    request: web.Request, body: dict[str, Any], texts: list[str]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for text in texts:
        await response.write(event(body["model"], text))
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


class StubAgent:
    """An agent's end of the socket: it says what is ready and keeps what it hears."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.heard: list[GatewayState] = []
        self.counted: list[GatewayStatistics] = []
        self.is_cut = False  # the gateway has hung up

    @property
    def last(self) -> GatewayState:
        return self.heard[-1]

    async def connect(self) -> None:
        reader, self._writer = await asyncio.open_unix_connection(str(self._path), limit=2**22)
        self._reader = asyncio.create_task(self._hear(reader))

    async def say(self, state: AgentState) -> None:
        await self.say_raw(to_line(state))

    async def say_raw(self, line: bytes) -> None:
        assert self._writer is not None
        self._writer.write(line)
        await self._writer.drain()

    async def vanish(self) -> None:
        """Break the connection as a killed process does."""
        if self._writer is not None and self._reader is not None:
            self._writer.transport.abort()
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._writer = self._reader = None

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = from_line(line)
            if isinstance(message, GatewayStatistics):
                self.counted.append(message)
                continue
            assert isinstance(message, GatewayState)
            self.heard.append(message)
        self.is_cut = True


class Bench:
    """A gateway in this process with a store, an engine, an agent and a client around it."""

    def __init__(self, gateway: Gateway, at: Addresses, settings: Settings) -> None:
        self.gateway = gateway
        self.url = f"http://{at.clients}"
        self.admin_url = f"http://{at.admin}"
        self.settings = settings
        self.store = MemoryStore()
        self.engine = StubEngine()
        self.agent = StubAgent(settings.socket)
        self.client: aiohttp.ClientSession

    async def ready(self, *releases: Release) -> None:
        """Have the agent say that exactly *releases* are ready, and wait until it is acted on."""
        await self.agent.say(ready(*releases, engine_url=self.engine.url))
        wanted = {r.number for r in releases}
        live = self.gateway.live
        await eventually(lambda: {r.number for r in agent_ready(live.acted.agent)} == wanted)

    async def watch(self, *services: str, interval_s: float = 0.02, **more: Any) -> None:
        """Have the agent say that exactly *services* are watched, both releases ready."""
        given = {"engine_url": self.engine.url} | more
        said = ready(
            a_release(1), a_release(2), watched=services, report_interval_s=interval_s, **given
        )
        await self.agent.say(said)
        await eventually(lambda: self.gateway.live.acted.agent == said)

    def counted(self, number: int = 1) -> Statistics:
        """Return all that the gateway counted of a release."""
        found = self.gateway.counting.snapshots()
        return Statistics.merge(each.statistics for each in found if each.number == number)

    async def route(self, route: Route, *releases: Release) -> int:
        """Write a route, and wait until requests are decided by it."""
        revision = await publish(self.store, route, *releases)
        live = self.gateway.live
        await eventually(lambda: live.acted.known.route_revisions().get(route.service) == revision)
        return revision

    def ask(
        self,
        path: str = "/v1/chat/completions",
        *,
        headers: dict[str, str] | None = None,
        **body: Any,
    ) -> Any:
        """Send a completion request; the body's fields over a plain one's."""
        document = {"model": SERVICE, "messages": [{"role": "user", "content": "hi"}]} | body
        return self.client.post(f"{self.url}{path}", json=document, headers=headers)

    async def metrics(self) -> str:
        async with self.client.get(f"{self.admin_url}/metrics") as answer:
            return await answer.text()


def agent_ready(agent: AgentState | None) -> tuple[ReadyRelease, ...]:
    return agent.ready if agent else ()


def settings_in(folder: Path, **fields: Any) -> Settings:
    (folder / "state").mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "fleet": FLEET,
        "node": "n1",
        "listen": Address("127.0.0.1", 0),
        "admin": Address("127.0.0.1", 0),
        "socket": folder / "gw.sock",
        "state": folder / "state",
        "grace_s": 1.0,
    }
    return Settings(**(given | fields))


@contextlib.asynccontextmanager
async def gateway_alone(
    folder: Path, store: MemoryStore, **fields: Any
) -> AsyncIterator[tuple[Gateway, Addresses, Settings]]:
    """Run a gateway in this process on *store*, with nobody around it."""
    settings = settings_in(folder, **fields)

    def open_store(known: Fingerprint) -> Source:
        return Source(store, lambda: 7)

    gateway = Gateway(settings, open_store)
    async with gateway.running() as addresses:
        yield gateway, addresses, settings


@contextlib.asynccontextmanager
async def bench(
    folder: Path, *, store: MemoryStore | None = None, **fields: Any
) -> AsyncIterator[Bench]:
    """Run a gateway with everything around it; nothing is routed or ready yet."""
    engine, store = StubEngine(), store or MemoryStore()
    async with (
        engine.running(),
        gateway_alone(folder, store, **fields) as (gateway, addresses, settings),
        aiohttp.ClientSession() as client,
    ):
        made = Bench(gateway, addresses, settings)
        made.store, made.engine, made.client = store, engine, client
        await made.agent.connect()
        try:
            yield made
        finally:
            await made.agent.vanish()


@contextlib.asynccontextmanager
async def serving(folder: Path, **fields: Any) -> AsyncIterator[Bench]:
    """Run a gateway that serves release 1 of the service, with release 2 ready beside it."""
    async with bench(folder, **fields) as made:
        await made.route(a_route(1), a_release(1), a_release(2))
        await made.ready(a_release(1), a_release(2))
        yield made
