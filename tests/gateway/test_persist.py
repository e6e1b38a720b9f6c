import asyncio
import os
from pathlib import Path

from tests.gateway.hopping import peers_at
from tests.gateway.support import (
    FLEET,
    KEYS,
    a_release,
    a_route,
    eventually,
    overridden,
    ready,
)
from tests.gateway.test_state import an_update, support
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.persist import FILE_NAME, Saver, load
from vctl_plans.codec import encode
from vctl_plans.groups import Group, Groups
from vctl_plans.route import Hold, Stage


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


async def test_groups_come_back_under_the_digest_that_they_have(tmp_path: Path):
    live = a_live()
    groups = Groups(groups=(Group(name="staff", users=("ann", "bo"), header={"x-t": "1"}),))
    waited = Groups(groups=(Group(name="other"),))
    values = support(overridden(1, (groups, 2)), at=10)
    values["chat/route"] = (encode(overridden(1, (waited, 2), service="chat")), 10)
    live.learn(an_update(10, **values), cluster_id=7)
    live.supply(groups.digest, groups)
    await Saver(live, tmp_path, FLEET).save()
    found = load(tmp_path, FLEET).known
    assert found.groups == {groups.digest: groups}
    assert found.routes == live.acted.known.routes
    content = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME).write_bytes(content.replace(b'"ann"', b'"eve"'))
    assert load(tmp_path, FLEET).known.missing() == {groups.digest}


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


async def test_disk_that_fails_holds_back_the_word_that_a_barrier_stands(tmp_path: Path):
    """Else a crash with the store away would serve by the route before it."""
    live = a_live()
    saver = Saver(live, tmp_path / "later", FLEET)
    held = a_route(1, hold=Hold(stage=Stage.FENCED, fence_s=1.0, limit_s=1.0))
    live.learn(an_update(10, **support(held, at=10)))
    assert not await saver.save()
    assert live.acknowledged.known.routes == {}
    (tmp_path / "later").mkdir()
    assert await saver.save()
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


async def test_older_state_never_lands_on_a_newer_one(tmp_path: Path):
    """The end of a gateway saves as well, perhaps while a change is just being written."""
    live = a_live()
    saver = Saver(live, tmp_path, FLEET)
    for _ in range(40):
        live.accept(ready(a_release(1)))
        task = asyncio.create_task(saver.save())
        await asyncio.sleep(0)
        live.accept(ready(a_release(1), a_release(2)))
        await saver.save()
        await task
        assert load(tmp_path, FLEET).agent == live.acted.agent


async def test_file_that_cannot_be_used_is_as_none(tmp_path: Path):
    assert load(tmp_path, FLEET) == Acted()
    await Saver(a_live(), tmp_path, "other").save()
    assert load(tmp_path, FLEET) == Acted()
    (tmp_path / FILE_NAME).write_bytes(b"{")
    assert load(tmp_path, FLEET) == Acted()
