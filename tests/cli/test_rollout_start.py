"""`vctl rollout start`: refusals, what is written, and how it ends."""

import asyncio
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route
from tests.cli.support import (
    CONVERGES,
    KEYS,
    Said,
    Scene,
    Vctl,
    a_fleet,
    a_record,
    conductor,
    running,
)
from tests.weights import building
from vctl_plans.base import Base
from vctl_plans.capability import Capability
from vctl_plans.codec import decode, encode
from vctl_plans.errors import Conflict
from vctl_plans.golden import Golden
from vctl_plans.node import NodeRecord
from vctl_plans.phase import Component, NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Cause, Rollout
from vctl_plans.route import Route


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return building.adapter(tmp_path / "v2")


def test_rollout_is_followed_to_converged(adapter: Path):
    vctl = a_fleet()
    vctl.conduct = conductor(*CONVERGES)
    said = vctl("rollout", "start", "--adapter", str(adapter), "--reason", "better")
    assert said.code == 0
    assert said.out.splitlines() == [
        "12:00:00  preparing: release 2 is prepared on 3 nodes",
        "12:00:00  shifting: release 2 is ready on 3 of 3 nodes: traffic moves to it",
        "12:00:00  converged (3/3) on release 2",
    ]
    service = vctl.service()
    release = service.releases[2]
    assert (release.by.user, release.reason) == ("ann", "better")
    assert adapter.as_uri() == release.components[Component.ADAPTER].source
    assert release.components[Component.ADAPTER].rank == 4


def test_manifest_is_written_into_the_source_and_said(adapter: Path):
    vctl = a_fleet()
    said = vctl("rollout", "start", "--adapter", str(adapter), "--no-watch")
    assert (adapter / "vctl.manifest.json").is_file()
    assert f"manifest written: {adapter / 'vctl.manifest.json'}" in said.err
    again = vctl("rollout", "start", "--adapter", str(adapter), "--no-watch")
    assert again.code == 0
    assert "manifest" not in again.err


def test_place_that_takes_no_manifest_is_no_failure(adapter: Path):
    (adapter / "vctl.manifest.json").mkdir()
    said = a_fleet()("rollout", "start", "--adapter", str(adapter), "--no-watch")
    assert said.code == 0
    assert "no manifest written" in said.err


def test_failure_ends_with_what_to_look_at_and_what_to_do(adapter: Path):
    vctl = a_fleet()
    vctl.conduct = conductor((P.FAILED, "refused by a; no traffic moved", {}))
    said = vctl("rollout", "start", "--adapter", str(adapter))
    assert said.err.splitlines()[-3:] == [
        "what next:",
        "  vctl rollout status -s support  what the nodes say",
        "  vctl rollout retry -s support   once that is mended",
    ]


ENDS: list[tuple[Scene, int]] = [
    ((P.CONVERGED, "converged (3/3) on release 2", {}), 0),
    ((P.CONVERGED, "converged (2/3) on release 2", {"unconfirmed": ("c",)}), 8),
    ((P.FAILED, "refused by a; no traffic moved", {}), 1),
    ((P.FAILED, "aborted by an operator; no traffic moved", {"cause": Cause.ABORTED}), 3),
    ((P.SUPERSEDED, "superseded by a newer plan", {}), 3),
    ((P.ROLLED_BACK, "rolled back (3/3) on release 1", {"cause": Cause.ASKED}), 3),
    ((P.PAUSED, "after 30s these nodes do not report the route: c", {}), 4),
]


@pytest.mark.parametrize(("end", "code"), ENDS)
def test_exit_code_is_that_of_the_end(adapter: Path, end: Scene, code: int):
    vctl = a_fleet()
    vctl.conduct = conductor(end)
    said = vctl("rollout", "start", "--adapter", str(adapter))
    assert code == said.code
    assert end[1] in said.out


def test_unconfirmed_nodes_are_named_on_stderr(adapter: Path):
    vctl = a_fleet()
    vctl.conduct = conductor((P.CONVERGED, "converged (2/3)", {"unconfirmed": ("c",)}))
    said = vctl("rollout", "start", "--adapter", str(adapter), "--quiet")
    assert said.err == "unconfirmed: c\n"
    assert said.out == "12:00:00  converged (2/3)\n"


def test_paused_rollout_tells_what_a_person_can_do(adapter: Path):
    vctl = a_fleet()
    vctl.conduct = conductor((P.PAUSED, "these nodes do not report the route: c", {}))
    said = vctl("rollout", "start", "--adapter", str(adapter))
    assert "vctl rollout resume -s support" in said.err


def test_node_that_refuses_is_shown_live(adapter: Path):
    vctl = a_fleet()
    report = a_report("b", r2=NodePhase.FAILED)
    vctl.conduct = conductor((P.FAILED, "refused by b", {}), reports=[report])
    said = vctl("rollout", "start", "--adapter", str(adapter))
    assert "12:00:00  b: release 2 failed" in said.out.splitlines()


def test_timeout_is_5_and_says_how_to_follow(adapter: Path):
    said = a_fleet()("rollout", "start", "--adapter", str(adapter), "--timeout", "0.2")
    assert said.code == 5
    assert (
        "is preparing after 0.2s; it goes on\n  follow it: vctl rollout watch -s support"
        in said.err
    )
    assert "converged" not in said.out


def test_no_watch_prints_the_id_alone(adapter: Path):
    vctl = a_fleet()
    said = vctl("rollout", "start", "--adapter", str(adapter), "--no-watch")
    rollout = vctl.service().rollout
    assert rollout is not None
    assert (0, f"{rollout.id}\n") == (said.code, said.out)
    assert "release 2 is prepared" in vctl("rollout", "history").out


def test_json_tail_has_a_kind_in_each_line(adapter: Path):
    vctl = a_fleet()
    vctl.conduct = conductor(*CONVERGES)
    said = vctl("rollout", "start", "--adapter", str(adapter), "-o", "json")
    lines = said.out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith('{"kind":"decision","time":"2026-01-02T12:00:00') for line in lines)


# -- refusals --------------------------------------------------------------------------------------


def refused(said: Said, code: int, *told: str) -> None:
    assert (code, "") == (said.code, said.out)
    for text in told:
        assert text in said.err


def test_unknown_service_is_refused_with_the_closest_name(adapter: Path):
    said = a_fleet()("rollout", "start", "-s", "suport", "--adapter", str(adapter))
    refused(said, 2, "service: fleet test has no service 'suport'", "did you mean 'support'?",
            "--new-service")  # fmt: skip


def test_new_service_is_made_when_it_is_said_to_be_new(adapter: Path):
    vctl = Vctl()
    for node in NODES:
        vctl.put(KEYS.node(node), NodeRecord(node=node, boot_id="1"))
    vctl.conduct = conductor((P.CONVERGED, "converged (3/3) on release 1", {}))
    said = vctl("rollout", "start", "--adapter", str(adapter), "--new-service")
    assert said.code == 0
    assert vctl.service().spec is not None


def test_second_rollout_is_refused_and_names_the_first(adapter: Path):
    vctl = a_fleet(releases=2, rollout=running())
    said = vctl("rollout", "start", "--adapter", str(adapter))
    refused(said, 7, "rollout r2 of support is shifting", "vctl rollout watch --service support")


def test_supersede_takes_the_place_of_one_that_prepares(adapter: Path):
    vctl = a_fleet(releases=2, rollout=running(P.PREPARING))
    refused(vctl("rollout", "start", "--adapter", str(adapter)), 7, "--supersede")
    said = vctl("rollout", "start", "--adapter", str(adapter), "--supersede", "--no-watch")
    assert said.code == 0
    archived = asyncio.run(vctl.store.get(KEYS.archive(SERVICE, "r2")))
    assert archived is not None
    assert decode(archived.value, Rollout).phase == P.SUPERSEDED


def test_identical_plan_attaches_to_the_running_rollout(adapter: Path):
    vctl = a_fleet()
    first = vctl("rollout", "start", "--adapter", str(adapter), "--no-watch")
    again = vctl("rollout", "start", "--adapter", str(adapter), "--no-watch")
    assert (0, first.out) == (again.code, again.out)
    assert "already does this (preparing)" in again.err


def test_identical_plan_that_has_converged_is_done_at_once(adapter: Path):
    vctl = a_fleet()
    vctl.conduct = conductor((P.CONVERGED, "converged (3/3) on release 2", {}))
    vctl("rollout", "start", "--adapter", str(adapter))
    vctl.conduct = None
    vctl.put(KEYS.route(SERVICE), a_route(stable=2, good=(1, 2)))
    said = vctl("rollout", "start", "--adapter", str(adapter))
    assert said.code == 0
    assert "nothing to do" in said.err


def test_conflict_is_decided_again(adapter: Path):
    vctl = a_fleet()
    store = vctl.store.peer()
    vctl.store.peer = lambda: store  # type: ignore[method-assign]
    commit = store.commit
    conflicts = [Conflict("x"), Conflict("x")]

    async def contested(txn):
        if conflicts:
            raise conflicts.pop()
        return await commit(txn)

    store.commit = contested  # type: ignore[method-assign]
    assert vctl("rollout", "start", "--adapter", str(adapter), "--no-watch").code == 0
    assert conflicts == []


def test_missing_adapter_is_wrong_usage(tmp_path: Path):
    said = a_fleet()("rollout", "start", "--adapter", str(tmp_path / "v9"))
    refused(said, 2, f"release.adapter.source: there is no {tmp_path / 'v9'}", "add --root")


def test_missing_adapter_is_taken_on_its_root(tmp_path: Path):
    vctl = a_fleet()
    root = f"b3:{'a' * 64}"
    said = vctl("rollout", "start", "--adapter", str(tmp_path / "v9"), "--root", root, "--no-watch")
    assert said.code == 0
    assert "is not on this machine" in said.err
    assert root == vctl.service().releases[2].components[Component.ADAPTER].root


def test_adapter_of_another_root_is_1(adapter: Path):
    said = a_fleet()("rollout", "start", "--adapter", str(adapter), "--root", f"b3:{'a' * 64}")
    assert said.code == 1
    assert f"not b3:{'a' * 64}" in said.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "release: what is to be rolled out?"),
        (("--release", "7"), "release: release 7 of support does not exist; known: 1"),
        (("--release", "1", "--adapter", "x"), "both name what to bring in"),
        (("--release", "1", "--prompt", "x"), "--prompt and --release both name what to bring in"),
        (("--prompt", "x", "--root", f"b3:{'0' * 64}"), "--root: without --adapter"),
        (("--strategy", "weigthed", "--release", "1"), "strategy: 'weigthed' is none of"),
        (("--strategy", "weighted", "--release", "1", "--steps", "10,50"), "steps[1].weight: the"),
        (("--release", "1", "--steps", "50,10,100"), "steps[1].weight: 10 is not above 50"),
        (("--release", "1", "--steps", "10,half"), "steps: 'half' is no weight"),
        (
            ("--release", "1", "--strategy", "full-switch", "--steps", "100"),
            "steps: belongs to a weighted plan",
        ),
        (("--release", "1", "--soak", "soon"), "soak: "),
        (("--strategy", "rollback", "--to", "x"), "to: "),
        (("--adapter", "gs://ml/v2"), "is none of file://"),
    ],
)
def test_plan_that_does_not_validate_names_the_field(arguments: tuple[str, ...], told: str):
    refused(a_fleet()("rollout", "start", *arguments), 2, told)


# -- plan files ------------------------------------------------------------------------------------


def test_sources_of_a_plan_file_are_relative_to_it(adapter: Path):
    plan = adapter.parent / "plan.yaml"
    plan.write_text(
        "service: support\nstrategy: full-switch\nrelease: {adapter: {source: ./v2}}\nsoak: 1m\n"
    )
    vctl = a_fleet()
    assert vctl("rollout", "start", str(plan), "--no-watch").code == 0
    assert adapter.as_uri() == vctl.service().releases[2].components[Component.ADAPTER].source


def test_plan_comes_from_stdin(adapter: Path):
    vctl = a_fleet()
    release = f"{{adapter: {{source: '{adapter}'}}}}"
    vctl.stdin = f"{{service: support, strategy: full-switch, release: {release}}}"
    assert vctl("rollout", "start", "-", "--no-watch").code == 0


def test_printed_plan_is_what_the_flags_mean(adapter: Path, tmp_path: Path):
    flags = ("--adapter", str(adapter), "--soak", "5m", "--reason", "x")
    printed = a_fleet()("rollout", "start", *flags, "--print-plan")
    plan = tmp_path / "printed.yaml"
    plan.write_text(printed.out)
    one, other = a_fleet(), a_fleet()
    one("rollout", "start", *flags, "--no-watch")
    other("rollout", "start", str(plan), "--no-watch")
    plans = {v.service().rollout.plan for v in (one, other)}  # type: ignore[union-attr]
    assert len(plans) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "is not YAML: line 1"),
        ("release: {adapter: 1\nto: 1", "is the { of line 1 closed?"),
        ("steps: [1\nto: 1", "is the [ of line 1 closed?"),
        ("- a", "is not a plan"),
        ("", "plan.yaml is empty"),
        ("a\0b", "plan.yaml is not a plan: it is not text"),
        ("{service: support}\n---\n{service: other}", "is more than one plan: line 2"),
        ("strategy: rollback\nto: 1\nto: 2", "is not YAML: line 3: to stands twice"),
        ("release: {adapter: {root: a, root: b}}", "is not YAML: line 1: root stands twice"),
        ("service: support", "strategy: missing; one of weighted"),
        ("{service: support, strategy: full-switch, release: 1, sok: 5m}", "sok: unknown field"),
    ],
)
def test_plan_file_with_a_mistake_names_it(tmp_path: Path, text: str, told: str):
    plan = tmp_path / "plan.yaml"
    plan.write_text(text)
    refused(a_fleet()("rollout", "start", str(plan)), 2, told)


def test_plan_that_is_no_text_or_no_file_is_told_without_numbers_of_errors(tmp_path: Path):
    binary = tmp_path / "plan.yaml"
    binary.write_bytes(b"\x80\xff")
    refused(
        a_fleet()("rollout", "start", str(binary)), 2, "plan.yaml is not a plan: it is not text"
    )
    said = a_fleet()("rollout", "start", str(tmp_path))
    lines = said.err.splitlines()
    assert (said.code, lines[0]) == (2, f"vctl: {tmp_path} cannot be read: Is a directory")
    assert "a plan is YAML" in lines[1]


def test_plan_file_and_flags_that_say_what_to_do_are_refused(tmp_path: Path):
    said = a_fleet()("rollout", "start", str(tmp_path / "plan.yaml"), "--release", "1")
    refused(said, 2, "--release and", "both say what to do")


def test_missing_plan_file_is_named(tmp_path: Path):
    refused(a_fleet()("rollout", "start", str(tmp_path / "no.yaml")), 2, "no.yaml cannot be read")


def test_components_are_brought_together(adapter: Path, tmp_path: Path):
    vctl = a_fleet()
    prompt = building.fill(tmp_path / "p", {"system.txt": "x"})
    index = building.fill(tmp_path / "i", {"index.faiss": "x"})
    flags = ("--adapter", str(adapter), "--prompt", str(prompt), "--index", str(index))
    said = vctl("rollout", "start", *flags, "--no-watch")
    assert said.code == 0, said
    release = vctl.service().releases[2]
    assert release.vector == {
        Component.ADAPTER: 2,
        Component.PROMPT: 1,
        Component.INDEX: 1,
    }
    again = vctl("rollout", "start", *flags, "--no-watch")
    assert (again.code, again.out) == (0, said.out), "the same wish is the same rollout"
    assert list(vctl.service().releases) == [1, 2]


def test_prompt_alone_keeps_the_adapter(tmp_path: Path):
    vctl = a_fleet()
    prompt = building.fill(tmp_path / "p", {"system.txt": "x"})
    assert vctl("rollout", "start", "--prompt", str(prompt), "--no-watch").code == 0
    first, second = vctl.service().releases.values()
    assert first.adapter == second.adapter
    assert "adapter=1,prompt=1" == second.vector_text


def test_prompt_that_cannot_be_applied_is_refused_at_the_start(tmp_path: Path):
    vctl = a_fleet()
    prompt = building.fill(tmp_path / "p", {"prompt.yaml": "system_file: none.txt"})
    said = vctl("rollout", "start", "--prompt", str(prompt), "--no-watch")
    assert said.code == 1
    assert "prompt.yaml: there is no file none.txt in the prompt" in said.err
    assert 2 not in vctl.service().releases


GOLDEN_PLAN = """
service: support
strategy: full-switch
release: {{adapter: {{source: {adapter}}}}}
probes:
  - {{prompt: "Capital of France?", contains: Paris, max_tokens: 8}}
  - messages: [{{role: user, content: Hello}}]
    similar_to: Hello, you.
"""


def test_golden_prompts_are_written_beside_what_all_nodes_watch(adapter: Path, tmp_path: Path):
    vctl = a_fleet()
    plan = tmp_path / "plan.yaml"
    plan.write_text(GOLDEN_PLAN.format(adapter=adapter))
    assert vctl("rollout", "start", str(plan), "--no-watch").code == 0
    service = vctl.service()
    rollout, release = service.rollout, service.releases[2]
    assert rollout is not None
    assert rollout.probes == release.probes
    stored = asyncio.run(vctl.store.get(KEYS.golden(rollout.probes)))
    assert stored is not None
    golden = decode(stored.value, Golden, key=stored.key)
    assert golden.digest == rollout.probes
    assert ["Capital of France?", ""] == [asked.prompt for asked in golden.prompts]
    assert b"Paris" not in encode(rollout)


def test_golden_prompts_for_what_serves_are_refused(tmp_path: Path):
    vctl = a_fleet()
    plan = tmp_path / "plan.yaml"
    text = GOLDEN_PLAN.format(adapter="x").replace("{adapter: {source: x}}", "1")
    plan.write_text(text)
    said = vctl("rollout", "start", str(plan), "--no-watch")
    assert said.code == 2
    assert "probes: release 1 serves already" in said.err


def test_flags_of_components_are_printed_as_a_plan(tmp_path: Path):
    root = f"b3:{'a' * 64}"
    said = a_fleet()(
        *("rollout", "start", "--prompt", str(tmp_path), "--prompt-root", root),
        *("--index", "s3://b/i", "--print-plan"),
    )
    assert yaml.safe_load(said.out)["release"] == {
        "prompt": {"source": tmp_path.as_uri(), "root": root},
        "index": {"source": "s3://b/i"},
    }


def test_flag_of_a_component_beside_a_plan_file_is_2(tmp_path: Path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("{service: support, strategy: full-switch, release: 1}")
    said = a_fleet()("rollout", "start", str(plan), "--index", "x")
    assert said.code == 2
    assert f"--index and {plan} both say what to do" in said.err


def a_base(path: Path, number: int = 1) -> str:
    """Return the directory of a base model."""
    model = building.pack([building.u8("w", bytes([number]))])
    return str(building.fill(path, {"config.json": "{}", "model.safetensors": model}))


def test_base_is_brought_and_locked(tmp_path: Path):
    vctl = a_fleet()
    said = vctl("rollout", "start", "--weights", a_base(tmp_path), "--no-watch")
    assert said.code == 0, said
    assert "its base goes to them by waves of 1 node" in said.err
    service = vctl.service()
    rollout = service.rollout
    assert rollout is not None
    assert (1, 0.0) == (rollout.wave_size, rollout.wave)
    assert "adapter=1,weights=1" == service.releases[2].vector_text
    entry = asyncio.run(vctl.store.get(KEYS.base))
    assert entry is not None
    assert f"{SERVICE}/{rollout.id}" == decode(entry.value, Base).lock


def test_nothing_starts_beside_a_base_that_moves(adapter: Path, tmp_path: Path):
    vctl = a_fleet()
    vctl.put(KEYS.base, Base(lock="search/q7"))
    for flags in (("--adapter", str(adapter)), ("--weights", a_base(tmp_path))):
        said = vctl("rollout", "start", *flags, "--no-watch")
        refused(said, 7, "rollout q7 of search changes the base of all nodes")


def test_base_is_refused_while_another_service_serves(tmp_path: Path):
    vctl = a_fleet()
    vctl.put(KEYS.route("search"), a_route(service="search"))
    said = vctl("rollout", "start", "--weights", a_base(tmp_path), "--no-watch")
    refused(said, 2, "that of search, which serves too, would be gone")


def test_base_is_refused_while_another_rollout_runs(tmp_path: Path):
    vctl = a_fleet()
    vctl.put(KEYS.rollout("search"), a_rollout(service="search"))
    said = vctl("rollout", "start", "--weights", a_base(tmp_path), "--no-watch")
    refused(said, 7, "rollouts run of search")


def test_base_is_refused_by_engines_that_cannot_change_it(adapter: Path, tmp_path: Path):
    vctl = a_fleet()
    vctl.put(KEYS.node("b"), a_record("b", Capability.FLUSH))
    said = vctl("rollout", "start", "--weights", a_base(tmp_path / "base"), "--no-watch")
    refused(said, 2, "release.weights", "the engine cannot change its base while it runs on b")
    assert vctl("rollout", "start", "--adapter", str(adapter), "--no-watch").code == 0


# -- places ---------------------------------------------------------------------------------------


def a_narrow_fleet(places: int | None, *, kind: str = "vllm", **more: object) -> Vctl:
    """Return a fleet on which release 2 serves and 1 is retained, on engines with few places."""
    route = a_route(stable=2, good=(1, 2), instant=(1,) if places != 1 else ())
    vctl = a_fleet(releases=2, route=route)
    for node in NODES:
        record = a_record(node)
        assert record.facts
        facts = msgspec.structs.replace(record.facts, kind=kind, max_adapters=places, **more)
        vctl.put(KEYS.node(node), msgspec.structs.replace(record, facts=facts))
    return vctl


def test_retained_release_gives_way_in_the_starts_own_write(adapter: Path):
    vctl = a_narrow_fleet(2)

    said = vctl("rollout", "start", "--adapter", str(adapter), "--no-watch")

    assert said.code == 0
    assert "1, kept for an instant rollback, gives way to it" in said.err
    service = vctl.service()
    assert service.route is not None
    assert service.rollout is not None
    assert ((), (1,)) == (service.route.instant, service.rollout.unload)


def test_plan_without_a_place_is_refused_with_the_numbers_and_the_flag(adapter: Path):
    vctl = a_narrow_fleet(1)

    said = vctl("rollout", "start", "--adapter", str(adapter), "--no-watch")

    assert said.code == 2
    assert said.out == ""
    assert "engines hold 1 adapter on a, b, c, and 2 would be needed" in said.err
    assert "start them with --max-loras 2" in said.err
    assert "--allow-downtime" in said.err
    assert vctl.service().rollout is None


def test_downtime_that_is_allowed_is_said_up_front(adapter: Path):
    vctl = a_narrow_fleet(1)

    said = vctl("rollout", "start", "--adapter", str(adapter), "--allow-downtime", "--no-watch")

    assert said.code == 0
    assert "they unload what serves before they load it, by waves of 1 node" in said.err
    rollout = vctl.service().rollout
    assert rollout is not None
    assert (True, 1) == (rollout.exchanges, rollout.wave_size)


def test_allow_downtime_is_what_a_plan_file_says(adapter: Path):
    said = a_fleet()(
        "rollout", "start", "--adapter", str(adapter), "--allow-downtime", "--print-plan"
    )

    assert yaml.safe_load(said.out)["allow_downtime"] is True


def test_places_that_are_not_told_are_said(adapter: Path):
    said = a_fleet()("rollout", "start", "--adapter", str(adapter), "--no-watch")

    assert said.code == 0
    assert "how many adapters an engine holds is not told on a, b, c" in said.err


def test_other_services_take_places(adapter: Path):
    """They are read because engines tell how many there are."""
    vctl = a_narrow_fleet(2)
    other = msgspec.structs.replace(vctl.service().releases[1], service="chat")
    vctl.put(KEYS.release("chat", 1), other)
    vctl.put(KEYS.route("chat"), Route(service="chat", stable=1))

    said = vctl("rollout", "start", "--adapter", str(adapter), "--no-watch")

    assert said.code == 2
    assert "release 2, which serves and 1 of other services" in said.err


def test_rank_above_the_engines_is_refused_at_the_start(adapter: Path):
    vctl = a_narrow_fleet(8, max_rank=2)

    said = vctl("rollout", "start", "--adapter", str(adapter), "--no-watch")

    assert said.code == 2
    assert "an adapter of rank 4, and engines take 2 at most on a, b, c" in said.err
    assert "--max-lora-rank 8" in said.err


@pytest.mark.parametrize(
    ("trained_on", "served", "code", "words"),
    [
        ("org/Llama-3.1-8B", "/models/Llama-3.1-70B", 2, "release.adapter: release 3 has"),
        ("org/Llama-3.1-8B", "other/llama-3.1-8b-awq", 0, ""),
        ("org/Llama-3.1-8B", "chat", 0, "are they the same?"),
    ],
)
def test_base_is_compared_and_only_what_is_certain_is_refused(
    tmp_path: Path, trained_on: str, served: str, code: int, words: str
):
    config = building.adapter_config(base_model_name_or_path=trained_on)
    folder = building.adapter(tmp_path / "v3", {"adapter_config.json": config})
    vctl = a_narrow_fleet(8, base=served)

    said = vctl("rollout", "start", "--adapter", str(folder), "--no-watch")

    assert code == said.code
    assert words in said.err
    assert bool(words) == ("an adapter of base" in said.err)


def test_rollback_that_needs_downtime_says_the_flag():
    vctl = a_narrow_fleet(1)

    refused = vctl("rollback", "--now", "--no-watch")
    allowed = vctl("rollback", "--now", "--allow-downtime", "--no-watch")

    assert refused.code == 2
    assert "--allow-downtime" in refused.err
    assert allowed.code == 0
    assert "no node holds it: it is loaded by waves of 1 node; 2 serves on meanwhile" in allowed.err
