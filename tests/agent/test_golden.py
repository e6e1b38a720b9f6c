"""Golden prompts on a node: asked before a release is ready, and what becomes of it."""

from pathlib import Path

import msgspec
import pytest

from tests.agent.support import KEYS, SERVICE, Node, a_fleet, a_rollout, make_releases
from vctl_agent.golden import GoldenReader, ask_golden
from vctl_plans.codec import encode
from vctl_plans.errors import PermanentEngineError, StoreUnavailable, VctlError
from vctl_plans.fuse import PATIENCE_S, Fuse
from vctl_plans.golden import Golden, GoldenPrompt, Message
from vctl_plans.node import ReleaseReport
from vctl_plans.node_machine import SPARED
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.release import Release
from vctl_plans.route import Route
from vctl_plans.store.memory import MemoryStore

GOLDEN = Golden(
    prompts=(
        GoldenPrompt(prompt="Capital of France?", contains="Paris"),
        GoldenPrompt(
            messages=(Message(role="user", content="Say hello"),), similar_to="Hello, you."
        ),
    )
)
RIGHT = {"Capital of France?": "Paris.", "Say hello": "Hello, you!"}


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.engine.texts.update(RIGHT)
    await made.store.put(KEYS.golden(GOLDEN.digest), encode(GOLDEN))
    return made


def a_candidate(tmp_path: Path) -> dict[int, Release]:
    """Return a release that was made with the golden prompts."""
    releases = make_releases(tmp_path, 1)
    return {1: msgspec.structs.replace(releases[1], probes=GOLDEN.digest)}


def said(node: Node) -> ReleaseReport:
    found = node.reports[-1].release(SERVICE, 1)
    assert found is not None
    return found


async def test_release_that_answers_right_is_ready_and_tells_the_numbers(
    node: Node, tmp_path: Path
) -> None:
    """Those of the cache, of the base and of the golden prompts."""
    node.reconciler.want(
        a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1, probes=GOLDEN.digest))
    )
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    numbers = said(node).probe
    assert "cached and fresh answers 0.0000 apart" in numbers
    assert "from the base" in numbers
    assert numbers.endswith("; golden prompts: 2 of 2 pass (similarity 0.909)")


async def test_release_that_answers_wrong_is_quarantined_with_the_numbers(
    node: Node, tmp_path: Path
) -> None:
    """For good within the rollout, and never offered; all that failed is told."""
    node.engine.texts |= {"Capital of France?": "London", "Say hello": "Go away"}
    node.reconciler.want(a_fleet(a_candidate(tmp_path), rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.QUARANTINED)

    assert said(node).is_permanent
    assert said(node).fails_probe
    assert said(node).reason == (
        "golden prompts: 2 of 2 fail: prompt 1: expected it to contain 'Paris', got 'London';"
        " prompt 2: similarity 0.333 is under 0.8: expected about 'Hello, you.', got"
        " 'Go away'"
    )
    assert node.link.told is not None
    assert node.link.told.ready == ()


async def test_golden_prompts_are_asked_once_in_a_run_of_the_engine(
    node: Node, tmp_path: Path
) -> None:
    """Also by the next agent; and again of an engine that was restarted."""
    fleet = a_fleet(a_candidate(tmp_path), route=Route(service=SERVICE, stable=1))
    node.reconciler.want(fleet)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    asked = len(node.engine.calls)

    again = Node(tmp_path, node.engine)  # whose store holds no golden prompts
    again.reconciler.want(fleet)
    await again.idle(3)
    assert again.phase(1) is NodePhase.READY
    assert asked == len(node.engine.calls)

    node.engine.restart()
    await node.settle(lambda: node.phase(1) is not NodePhase.READY)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    assert 2 * asked == len(node.engine.calls)


async def test_adapter_that_is_loaded_anew_is_asked_anew(node: Node, tmp_path: Path) -> None:
    """What an earlier load answered is no word about this one."""
    node.reconciler.want(a_fleet(a_candidate(tmp_path), route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    node.engine.adapters.clear()
    node.engine.texts.clear()
    await node.settle(lambda: node.phase(1) is NodePhase.PROBING and said(node).fails_probe)


async def test_release_waits_for_golden_prompts_that_cannot_be_read(
    node: Node, tmp_path: Path
) -> None:
    """It is no word about the release."""
    other = Golden(prompts=(GoldenPrompt(prompt="p", expect="a"),))
    node.engine.texts["p"] = "a"
    node.reconciler.want(
        a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1, probes=other.digest))
    )
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    assert "there are no golden prompts" in said(node).reason
    assert not said(node).is_permanent

    await node.store.put(KEYS.golden(other.digest), encode(other))
    node.now += 60
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_other_prompts_under_the_digest_are_not_asked() -> None:
    """A newer vctl may have written what this one would not judge by."""
    store = MemoryStore()
    await store.put(KEYS.golden("b3:x"), encode(GOLDEN))

    with pytest.raises(VctlError, match="are others"):
        await GoldenReader(store, KEYS).read("b3:x")


async def test_what_was_read_is_kept_while_the_store_is_away(node: Node) -> None:
    """An engine that is restarted then is asked the same."""
    reader = GoldenReader(node.store, KEYS)
    first = await reader.read(GOLDEN.digest)

    async def get(_key: str) -> None:
        raise StoreUnavailable("away")

    node.store.get = get  # type: ignore[assignment, method-assign]
    assert first is await reader.read(GOLDEN.digest)
    with pytest.raises(StoreUnavailable):
        await reader.read("b3:another")


async def test_many_failures_are_counted_and_few_are_told(node: Node) -> None:
    """A report is a value of etcd."""
    golden = Golden(prompts=tuple(GoldenPrompt(prompt=f"p{n}", expect="x") for n in range(9)))

    with pytest.raises(
        PermanentEngineError, match=r"^golden prompts: 9 of 9 fail: .* prompt 3: .*; and 6 more$"
    ):
        await ask_golden(node.engine, "base", golden)


async def serving(node: Node, tmp_path: Path) -> dict[int, Release]:
    """Have the node serve release 1, whose golden prompts fail from the engine's next run on."""
    releases = a_candidate(tmp_path)
    want(node, releases, None)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.engine.texts.clear()
    node.engine.restart()
    return releases


def want(node: Node, releases: dict[int, Release], fuse: Fuse | None) -> None:
    fleet = a_fleet(
        releases,
        route=Route(service=SERVICE, stable=1),
        rollout=a_rollout(1, phase=RolloutPhase.CONVERGED),
    )
    service = msgspec.structs.replace(fleet.services[SERVICE], fuse=fuse)
    node.reconciler.want(msgspec.structs.replace(fleet, services={SERVICE: service}))


async def test_what_serves_and_fails_waits_a_little_and_serves_on(
    node: Node, tmp_path: Path
) -> None:
    """Nobody permitted its quarantine; and it says why it should not serve."""
    await serving(node, tmp_path)
    await node.settle(lambda: node.phase(1) is NodePhase.PROBING and said(node).fails_probe)
    assert node.link.told is not None
    assert not node.link.told.ready

    node.now += PATIENCE_S
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    assert said(node).fails_probe
    assert said(node).reason.startswith(f"{SPARED}: golden prompts: 2 of 2 fail")
    assert [1] == [ready.number for ready in node.link.told.ready]


async def test_what_serves_and_fails_is_quarantined_once_it_is_named(
    node: Node, tmp_path: Path
) -> None:
    """At any time, and it serves again when the name is taken back."""
    releases = await serving(node, tmp_path)
    await node.settle(lambda: node.phase(1) is NodePhase.PROBING and said(node).fails_probe)
    want(node, releases, Fuse(service=SERVICE, release=releases[1].digest, nodes=("n1",)))
    await node.settle(lambda: node.phase(1) is NodePhase.QUARANTINED)
    node.now += PATIENCE_S
    await node.idle()
    assert node.phase(1) is NodePhase.QUARANTINED

    want(node, releases, Fuse(service=SERVICE))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_candidate_that_failed_stays_quarantined_when_it_becomes_stable(
    node: Node, tmp_path: Path
) -> None:
    """It never served here: the plan's limits decided that the others are enough."""
    node.engine.texts.clear()
    releases = a_candidate(tmp_path)
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.QUARANTINED)

    want(node, releases, None)
    node.now += PATIENCE_S
    await node.idle()

    assert node.phase(1) is NodePhase.QUARANTINED


async def test_base_alone_is_probed_as_well(node: Node, tmp_path: Path) -> None:
    """A release without an adapter is answered by it, from its cache."""
    releases = make_releases(tmp_path, 1)
    bare = msgspec.structs.replace(releases[1], components={}, digest="bare")
    node.engine.stale["base"] = "base"
    node.reconciler.want(a_fleet({1: bare}, rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    assert "cached and fresh answers" in said(node).probe

    node.engine.restart()
    node.engine.adapters["other@1"] = "/other"
    node.engine.stale["base"] = "other@1"
    await node.settle(lambda: node.phase(1) is NodePhase.QUARANTINED)
    assert "base: its cached answer differs" in said(node).reason


async def test_engine_that_answers_from_anothers_cache_is_found(node: Node, tmp_path: Path) -> None:
    """And one whose adapter changes nothing."""
    releases = make_releases(tmp_path, 1)
    name = releases[1].engine_name
    node.engine.stale[name] = "base"
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.QUARANTINED)
    assert "its cached answer differs from its answer without the cache by" in said(node).reason

    node.engine.stale.clear()
    node.engine.inert.add(name)
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1, id="again")))
    await node.settle(lambda: "matched no module" in said(node).reason)
