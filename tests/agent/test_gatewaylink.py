"""The agent's end of the link: whole states, both ways, across every kind of break."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from vctl_agent.gatewaylink import GatewayLink
from vctl_agent.local import (
    AgentState,
    GatewayState,
    GatewayStatistics,
    ReadyRelease,
    from_line,
    to_line,
)

READY = ReadyRelease(service="support", number=1, digest="d", model="support@1")
STATE = AgentState(boot_id="b", engine_url="http://e", ready=(READY,))


class Peer:
    """A gateway's end, driven by a test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.received: list[AgentState] = []
        self.writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        while line := await reader.readline():
            message = from_line(line)
            assert isinstance(message, AgentState)
            self.received.append(message)
        writer.close()

    async def say(self, accepted: tuple[ReadyRelease, ...]) -> None:
        assert self.writer is not None
        self.writer.write(
            to_line(GatewayState(boot_id="g", routes={"support": 3}, accepted=accepted))
        )
        await self.writer.drain()

    async def hang_up(self) -> None:
        assert self._server is not None
        self._server.close()
        if self.writer:
            self.writer.close()
        self.path.unlink(missing_ok=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    made = Peer(tmp_path / "gw.sock")
    await made.listen()
    yield made
    await made.hang_up()


@pytest.fixture
async def link(peer: Peer) -> AsyncIterator[GatewayLink]:
    made = GatewayLink(str(peer.path), lambda: None)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_link_tells_the_newest_state(peer: Peer, link: GatewayLink) -> None:
    """What was told arrives, and what is told twice is sent once."""
    link.tell(STATE)
    await until(lambda: peer.received == [STATE])
    link.tell(STATE)
    await asyncio.sleep(0.02)

    assert peer.received == [STATE]


async def test_link_is_current_once_the_gateway_confirms(peer: Peer, link: GatewayLink) -> None:
    """Neither before the confirmation nor after a newer word."""
    link.tell(STATE)
    await until(lambda: bool(peer.received))
    assert not link.is_current

    await peer.say((READY,))
    await until(lambda: link.is_current)
    link.tell(AgentState(boot_id="b", engine_url="http://e", ready=()))

    assert not link.is_current


async def test_counts_wake_nobody_and_reach_who_asked(peer: Peer) -> None:
    """They come often, and no decision of the node rests on them."""
    woken: list[None] = []
    counted: list[GatewayStatistics] = []
    link = GatewayLink(str(peer.path), lambda: woken.append(None), on_statistics=counted.append)
    task = asyncio.create_task(link.run())
    link.tell(STATE)
    await until(lambda: bool(peer.received))
    await peer.say((READY,))
    await until(lambda: link.is_current)
    before = len(woken)
    told = GatewayStatistics(boot_id="g")
    assert peer.writer is not None
    peer.writer.write(to_line(told))
    await until(lambda: counted == [told])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert before == len(woken)


async def test_link_tells_again_after_a_break(peer: Peer, link: GatewayLink) -> None:
    """A gateway that was restarted gets the whole state, unasked."""
    link.tell(STATE)
    await until(lambda: bool(peer.received))
    await peer.say((READY,))
    await until(lambda: link.is_current)

    await peer.hang_up()
    await until(lambda: link.heard is None)
    peer.received.clear()
    await peer.listen()
    await until(lambda: peer.received == [STATE])

    assert not link.is_current


async def test_line_that_is_no_message_breaks_the_link_and_not_the_agent(
    peer: Peer, link: GatewayLink
) -> None:
    """The link is made anew."""
    link.tell(STATE)
    await until(lambda: bool(peer.received))
    assert peer.writer is not None
    peer.writer.write(b"nonsense\n")

    await until(lambda: len(peer.received) > 1)
    await peer.say((READY,))
    await until(lambda: link.is_current)


@pytest.mark.parametrize("steps", range(12))
async def test_cancellation_wins_over_a_hang_up_at_the_same_moment(peer: Peer, steps: int) -> None:
    """Once, an agent told to stop just as its gateway went away ran on for ever."""
    link = GatewayLink(str(peer.path), lambda: None)
    task = asyncio.create_task(link.run())
    link.tell(STATE)
    await until(lambda: bool(peer.received))
    assert peer.writer is not None

    peer.writer.close()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=1)

    assert task.done()


async def test_sessions_that_a_gateway_counts_wake_nobody_and_are_known(peer: Peer):
    """They change with every request; what root has said does wake."""
    woken = 0

    def wake() -> None:
        nonlocal woken
        woken += 1

    link = GatewayLink(str(peer.path), wake)
    task = asyncio.create_task(link.run())

    async def say(**more: object) -> None:
        assert peer.writer is not None
        state = GatewayState(boot_id="g", routes={"support": 3}, **more)  # type: ignore[arg-type]
        peer.writer.write(to_line(state))
        await until(lambda: link.heard == state)

    await until(lambda: peer.writer is not None)
    await say()
    await say(pins={"support": {2: 1}})
    await say(pins={"support": {2: 9}})
    assert 1 == woken
    await say(pins={"support": {2: 9}}, overrides={"support": 7})
    assert 2 == woken
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
