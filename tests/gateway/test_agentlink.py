import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.support import StubAgent, a_release, eventually, ready
from vctl_agent.gateway.agentlink import AgentLink, listening_socket
from vctl_agent.local import HEARTBEAT_S, AgentState, GatewayState
from vctl_plans.errors import VctlError


class Ends:
    """What the link is given: a state to send, a place for what it hears."""

    def __init__(self) -> None:
        self.routes = {"support": 5}
        self.heard: list[AgentState] = []
        self.sent = 0

    def state(self) -> GatewayState:
        self.sent += 1
        return GatewayState(boot_id="g", routes=dict(self.routes))


@contextlib.asynccontextmanager
async def linked(path: Path) -> AsyncIterator[tuple[AgentLink, Ends, StubAgent]]:
    ends = Ends()
    link = AgentLink(ends.state, ends.heard.append)
    await link.start(listening_socket(path))
    agent = StubAgent(path)
    await agent.connect()
    try:
        yield link, ends, agent
    finally:
        await agent.vanish()
        await link.close()


async def test_agent_hears_the_whole_state_on_connecting_and_on_every_change(tmp_path: Path):
    async with linked(tmp_path / "s") as (link, ends, agent):
        await eventually(lambda: bool(agent.heard))
        assert agent.last.routes == {"support": 5}
        ends.routes["support"] = 6
        link.ring()
        await eventually(lambda: agent.last.routes == {"support": 6}, deadline_s=HEARTBEAT_S / 2)


async def test_changes_in_a_burst_are_told_once(tmp_path: Path):
    async with linked(tmp_path / "s") as (link, ends, agent):
        await eventually(lambda: bool(agent.heard))
        for revision in range(6, 106):
            ends.routes["support"] = revision
            link.ring()
            if revision % 20 == 0:
                await asyncio.sleep(0)
        await eventually(lambda: agent.last.routes == {"support": 105})
        assert ends.sent <= 4


async def test_state_is_repeated_as_a_heartbeat(tmp_path: Path):
    async with linked(tmp_path / "s") as (_, _, agent):
        await eventually(lambda: len(agent.heard) >= 2, deadline_s=HEARTBEAT_S * 2)


async def test_line_that_is_no_message_is_skipped(tmp_path: Path):
    async with linked(tmp_path / "s") as (_, ends, agent):
        await agent.say_raw(b"nonsense\n" + b'{"kind": "unknown"}\n')
        await agent.say(ready(a_release(1)))
        await eventually(lambda: ends.heard == [ready(a_release(1))])


async def test_agent_that_comes_back_is_served_and_the_old_connection_forgotten(tmp_path: Path):
    async with linked(tmp_path / "s") as (link, _, agent):
        for _ in range(3):
            await agent.vanish()
            await eventually(lambda: link.connections == 0)
            before = len(agent.heard)
            await agent.connect()
            await eventually(lambda: len(agent.heard) > before)  # noqa: B023  awaited in the turn
        assert link.connections == 1


async def test_socket_is_this_users_alone_and_takes_a_stale_ones_place(tmp_path: Path):
    path = tmp_path / "s"
    listening_socket(path).close()
    assert path.exists()
    again = listening_socket(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(VctlError, match="another gateway listens"):
        listening_socket(path)
    again.close()
