import asyncio
import os
from pathlib import Path

from tests.gateway.hopping import peers_at
from tests.gateway.support import FLEET, KEYS, a_release, a_route, eventually, ready
from tests.gateway.test_state import an_update, support
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.persist import FILE_NAME, Saver, load
from vctl_plans.codec import encode


def a_live() -> Live:
    live = Live(Acted(), prefix=KEYS.services, clock=lambda: 0.0)
    values = support(a_route(1, instant=(2,)))
    values |= {f"support/releases/0000000{n}": (encode(a_release(n)), 3) for n in (1, 2, 3)}
    values["support/peers"] = (encode(peers_at(["http://a"])), 4)
    live.learn(an_update(9, **values), cluster_id=7)
    live.accept(ready(a_release(1)))
    return live


async def test_what_was_acted_on_comes_back_without_what_nothing_routes(tmp_path: Path):
    live = a_live()
    assert await Saver(live, tmp_path, FLEET).save()
    found = load(tmp_path, FLEET)
    assert found.known.routes == live.acted.known.routes
    assert set(found.known.releases) == {("support", 1), ("support", 2)}
    assert found.agent == live.acted.agent
    assert found.known.peers_of(("support", 1)) == live.acted.known.peers_of(("support", 1)) != ()
    assert found.cluster_id == 7


async def test_state_is_acknowledged_only_when_it_is_on_disk(tmp_path: Path):
    live = a_live()
    saver = Saver(live, tmp_path, FLEET)
    assert live.acknowledged.known.routes == {}
    await saver.save()
    assert (tmp_path / FILE_NAME).exists()
    assert live.acknowledged is live.acted


async def test_nothing_is_written_when_nothing_changed(tmp_path: Path):
    saver = Saver(a_live(), tmp_path, FLEET)
    await saver.save()
    first = (tmp_path / FILE_NAME).stat()
    await saver.save()
    second = (tmp_path / FILE_NAME).stat()
    assert (first.st_ino, first.st_mtime_ns) == (second.st_ino, second.st_mtime_ns)


async def test_disk_that_fails_holds_nothing_back(tmp_path: Path):
    live = a_live()
    assert not await Saver(live, tmp_path / "missing", FLEET).save()
    assert live.acknowledged is live.acted


async def test_every_change_reaches_the_disk(tmp_path: Path):
    live = a_live()
    task = asyncio.create_task(Saver(live, tmp_path, FLEET).run())
    await eventually(lambda: live.acknowledged is live.acted)
    live.accept(ready(a_release(1), a_release(2)))
    await eventually(lambda: live.acknowledged is live.acted)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert load(tmp_path, FLEET).agent == live.acted.agent
    assert os.listdir(tmp_path) == [FILE_NAME]  # noqa: PTH208  an async test, and a quick call


async def test_file_that_cannot_be_used_is_as_none(tmp_path: Path):
    assert load(tmp_path, FLEET) == Acted()
    await Saver(a_live(), tmp_path, "other").save()
    assert load(tmp_path, FLEET) == Acted()
    (tmp_path / FILE_NAME).write_bytes(b"{")
    assert load(tmp_path, FLEET) == Acted()
