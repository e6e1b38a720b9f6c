"""`vctl rollout plan`: what a start would do, and would be refused; it writes nothing."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route
from tests.cli.support import KEYS, Said, Vctl, a_fleet, a_record, running
from tests.cli.test_examples import EXAMPLES
from tests.weights import building
from vctl_plans.capability import Capability, EngineFacts
from vctl_plans.node import NodeReport, ReleaseReport
from vctl_plans.phase import NodePhase, RolloutPhase


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return building.adapter(tmp_path / "v2")


def stored(vctl: Vctl) -> dict[str, bytes]:
    return {e.key: e.value for e in asyncio.run(vctl.store.list(KEYS.root)).entries}


def view_of(said: Said) -> dict[str, Any]:
    view: dict[str, Any] = json.loads(said.out)
    return view


def engines(vctl: Vctl, **facts: Any) -> Vctl:
    for node in NODES:
        known = EngineFacts(kind="vllm", capabilities=tuple(Capability), **facts)
        vctl.put(KEYS.node(node), msgspec.structs.replace(a_record(node), facts=known))
    return vctl


def test_plan_shows_what_changes_and_writes_nothing(adapter: Path):
    vctl = a_fleet()
    before = stored(vctl)
    said = vctl("rollout", "plan", "--adapter", str(adapter), "--steps", "10,100", "--soak", "5m")
    assert said.code == 0, said.err
    lines = dict(line.split(maxsplit=1) for line in said.out.splitlines())
    assert "weighted of support: would start" == lines["rollout"]
    assert "1 -> 2, made by the start" == lines["release"]
    assert "adapter=1 -> adapter=2" == lines["vector"]
    assert lines["adapter"].startswith("b3:000000000001 -> b3:")
    assert "3: a, b, c" == lines["nodes"]
    assert "at most 1.1 KiB a node, 3.3 KiB in all" == lines["fetch"]
    assert "10 % for 5m, 100 % for 5m" == lines["steps"]
    assert "10m at least, beside fetching and loading" == lines["time"]
    assert before == stored(vctl)
    assert not (adapter / "vctl.manifest.json").exists()


def test_start_does_what_the_plan_said(adapter: Path):
    vctl = a_fleet()
    flags = ("--adapter", str(adapter))
    planned = view_of(vctl("rollout", "plan", *flags, "-o", "json"))
    assert 0 == vctl("rollout", "start", *flags, "--no-watch").code
    service = vctl.service()
    assert service.rollout is not None
    made = service.releases[service.rollout.to_release]
    assert (planned["release"], planned["vector_after"]) == (made.number, made.vector_text)
    again = view_of(vctl("rollout", "plan", *flags, "-o", "json"))
    assert ("follow", service.rollout.id, 0) == (
        again["outcome"], again["rollout"], again["exit_code"],
    )  # fmt: skip


def test_converged_plan_would_do_nothing():
    rollout = a_rollout(RolloutPhase.CONVERGED, confirmed=3)
    vctl = a_fleet(releases=2, rollout=rollout, route=a_route(stable=2, good=(1, 2)))
    start = vctl("rollout", "start", "--release", "2", "--no-watch")
    assert start.code == 0
    planned = view_of(vctl("rollout", "plan", "--release", "2", "-o", "json"))
    assert planned["outcome"] in {"follow", "nothing"}


def test_bytes_that_nodes_have_are_not_counted():
    vctl = a_fleet(releases=2)
    sized = {
        name: msgspec.structs.replace(artifact, size_bytes=1000)
        for name, artifact in vctl.service().releases[2].components.items()
    }
    release = msgspec.structs.replace(vctl.service().releases[2], components=sized)
    vctl.put(KEYS.release(SERVICE, 2), release)
    for node, phase, percent in (("a", NodePhase.STAGED, 0), ("b", NodePhase.FETCHING, 75)):
        said = ReleaseReport(
            service=SERVICE, number=2, digest="", phase=phase, fetched_percent=percent
        )
        report = NodeReport(node=node, boot_id=f"boot-{node}", incarnation="e", releases=(said,))
        vctl.put(KEYS.report(node), report)
    view = view_of(vctl("rollout", "plan", "--release", "2", "-o", "json"))
    by_node = {node["node"]: node["fetch_bytes"] for node in view["nodes"]}
    assert {"a": 0, "b": 250, "c": 1000} == by_node
    assert (1250, 1000) == (view["fetch_bytes"], view["fetch_bytes_a_node"])
    said_text = vctl("rollout", "plan", "--release", "2").out
    assert "at most 1000 B a node, 1.2 KiB in all, 1 have all of it" in said_text


def test_size_that_nobody_knows_is_named_and_not_counted():
    view = view_of(a_fleet(releases=2)("rollout", "plan", "--release", "2", "-o", "json"))
    assert ["file:///adapters/v2"] == view["unknown_sizes"]
    said = a_fleet(releases=2)("rollout", "plan", "--release", "2")
    assert "size not known: file:///adapters/v2" in said.out


def one_place() -> Vctl:
    return engines(a_fleet(releases=2), max_adapters=1, max_resident=1)


SOAKING = running(RolloutPhase.SOAKING)
REFUSED: dict[str, tuple[Callable[[], Vctl], tuple[str, ...]]] = {
    "running": (lambda: a_fleet(releases=3, rollout=SOAKING), ("--release", "3")),
    "revoked": (lambda: a_fleet(releases=2, route=a_route(revoked=(2,))), ("--release", "2")),
    "no release": (a_fleet, ("--release", "9")),
    "nobody": (lambda: a_fleet(releases=2, nodes=0), ("--release", "2")),
    "no way back": (a_fleet, ("--strategy", "rollback")),
    "one place": (one_place, ("--release", "2")),
    "too late": (
        lambda: a_fleet(releases=3, rollout=SOAKING),
        ("--release", "3", "--supersede"),
    ),
    "no service": (a_fleet, ("--release", "2", "-s", "suport")),
    "not there": (a_fleet, ("--adapter", "/nowhere/at/all")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_is_that_of_the_start(case: str):
    make, flags = REFUSED[case]
    vctl = make()
    before = stored(vctl)
    planned = vctl("rollout", "plan", *flags)
    assert before == stored(vctl)
    started = vctl("rollout", "start", *flags, "--no-watch")
    assert started.code == planned.code != 0
    message = started.err.splitlines()[0].removeprefix("vctl: ")
    assert message in planned.out + planned.err


def test_everything_that_would_stop_it_is_listed():
    route = a_route(stable=1, revoked=(3,))
    rollout = running(RolloutPhase.SOAKING)
    vctl = a_fleet(releases=3, route=route, rollout=rollout, nodes=0)
    view = view_of(vctl("rollout", "plan", "--release", "3", "-o", "json"))
    assert ("refused", 7) == (view["outcome"], view["exit_code"])
    said = [each["message"] for each in view["refusals"]]
    assert any("is revoked" in each for each in said)
    assert any(f"rollout {rollout.id} of {SERVICE} is soaking" in each for each in said)
    assert any("no node is present" in each for each in said)
    assert all(each["exit_code"] in {2, 7} for each in view["refusals"])


def test_places_are_shown_against_what_is_needed(adapter: Path):
    vctl = engines(a_fleet(), max_adapters=2, max_resident=4)
    said = vctl("rollout", "plan", "--adapter", str(adapter))
    assert said.code == 0, said.err
    assert "places    2 of 4 adapters held, on a, b, c" in said.out
    assert "2 of 2 adapters served side by side, on a, b, c" in said.out


def test_what_nodes_would_certainly_refuse_is_told(tmp_path: Path):
    config = {"adapter_config.json": building.adapter_config(use_dora=True)}
    adapter = building.adapter(tmp_path / "dora", config)
    vctl = engines(a_fleet(), max_adapters=4, max_resident=4)
    said = vctl("rollout", "plan", "--adapter", str(adapter))
    assert said.code == 1
    assert (
        "a, b, c would refuse release 2: its adapter has DoRA, which vllm does not take" in said.out
    )


def test_nodes_that_could_hold_it_up_are_named():
    vctl = a_fleet(releases=2)
    vctl.put(KEYS.report("b"), NodeReport(node="b", boot_id="boot-b"))
    said = vctl("rollout", "plan", "--release", "2")
    assert said.code == 0
    assert "to know   3 of 3 nodes must be ready, and now b is no engine" in said.out


def test_memory_that_is_told_is_shown():
    vctl = a_fleet(releases=2)
    report = msgspec.structs.replace(a_report("b", r1=NodePhase.READY), free_memory=0.3)
    vctl.put(KEYS.report("b"), report)
    said = vctl("rollout", "plan", "--release", "2")
    assert "20% must be left by a load that allocates; least free now 30%, on b" in said.out


def test_dry_run_asks_no_node_and_copies_nothing(adapter: Path, tmp_path: Path):
    vctl = a_fleet()
    before = stored(vctl)
    there = tmp_path / "pushed"
    said = vctl("rollout", "plan", "--adapter", str(adapter), "--push", str(there))
    assert (0, False) == (said.code, there.exists())
    said = vctl("rollout", "plan", "--adapter", "s3://b/v2", "--hash-on-nodes", "2")
    assert said.code == 0, said.err
    assert "known once nodes have hashed it" in said.out
    assert before == stored(vctl)


def test_steps_are_those_that_would_be_taken():
    vctl = a_fleet(releases=2, route=a_route(stable=0, good=()))
    view = view_of(vctl("rollout", "plan", "--release", "2", "--steps", "10,100", "-o", "json"))
    assert [100.0] == [step["weight"] for step in view["steps"]]
    assert 300.0 == view["least_s"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example_validates_and_can_be_planned(example: Path, tmp_path: Path):
    building.adapter(tmp_path / "adapters" / "v2")
    building.fill(tmp_path / "prompts" / "v12", {"system.txt": "You are kind."})
    building.fill(tmp_path / "indexes" / "v3", {"index.faiss": "x"})
    model = building.pack([building.u8("w", b"1")])
    building.fill(tmp_path / "bases" / "v2", {"config.json": b"{}", "model.safetensors": model})
    plan = tmp_path / example.name
    plan.write_text(example.read_text())
    route = a_route(stable=2, good=(1, 2), instant=(1,))
    vctl = a_fleet(releases=2, route=route, rollout=a_rollout(RolloutPhase.CONVERGED))
    assert 0 == vctl("rollout", "validate", str(plan)).code
    said = vctl("rollout", "plan", str(plan))
    assert said.code == 0, said.out + said.err
    assert ": would start" in said.out
