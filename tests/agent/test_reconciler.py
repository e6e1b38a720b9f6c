"""A node is brought to what is wanted of it, from whatever it holds, and never under a request."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.agent.support import SERVICE, Node, a_fleet, a_rollout, make_releases
from vctl_agent.engines.fake import FakeEngine
from vctl_agent.engines.port import Answer, Question
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.route import Override, Route


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_release_that_is_wanted_becomes_ready(node: Node, tmp_path: Path) -> None:
    """It is staged, loaded, probed and offered, in this order."""
    releases = make_releases(tmp_path, 1)
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    name = releases[1].engine_name
    assert [("load", name), ("answer", name)] == node.engine.calls
    assert node.link.told is not None
    assert [(SERVICE, 1, name)] == [(r.service, r.number, r.model) for r in node.link.told.ready]


async def test_release_is_offered_only_after_its_probe(node: Node, tmp_path: Path) -> None:
    """While the probe has not passed, the gateway is not told."""
    node.engine.failures["answer"] = TemporaryEngineError("busy")
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    assert node.link.told is not None
    assert node.link.told.ready == ()


async def test_flipped_bit_is_refused_for_good(node: Node, tmp_path: Path) -> None:
    """Bytes other than the root's never reach the engine, and trying again is not tried."""
    releases = make_releases(tmp_path, 1)
    weights_file = tmp_path / "v1" / "adapter_model.safetensors"
    content = bytearray(weights_file.read_bytes())
    content[-1] ^= 1
    weights_file.write_bytes(content)
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    node.now += 1000
    await node.idle()

    assert node.engine.calls == []
    said = node.reports[-1].release(SERVICE, 1)
    assert said is not None
    assert said.is_permanent
    assert list((tmp_path / "state" / "artifacts").iterdir()) == []


async def test_failure_is_forgotten_with_the_next_rollout(node: Node, tmp_path: Path) -> None:
    """`retry` starts the same release again, and the node tries again."""
    releases = make_releases(tmp_path, 1)
    node.engine.failures["load"] = PermanentEngineError("refused")
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    node.engine.failures.clear()
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1, id="again")))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    said = node.reports[-1].release(SERVICE, 1)
    assert said is not None
    assert said.attempt == "again"


async def test_temporary_failure_is_tried_again_after_a_wait(node: Node, tmp_path: Path) -> None:
    """Not before the wait is over, and then until it works."""
    node.engine.failures["load"] = TemporaryEngineError("full")
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    tries = len(node.engine.calls)
    await node.idle()
    assert tries == len(node.engine.calls)

    node.engine.failures.clear()
    node.now += 60
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_engine_that_says_yes_and_does_nothing_is_not_believed(
    node: Node, tmp_path: Path
) -> None:
    """The state is read back after the call."""
    node.engine.lies = True
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    assert node.link.told is not None
    assert node.link.told.ready == ()


async def test_failed_probe_is_a_quarantine(node: Node, tmp_path: Path) -> None:
    """A release whose answers are not its own is loaded and never offered."""
    node.engine.failures["answer"] = PermanentEngineError("answers as the base")
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.QUARANTINED)

    assert node.link.told is not None
    assert node.link.told.ready == ()


async def test_restarted_engine_is_loaded_again(node: Node, tmp_path: Path) -> None:
    """All that it held is gone; what the disk holds is not fetched again."""
    releases = make_releases(tmp_path, 1)
    route = Route(service=SERVICE, stable=1)
    node.reconciler.want(a_fleet(releases, route=route))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    (tmp_path / "v1" / "adapter_config.json").unlink()  # the source is not needed any more

    node.engine.restart()
    await node.settle(lambda: node.phase(1) is not NodePhase.READY)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    assert [releases[1].engine_name] == list(node.engine.adapters)


async def test_restarted_agent_adopts_what_the_engine_holds(node: Node, tmp_path: Path) -> None:
    """It neither loads nor probes again, and offers the release at its first word."""
    fleet = a_fleet(make_releases(tmp_path, 1), route=Route(service=SERVICE, stable=1))
    node.reconciler.want(fleet)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.engine.calls.clear()

    again = Node(tmp_path, node.engine)
    again.reconciler.want(fleet)
    await again.idle(1)

    assert again.phase(1) is NodePhase.READY
    assert node.engine.calls == []


async def test_agent_that_does_not_know_says_nothing(node: Node) -> None:
    """Before it has seen fleet and engine, it does not tell the gateway to serve nothing."""
    await node.idle()
    assert node.link.told is None

    node.engine.is_away = True
    node.reconciler.want(a_fleet({}))
    await node.idle()

    assert node.link.told is None


async def test_release_is_unloaded_only_when_listed(node: Node, tmp_path: Path) -> None:
    """That nothing wants it is not enough."""
    releases = make_releases(tmp_path, 2)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    route = Route(service=SERVICE, stable=2)
    settling = a_rollout(2, phase=RolloutPhase.SETTLING)
    node.reconciler.want(a_fleet(releases, rollout=settling, route=route))
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    await node.idle()
    assert node.phase(1) is NodePhase.READY

    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=route))
    await node.settle(lambda: node.phase(1) is None)

    assert [releases[2].engine_name] == list(node.engine.adapters)


async def test_engine_that_unloads_in_words_only_is_not_believed(
    node: Node, tmp_path: Path
) -> None:
    """The release is drained still, with the reason, and its unload is tried again after a wait."""
    releases = make_releases(tmp_path, 2)
    route = Route(service=SERVICE, stable=2)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1, candidate=2)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY and node.phase(2) is NodePhase.READY)
    node.engine.lies = True
    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    node.reconciler.want(a_fleet(releases, route=route, rollout=listed))
    await node.settle(lambda: bool(_reason(node, 1)))

    assert "still lists it" in _reason(node, 1)
    assert NodePhase.DRAINING is node.phase(1)
    tries = node.engine.calls.count(("unload", releases[1].engine_name))
    await node.idle()
    assert tries == node.engine.calls.count(("unload", releases[1].engine_name))

    node.engine.lies = False
    node.now += 60
    await node.settle(lambda: node.phase(1) is None)


def _reason(node: Node, number: int) -> str:
    said = node.reports[-1].release(SERVICE, number) if node.reports else None
    return said.reason if said else ""


async def test_release_is_not_unloaded_under_a_request(node: Node, tmp_path: Path) -> None:
    """Requests in flight are waited for, up to the drain deadline."""
    releases = make_releases(tmp_path, 2)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.link.in_flight[1] = 1
    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,), drain_s=30)
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))

    await node.settle(lambda: node.phase(1) is NodePhase.DRAINING)
    node.now += 29
    await node.idle()
    assert releases[1].engine_name in node.engine.adapters

    node.link.in_flight[1] = 0
    await node.settle(lambda: releases[1].engine_name not in node.engine.adapters)


@pytest.mark.parametrize("is_away", [False, True])
async def test_drain_deadline_ends_the_wait(node: Node, tmp_path: Path, is_away: bool) -> None:
    """A stream that never ends, or a gateway that is away, holds nothing up for ever."""
    releases = make_releases(tmp_path, 2)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.link.in_flight[1] = 1
    node.link.is_away = is_away
    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,), drain_s=30)
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))
    await node.settle(lambda: node.phase(1) is NodePhase.DRAINING)

    await node.idle()
    assert releases[1].engine_name in node.engine.adapters, "not before the deadline"

    node.now += 31
    await node.settle(lambda: releases[1].engine_name not in node.engine.adapters)


async def test_same_bytes_in_a_wanted_release_are_not_unloaded(node: Node, tmp_path: Path) -> None:
    """Two releases with one root share one adapter in the engine."""
    first = make_releases(tmp_path, 1)[1]
    twin = type(first)(
        service=SERVICE, number=2, components=first.components, vector=first.vector, digest="b3:2"
    )
    releases = {1: first, 2: twin}
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    await node.idle()

    assert [first.engine_name] == list(node.engine.adapters)
    assert node.phase(1) is None, "else the rollout would wait for it to be unloaded"


async def test_release_of_an_override_is_brought_offered_and_never_unloaded(
    node: Node, tmp_path: Path
) -> None:
    """It serves as stable and candidate do, also while another rollout settles."""
    releases = make_releases(tmp_path, 3)
    overrides = (Override(group="b3:g", release=2),)
    route = Route(service=SERVICE, stable=1, overrides=overrides)
    node.reconciler.want(a_fleet(releases, route=route))
    await node.settle(lambda: [node.phase(n) for n in (1, 2)] == [NodePhase.READY] * 2)
    assert node.link.told is not None
    assert [1, 2] == [ready.number for ready in node.link.told.ready]

    listed = a_rollout(3, phase=RolloutPhase.SETTLING, unload=(1, 2))
    moved = msgspec.structs.replace(route, stable=3)
    node.reconciler.want(a_fleet(releases, rollout=listed, route=moved))
    await node.settle(lambda: node.phase(3) is NodePhase.READY)
    await node.settle(lambda: releases[1].engine_name not in node.engine.adapters)
    await node.idle()

    assert node.phase(2) is NodePhase.READY
    assert releases[2].engine_name in node.engine.adapters
    assert [2, 3] == [ready.number for ready in node.link.told.ready]


async def test_release_of_an_override_that_cannot_be_served_is_said(
    node: Node, tmp_path: Path
) -> None:
    """Its group's traffic is traffic."""
    releases = make_releases(tmp_path, 2)
    node.engine.failures["load"] = PermanentEngineError("refused")
    overrides = (Override(group="b3:g", release=2),)
    route = Route(service=SERVICE, overrides=overrides)
    node.reconciler.want(a_fleet(releases, route=route))

    await node.settle(lambda: node.phase(2) is NodePhase.FAILED)

    assert f"release 2 of {SERVICE} is failed" == node.reconciler.unserved


async def test_report_is_made_only_when_something_changed(node: Node, tmp_path: Path) -> None:
    """A quiet node writes nothing."""
    node.reconciler.want(
        a_fleet(make_releases(tmp_path, 1), route=Route(service=SERVICE, stable=1))
    )
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    made = len(node.reports)

    await node.idle()

    assert made == len(node.reports)


async def test_gateway_is_told_what_to_count_while_a_rollout_watches(node: Node) -> None:
    """And when that is over, with the rollout."""
    watching = a_rollout(1, watches=True, roster_size=5000)
    node.reconciler.want(a_fleet({}, rollout=watching))
    await node.idle(2)
    assert node.link.told is not None
    assert ((SERVICE,), 10.0) == (node.link.told.watched, node.link.told.report_interval_s)

    ended = msgspec.structs.replace(watching, phase=RolloutPhase.CONVERGED)
    node.reconciler.want(a_fleet({}, rollout=ended))
    await node.idle(2)
    assert () == node.link.told.watched


async def test_small_change_of_free_memory_is_no_news(node: Node) -> None:
    """Each report is a write."""
    node.reconciler.want(a_fleet({}))
    for free in (0.5, 0.51, 0.49, 0.50, 0.47, 0.48, None, 0.48):
        node.engine.free_memory = free
        await node.idle(2)

    assert [0.5, 0.47, None, 0.48] == [report.free_memory for report in node.reports]


async def test_route_is_acknowledged_while_the_engine_hangs(node: Node, tmp_path: Path) -> None:
    """What the gateway acts on is reported, whatever else is slow."""
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))
    await node.idle(1)
    node.link.routes = {SERVICE: 7}

    node.reconciler.cycle(node.link)  # type: ignore[arg-type]

    assert node.reports[-1].routes == {SERVICE: 7}


class Slow(FakeEngine):
    """An engine that waits with its unloads until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.may_unload = asyncio.Event()
        self.is_unloading = False

    async def unload(self, name: str) -> None:
        self.is_unloading = True
        await self.may_unload.wait()
        await super().unload(name)


async def test_twin_of_what_is_being_unloaded_is_not_offered(tmp_path: Path) -> None:
    """Two releases of one root are one adapter: an unload that hangs would hit the new one.

    (1) Release 1 is drained, its unload hangs in the engine; (2) its rollout ends at the deadline;
    (3) release 2, of the same bytes, is rolled out; (4) the engine still lists the adapter, so the
    node would say ready; (5) the unload goes through, under the requests of release 2.
    """
    engine = Slow()
    node = Node(tmp_path, engine)
    first = make_releases(tmp_path, 1)[1]
    releases = {1: first, 2: msgspec.structs.replace(first, number=2, digest="b3:2")}
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    listed = a_rollout(3, phase=RolloutPhase.CONVERGED, unload=(1, 2))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE)))
    await node.settle(lambda: engine.is_unloading)

    node.reconciler.want(a_fleet(releases, rollout=a_rollout(2), route=Route(service=SERVICE)))
    await node.idle()
    assert node.phase(2) is not NodePhase.READY
    assert node.link.told is not None
    assert node.link.told.ready == ()

    engine.may_unload.set()
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    assert [first.engine_name] == list(engine.adapters)


async def test_twin_that_the_list_does_not_name_keeps_no_adapter(
    node: Node, tmp_path: Path
) -> None:
    """The list is of what nodes reported, and the twin was not: a wanted release had its adapter.

    (1) Release 2 serves, of the bytes of release 1; (2) release 3 is stable, and the conductor
    lists what was reported before the node saw that; (3) release 1 is here as much as 2 is, ready
    and offered: its adapter would wait for the drain deadline.
    """
    releases = make_releases(tmp_path, 3)
    releases[2] = msgspec.structs.replace(releases[1], number=2, digest="b3:2")
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=2)))
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    assert node.phase(1) is None

    listed = a_rollout(3, phase=RolloutPhase.SETTLING, unload=(2,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=3)))
    await node.settle(lambda: node.phase(3) is NodePhase.READY)
    await node.settle(lambda: list(node.engine.adapters) == [releases[3].engine_name])


async def test_requests_of_a_twin_hold_the_adapter(node: Node, tmp_path: Path) -> None:
    """In flight is counted by adapter where two releases share one."""
    first = make_releases(tmp_path, 1)[1]
    releases = {1: first, 2: msgspec.structs.replace(first, number=2, digest="b3:2")}
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=2, instant=(1,))))
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    node.link.in_flight[2] = 1

    listed = a_rollout(3, phase=RolloutPhase.SETTLING, unload=(1, 2))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE)))
    await node.idle()
    assert [first.engine_name] == list(node.engine.adapters)

    node.link.in_flight[2] = 0
    await node.settle(lambda: not node.engine.adapters)


async def test_engine_restarted_under_a_probe_is_no_quarantine(node: Node, tmp_path: Path) -> None:
    """It does not know the adapter any more, and says so: that is no word about the release."""

    async def answer(model: str, question: Question, *, salt: str = "") -> Answer:
        del question, salt
        node.engine.restart()
        node.engine.answer = type(node.engine).answer.__get__(node.engine)  # type: ignore[method-assign]
        raise PermanentEngineError(f"404 the model {model} does not exist")

    node.engine.answer = answer  # type: ignore[method-assign]
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    said = node.reports[-1].release(SERVICE, 1)
    assert said is not None
    assert not said.is_permanent

    node.now += 60
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_bug_in_an_action_is_a_failure_with_a_wait(node: Node, tmp_path: Path) -> None:
    """It once killed its task in silence, and the same was tried again at once, for ever."""
    calls = []

    async def load(name: str, path: str) -> None:
        calls.append((name, path))
        raise ValueError("an answer that nobody expected")

    node.engine.load = load  # type: ignore[method-assign]
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))
    await node.settle(lambda: bool(calls))
    await node.idle()

    assert len(calls) == 1
    assert node.phase(1) is NodePhase.FAILED


async def test_engine_that_was_restarted_is_asked_again(node: Node, tmp_path: Path) -> None:
    """What the engine before it refused for good, this one may take."""
    releases = make_releases(tmp_path, 1)
    node.engine.failures["load"] = PermanentEngineError("no room")
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    node.engine.failures.clear()
    node.now += 60
    await node.idle()
    assert node.phase(1) is NodePhase.FAILED

    node.engine.restart()
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_unload_that_worked_after_all_is_no_failure(node: Node, tmp_path: Path) -> None:
    """The answer is lost, the adapter is gone: nothing is left that has failed."""
    releases = make_releases(tmp_path, 2)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    async def unload(name: str) -> None:
        node.engine.adapters.pop(name)
        raise TemporaryEngineError("no answer in time")

    node.engine.unload = unload  # type: ignore[method-assign]
    listed = a_rollout(2, phase=RolloutPhase.CONVERGED, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))
    await node.settle(lambda: releases[1].engine_name not in node.engine.adapters)
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    await node.idle()

    assert node.phase(1) is None


async def test_refused_unload_is_no_word_against_the_release(node: Node, tmp_path: Path) -> None:
    """When it is wanted again it serves: it is loaded, verified and probed as before."""
    releases = make_releases(tmp_path, 1)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.engine.failures["unload"] = PermanentEngineError("400")
    listed = a_rollout(2, phase=RolloutPhase.CONVERGED, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE)))
    await node.settle(lambda: ("unload", releases[1].engine_name) in node.engine.calls)
    await node.idle()

    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    assert node.link.told is not None
    assert [1] == [ready.number for ready in node.link.told.ready]


async def test_release_is_not_said_to_be_gone_while_the_engine_is_away(
    node: Node, tmp_path: Path
) -> None:
    """Nobody knows; an engine that hangs still holds it."""
    releases = make_releases(tmp_path, 2)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.engine.is_away = True
    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))

    await node.idle()
    assert node.phase(1) is NodePhase.DRAINING

    node.engine.is_away = False
    await node.settle(lambda: node.phase(1) is None)
    assert releases[1].engine_name not in node.engine.adapters


async def test_adapter_that_is_loaded_anew_is_probed_anew(node: Node, tmp_path: Path) -> None:
    """Also where an agent was killed right after it had unloaded it, or somebody else did."""
    releases = make_releases(tmp_path, 1)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    node.engine.adapters.clear()
    await node.settle(lambda: len(node.engine.calls) > 2)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    assert ["load", "answer", "load", "answer"] == [method for method, _ in node.engine.calls]


async def test_late_look_at_the_engine_does_not_undo_a_newer_one(
    node: Node, tmp_path: Path
) -> None:
    """Else a release that traffic has just moved to is taken from the gateway again.

    (1) The engine is asked, and its answer is on the way; (2) an adapter is loaded, and another
    look sees it; (3) the first answer, from before, comes in.
    """
    engine, answer = node.engine, asyncio.Event()
    before = await engine.describe()
    describe = engine.describe

    async def late() -> object:
        engine.describe = describe  # type: ignore[method-assign]
        await answer.wait()
        return before

    engine.describe = late  # type: ignore[assignment]
    first = asyncio.create_task(node.watch.refresh())
    await asyncio.sleep(0)
    engine.adapters["support@1"] = "/v1"
    second = asyncio.create_task(node.watch.refresh())
    await asyncio.sleep(0.01)
    answer.set()
    await asyncio.gather(first, second)

    assert node.watch.latest is not None
    assert node.watch.latest.has("support@1", "/v1")
