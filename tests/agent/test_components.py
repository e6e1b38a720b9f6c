"""A release of several components is ready when all of them are, and goes as one."""

import asyncio
import json
from itertools import count
from pathlib import Path

import pytest

from tests.agent.support import (
    KEYS,
    SERVICE,
    Cut,
    Node,
    a_fleet,
    a_rollout,
    make_adapter,
    make_files,
    next_release,
)
from vctl_agent.hook import Hook
from vctl_plans.codec import encode
from vctl_plans.errors import TemporaryEngineError
from vctl_plans.golden import Golden, GoldenPrompt, Message
from vctl_plans.phase import Component, NodePhase, RolloutPhase
from vctl_plans.release import Release
from vctl_plans.route import Route
from vctl_plans.snapshot import Fleet

PROMPT = {"system.txt": "You are kind.\n", "tools/search.jinja": "{{ query }}\n"}
INDEX = {"index.faiss": b"\x00IxFI", "docs.parquet": b"PAR1", "index.pkl": b"\x80\x04."}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def releases_of_two(folder: Path) -> dict[int, Release]:
    """Return release 1, an adapter and a prompt, and release 2, another prompt for it."""
    made: dict[int, Release] = {}
    next_release(
        made, adapter=make_adapter(folder / "a1"), prompt=make_files(folder / "p1", PROMPT)
    )
    next_release(made, prompt=make_files(folder / "p2", PROMPT | {"system.txt": "Be brief.\n"}))
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def release_file(folder: Path, number: int) -> Path:
    return folder / "state" / "releases" / SERVICE / f"{number}.json"


def the_hook(folder: Path) -> Hook:
    """Return a hook that notes what it reads, and ends as the file `code` says."""
    (folder / "code").write_text("0")
    script = f"cd {folder}; cat >> calls; echo >> calls; echo 'because' >&2; exit $(cat code)"
    return Hook(("/bin/sh", "-c", script), timeout_s=20, environment={"PATH": "/usr/bin:/bin"})


def calls(folder: Path) -> list[tuple[str, int]]:
    """Return what the hook was told: event and release."""
    if not (folder / "calls").exists():
        return []
    said = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
    return [(each["event"], each["release"]) for each in said]


async def test_release_is_ready_when_all_of_it_is_staged(node: Node, tmp_path: Path) -> None:
    """Each component in a directory of its own, read-only; a file says where."""
    releases = releases_of_two(tmp_path)
    next_release(releases, index=make_files(tmp_path / "i1", INDEX))
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(3)))

    await node.settle(lambda: node.phase(3) is NodePhase.READY)

    path = release_file(tmp_path, 3)
    told = json.loads(path.read_text())
    assert (1, SERVICE, 3, releases[3].digest, {"adapter": 1, "index": 1, "prompt": 2}) == (
        told["v"], told["service"], told["release"], told["digest"], told["vector"],
    )  # fmt: skip
    assert {"adapter", "prompt", "index"} == set(told["components"])
    for name, artifact in releases[3].components.items():
        part = told["components"][name.value]
        assert (artifact.root, str(node.artifacts.path(artifact.root))) == (
            part["root"],
            part["path"],
        )
        assert Path(part["path"]).is_absolute()
    staged = Path(told["components"]["index"]["path"])
    assert INDEX == contents(staged)
    files = [path, *(staged / name for name in INDEX), staged]
    assert [0] * len(files) == [each.stat().st_mode & 0o222 for each in files]
    assert ["3.json"] == [each.name for each in path.parent.iterdir()]


@pytest.mark.parametrize(
    ("rotten", "file"),
    [
        ("prompt", "system.txt"),
        ("adapter", "adapter_model.safetensors"),
        ("index", "docs.parquet"),
    ],
)
async def test_one_corrupt_component_keeps_the_release_from_being_ready(
    node: Node, tmp_path: Path, rotten: str, file: str
) -> None:
    """It is named, nothing is loaded, and the application is told nothing."""
    releases: dict[int, Release] = {}
    release = next_release(
        releases,
        adapter=make_adapter(tmp_path / "adapter"),
        prompt=make_files(tmp_path / "prompt", PROMPT),
        index=make_files(tmp_path / "index", INDEX),
    )
    victim = tmp_path / rotten / file
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    node.now += 1000
    await node.idle()

    said = node.reports[-1].release(SERVICE, 1)
    assert said is not None
    assert said.is_permanent
    assert f"file://{tmp_path / rotten}" in said.reason
    assert rotten == "adapter" or said.reason.startswith(f"{rotten}: ")
    assert [] == node.engine.calls
    assert not release_file(tmp_path, 1).exists()
    assert NodePhase.READY not in {r.releases[0].phase for r in node.reports if r.releases}
    lies = {path.name for path in (tmp_path / "state" / "artifacts").iterdir()}
    assert node.artifacts.path(release.staged[Component(rotten)].root).name not in lies


async def test_new_prompt_takes_nothing_from_the_release_that_serves(
    node: Node, tmp_path: Path
) -> None:
    """They share the adapter: it is neither loaded nor probed again, and 1 is ready throughout."""
    releases = releases_of_two(tmp_path)
    route = Route(service=SERVICE, stable=1)
    node.reconciler.want(a_fleet(releases, route=route))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    before = len(node.reports)
    node.engine.calls.clear()

    node.reconciler.want(a_fleet(releases, rollout=a_rollout(2), route=route))
    await node.settle(lambda: node.phase(2) is NodePhase.READY)

    phases = {r.release(SERVICE, 1).phase for r in node.reports[before:]}  # type: ignore[union-attr]
    assert {NodePhase.READY} == phases
    assert [] == node.engine.calls
    assert node.link.told is not None
    name = releases[1].engine_name
    assert [(1, name), (2, name)] == [(r.number, r.model) for r in node.link.told.ready]


async def test_release_without_an_adapter_is_served_by_the_base(node: Node, tmp_path: Path) -> None:
    """Its prompt is staged first; nothing is asked of the engine, then or when it goes."""
    releases: dict[int, Release] = {}
    next_release(releases, prompt=make_files(tmp_path / "p1", PROMPT))
    next_release(releases, prompt=make_files(tmp_path / "p2", {"system.txt": "x"}))
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    assert node.link.told is not None
    assert [(1, "base")] == [(r.number, r.model) for r in node.link.told.ready]
    assert node.artifacts.is_staged(releases[1].staged[Component.PROMPT].root)

    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))
    await node.settle(lambda: node.phase(1) is None)
    await node.settle(lambda: node.phase(2) is NodePhase.READY)

    assert [] == node.engine.calls
    assert ["2.json"] == [f.name for f in release_file(tmp_path, 2).parent.iterdir()]


async def test_component_of_two_releases_is_staged_once(node: Node, tmp_path: Path) -> None:
    """What lies there by its root is not fetched again, though its source is gone."""
    releases = releases_of_two(tmp_path)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    (tmp_path / "a1").rename(tmp_path / "moved")

    node.reconciler.want(
        a_fleet(releases, rollout=a_rollout(2), route=Route(service=SERVICE, stable=1))
    )
    await node.settle(lambda: node.phase(2) is NodePhase.READY)

    roots = {made.root for release in releases.values() for made in release.staged.values()}
    lies = {path.name for path in (tmp_path / "state" / "artifacts").iterdir()}
    assert {node.artifacts.path(root).name for root in roots} == lies
    assert 3 == len(lies)


async def test_old_prompt_goes_and_the_shared_adapter_stays(node: Node, tmp_path: Path) -> None:
    """Only its own requests hold it: those of the new release are on the same adapter."""
    releases = releases_of_two(tmp_path)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=2, instant=(1,))))
    await node.settle(lambda: {node.phase(1), node.phase(2)} == {NodePhase.READY})
    node.link.in_flight = {1: 1, 2: 5}
    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,), drain_s=30)
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))
    await node.settle(lambda: node.phase(1) is NodePhase.DRAINING)
    await node.idle()
    assert release_file(tmp_path, 1).exists(), "a request of release 1 may still read its prompt"

    node.link.in_flight = {2: 5}
    await node.settle(lambda: node.phase(1) is None)

    assert not release_file(tmp_path, 1).exists()
    assert release_file(tmp_path, 2).exists()
    assert [releases[2].engine_name] == list(node.engine.adapters)
    assert node.phase(2) is NodePhase.READY


async def test_restarted_agent_adopts_a_release_of_several(tmp_path: Path) -> None:
    """Nothing is staged, loaded, probed or told again, and it is ready at the first word."""
    node = Node(tmp_path, hook=the_hook(tmp_path))
    fleet = a_fleet(releases_of_two(tmp_path), route=Route(service=SERVICE, stable=2))
    node.reconciler.want(fleet)
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    node.engine.calls.clear()

    again = Node(tmp_path, node.engine, hook=the_hook(tmp_path))
    again.reconciler.want(fleet)
    await again.idle(1)

    assert again.phase(2) is NodePhase.READY
    assert ([], [("load", 2)]) == (node.engine.calls, calls(tmp_path))


async def test_release_file_that_was_lost_is_written_before_it_is_ready(
    node: Node, tmp_path: Path
) -> None:
    """The disk is looked at, not remembered; so is what it says."""
    node.reconciler.want(a_fleet(releases_of_two(tmp_path), route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    path = release_file(tmp_path, 1)
    right = path.read_bytes()

    path.unlink()
    await node.settle(lambda: path.exists() and node.phase(1) is NodePhase.READY)
    assert right == path.read_bytes()

    path.chmod(0o644)
    path.write_bytes(right.replace(b"prompt", b"promt!"))
    await node.settle(lambda: path.read_bytes() == right)


async def test_prompt_that_vanished_is_staged_anew(node: Node, tmp_path: Path) -> None:
    """A release whose directory is gone is not ready."""
    releases = releases_of_two(tmp_path)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    place = node.artifacts.path(releases[1].staged[Component.PROMPT].root)

    place.rename(tmp_path / "elsewhere")
    await node.settle(place.exists)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_hook_is_told_before_ready_and_after_unload(tmp_path: Path) -> None:
    """With the same JSON as the file, and the event."""
    node = Node(tmp_path, hook=the_hook(tmp_path))
    releases = releases_of_two(tmp_path)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    assert [("load", 1)] == calls(tmp_path)
    said = json.loads((tmp_path / "calls").read_text())
    assert said == {"event": "load"} | json.loads(release_file(tmp_path, 1).read_text())

    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))
    await node.settle(lambda: node.phase(1) is None)
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    await node.idle()

    assert [("load", 1), ("load", 2), ("unload", 1)] == sorted(calls(tmp_path))


async def test_hook_is_not_run_for_what_only_the_engine_reads(tmp_path: Path) -> None:
    """A release of an adapter alone has no file either."""
    node = Node(tmp_path, hook=the_hook(tmp_path))
    releases: dict[int, Release] = {}
    next_release(releases, adapter=make_adapter(tmp_path / "a1"))
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    await node.application.give(releases[1])
    assert [] == calls(tmp_path)
    assert not release_file(tmp_path, 1).exists()


async def test_hook_that_asks_for_another_try_gets_one(tmp_path: Path) -> None:
    """After a wait; until then the release is not ready, with the reason."""
    node = Node(tmp_path, hook=the_hook(tmp_path))
    (tmp_path / "code").write_text("75")
    node.reconciler.want(a_fleet(releases_of_two(tmp_path), rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    said = node.reports[-1].release(SERVICE, 1)
    assert said is not None
    assert (False, "the hook failed on load (exit code 75): because") == (
        said.is_permanent,
        said.reason,
    )
    told = len(calls(tmp_path))
    await node.idle()
    assert told == len(calls(tmp_path)), "not before the wait is over"

    (tmp_path / "code").write_text("0")
    node.now += 60
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_hook_that_refuses_is_a_failure_for_good(tmp_path: Path) -> None:
    """Until an operator asks again; the engine is not asked again for what it holds."""
    node = Node(tmp_path, hook=the_hook(tmp_path))
    (tmp_path / "code").write_text("1")
    releases = releases_of_two(tmp_path)
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    node.now += 1000
    await node.idle()
    said = node.reports[-1].release(SERVICE, 1)
    assert said is not None
    assert said.is_permanent
    assert node.link.told is not None
    assert () == node.link.told.ready
    assert [("load", 1)] == calls(tmp_path)

    (tmp_path / "code").write_text("0")
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1, id="again")))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    name = releases[1].engine_name
    assert [("load", name), ("answer", name)] == node.engine.calls


async def test_refused_release_goes_in_whole(tmp_path: Path) -> None:
    """Also the adapter that was loaded before the hook refused."""
    node = Node(tmp_path, hook=the_hook(tmp_path))
    (tmp_path / "code").write_text("1")
    releases = releases_of_two(tmp_path)
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    (tmp_path / "code").write_text("0")
    ended = a_rollout(1, phase=RolloutPhase.FAILED, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=ended))
    node.now += 60
    await node.settle(lambda: not release_file(tmp_path, 1).exists())

    assert {} == node.engine.adapters
    assert [("load", 1), ("unload", 1)] == calls(tmp_path)


async def test_unload_is_told_until_the_hook_takes_it(tmp_path: Path) -> None:
    """What could not be taken back is still there, and is tried again."""
    node = Node(tmp_path, hook=the_hook(tmp_path))
    releases = releases_of_two(tmp_path)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    (tmp_path / "code").write_text("1")
    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE)))
    await node.settle(lambda: ("unload", 1) in calls(tmp_path))
    await node.idle()
    assert release_file(tmp_path, 1).exists()
    assert node.phase(1) is NodePhase.DRAINING

    (tmp_path / "code").write_text("0")
    node.now += 60
    await node.settle(lambda: not release_file(tmp_path, 1).exists())


async def test_agent_killed_after_any_of_its_effects_goes_on(tmp_path: Path) -> None:
    """A release is brought, the next one beside it, and the first is taken away.

    The next agent adopts what lies there: nothing is left over, and the hook was told of each step
    at least once, in order.
    """
    effects = []
    for at in count(1):
        cut = Cut(at)
        await _brought_and_taken(tmp_path / str(at), cut)
        if not cut.effect:
            break
        effects.append(cut.effect)

    own = ["release file", "hook load", "hook unload", "release file removed"]
    assert {"stage", "given", "load", "probe", "unload", *own} == set(effects)


async def _brought_and_taken(folder: Path, cut: Cut) -> None:
    releases, route = releases_of_two(folder), Route(service=SERVICE, stable=1)
    settling = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    gone = a_fleet(releases, rollout=settling, route=Route(service=SERVICE, stable=2))
    node = Node(folder, hook=the_hook(folder), crashpoints=cut)
    node = await _through(node, a_fleet(releases, route=route), 1, NodePhase.READY)
    both = a_fleet(releases, rollout=a_rollout(2), route=route)
    node = await _through(node, both, 2, NodePhase.READY)
    node = await _through(node, gone, 1, None)
    await node.settle(lambda: node.phase(2) is NodePhase.READY)

    assert [releases[2].engine_name] == list(node.engine.adapters)
    assert ["2.json"] == [file.name for file in release_file(folder, 2).parent.iterdir()]
    told = calls(folder)
    assert [("load", 1), ("load", 2), ("unload", 1)] == list(dict.fromkeys(told))
    assert len(told) <= 4, "at most the one that was cut is told again"


async def _through(node: Node, fleet: Fleet, number: int, phase: NodePhase | None) -> Node:
    """Bring a release to a phase; where the agent is killed, start another on what it left."""
    node.reconciler.want(fleet)
    await node.settle(lambda: node.is_killed or node.phase(number) is phase)
    if node.is_killed:
        await node.bury()
        node = Node(node.folder, node.engine, hook=the_hook(node.folder))
        node.reconciler.want(fleet)
        await node.settle(lambda: node.phase(number) is phase)
    return node


async def test_restarted_engine_is_told_anew(tmp_path: Path) -> None:
    """Whoever restarted the engine may have restarted what stands beside it."""
    node = Node(tmp_path, hook=the_hook(tmp_path))
    node.reconciler.want(a_fleet(releases_of_two(tmp_path), route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    node.engine.restart()
    await node.settle(lambda: node.phase(1) is not NodePhase.READY)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    assert [("load", 1), ("load", 1)] == calls(tmp_path)


async def test_engine_restarted_under_a_hook_is_told_again(tmp_path: Path) -> None:
    """What was done for the run before does not count for this one."""
    node = Node(tmp_path, hook=the_hook(tmp_path))
    releases: dict[int, Release] = {}
    next_release(releases, prompt=make_files(tmp_path / "p1", PROMPT))
    node.artifacts.stage(releases[1].components[Component.PROMPT], _ignore, kind="plain")
    await node.watch.refresh()
    assert node.application._hook is not None
    run = node.application._hook.run

    async def restarted(event: str, document: bytes) -> bytes:
        answer = await run(event, document)
        node.engine.restart()
        await node.watch.refresh()
        return answer

    node.application._hook.run = restarted  # type: ignore[method-assign]
    with pytest.raises(TemporaryEngineError, match="restarted while the hook ran"):
        await node.application.give(releases[1])
    assert not node.application.has(releases[1])

    node.application._hook.run = run  # type: ignore[method-assign]
    await node.application.give(releases[1])
    assert node.application.has(releases[1])


async def test_hook_of_one_release_holds_up_no_other(tmp_path: Path) -> None:
    """Release 1 shares the adapter with release 2, whose hook is slow: 1 is ready meanwhile.

    (1) The engine restarts; (2) both are loaded anew, the adapter once; (3) the hook of release 2
    does not end.
    """
    script = f"grep -q '\"release\":2' || exit 0; touch {tmp_path}/slow; sleep 600"
    slow = Hook(("/bin/sh", "-c", script), timeout_s=60, environment={"PATH": "/usr/bin:/bin"})
    releases: dict[int, Release] = {}
    next_release(releases, adapter=make_adapter(tmp_path / "a1"))
    next_release(releases, prompt=make_files(tmp_path / "p1", PROMPT))
    node = Node(tmp_path, hook=slow)
    route = Route(service=SERVICE, stable=1, candidate=2)
    node.reconciler.want(a_fleet(releases, route=route))

    await node.settle((tmp_path / "slow").exists)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    assert node.phase(2) is NodePhase.LOADING
    running = list(node.reconciler._doing._tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def _ignore(_phase: NodePhase, _done: int, _size: int) -> None:
    pass


async def test_name_that_leads_out_is_held_by_nobody(node: Node, tmp_path: Path) -> None:
    """A service's name from etcd is no path."""
    victim = tmp_path / "state" / "7.json"
    victim.write_text("{}")

    assert frozenset() == node.application.held("..")
    assert frozenset() == node.application.held(".")
    assert victim.exists()


async def test_prompt_that_is_applied_is_told_to_the_gateway_and_one_that_is_not_is_not(
    tmp_path: Path,
) -> None:
    """By where its verified copy lies."""
    node, releases = Node(tmp_path), dict[int, Release]()
    adapter = make_adapter(tmp_path / "a")
    plain = make_files(tmp_path / "p1", {"system.txt": "Be kind."})
    applied = make_files(tmp_path / "p2", {"prompt.yaml": "system: Be kind."})
    next_release(releases, adapter=adapter, prompt=plain)
    next_release(releases, prompt=applied)
    route = Route(service=SERVICE, stable=1)
    node.reconciler.want(a_fleet(releases, route=route, rollout=a_rollout(2)))
    await node.settle(lambda: node.phase(2) is NodePhase.READY)

    assert node.link.told is not None
    told = {ready.number: ready.prompt for ready in node.link.told.ready}
    assert {1: "", 2: str(node.artifacts.path(applied.root).absolute())} == told


async def test_prompt_that_cannot_be_applied_is_refused_for_good(tmp_path: Path) -> None:
    """Where the command could not see it; the release that serves stays as it is."""
    node, releases = Node(tmp_path), dict[int, Release]()
    next_release(releases, adapter=make_adapter(tmp_path / "a"))
    wrong = make_files(tmp_path / "p", {"prompt.yaml": "system_file: none.txt"})
    next_release(releases, prompt=wrong)
    route = Route(service=SERVICE, stable=1)
    node.reconciler.want(a_fleet(releases, route=route, rollout=a_rollout(2)))
    await node.settle(lambda: node.phase(2) is NodePhase.FAILED)

    said = node.reports[-1].release(SERVICE, 2)
    assert said is not None
    assert said.is_permanent
    assert "prompt.yaml: there is no file none.txt in the prompt" == said.reason
    assert node.phase(1) is NodePhase.READY


async def test_golden_chat_is_asked_with_the_releases_prompt(tmp_path: Path) -> None:
    """As a client's is."""
    node, releases = Node(tmp_path), dict[int, Release]()
    prompt = make_files(tmp_path / "p", {"prompt.yaml": "system: Be kind.\nmode: prepend"})
    next_release(releases, adapter=make_adapter(tmp_path / "a"), prompt=prompt)
    asked = Message(role="system", content="Be brief.")
    golden = Golden(prompts=(GoldenPrompt(messages=(asked,), contains="kind"),))
    await node.store.put(KEYS.golden(golden.digest), encode(golden))
    node.engine.texts["Be kind.\n\nBe brief."] = "I am kind."
    rollout = a_rollout(1, probes=golden.digest)
    node.reconciler.want(a_fleet(releases, rollout=rollout))

    await node.settle(lambda: node.phase(1) is NodePhase.READY)
