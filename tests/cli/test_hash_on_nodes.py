"""`--hash-on-nodes N`: what only nodes can read is hashed by several of them, which must agree."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_report
from tests.cli.support import KEYS, Conduct, Said, Terminal, Vctl, a_fleet
from tests.weights import building
from vctl_cli.render.progress import counting
from vctl_cli.render.screen import Screen
from vctl_plans.codec import decode, encode
from vctl_plans.inspection import Hashed, HashRequest
from vctl_plans.phase import Component
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Delete, Txn

ROOT, OTHER = f"b3:{'1' * 64}", f"b3:{'2' * 64}"
FOUND = Hashed(request="", root=ROOT, size_bytes=2048, rank=8, base_name="org/base")
SOURCE = "file:///mnt/only-there/v8"

Find = Callable[[str, HashRequest], Hashed | None]


def agents(find: Find, seen: list[HashRequest] | None = None) -> Conduct:
    """Return agents that answer requests with what *find* says of a node; None: they do not."""

    async def conduct(store: MemoryStore) -> None:
        async for update in store.watch(KEYS.requests):
            for entry in update.entries.values():
                request = decode(entry.value, HashRequest)
                if seen is not None:
                    seen.append(request)
                for node in NODES:
                    if request.is_for(node):
                        await answer(store, node, request)

    async def answer(store: MemoryStore, node: str, request: HashRequest) -> None:
        found = find(node, request)
        if found:
            hashed = (msgspec.structs.replace(found, request=request.id),)
            report = msgspec.structs.replace(a_report(node), hashed=hashed)
            await store.put(KEYS.report(node), encode(report))

    return conduct


def create(find: Find, *more: str, seen: list[HashRequest] | None = None) -> tuple[Vctl, Said]:
    vctl = a_fleet()
    vctl.conduct = agents(find, seen)
    return vctl, vctl("release", "create", SERVICE, "--adapter", SOURCE, *more)


def test_release_is_made_of_what_nodes_found_alike():
    """Nothing is read here: the source is on no machine of ours."""
    seen: list[HashRequest] = []
    vctl, said = create(lambda _node, _request: FOUND, "--hash-on-nodes", "3", seen=seen)
    made = vctl.service().releases[2].components[Component.ADAPTER]

    assert (0, "support: release 2 (adapter=2)\n") == (said.code, said.out)
    assert (ROOT, SOURCE) == (made.root, made.source)
    assert (2048, 8, "org/base") == (made.size_bytes, made.rank, made.base_name)
    assert (SOURCE, Component.ADAPTER) == (seen[0].source, seen[0].component)
    for node in NODES[:3]:
        assert f"  {node}: b3:111111111111 (2.0 KiB, rank 8, of org/base)" in said.err
    assert f"{SOURCE}: 2.0 KiB, root {ROOT}\n  found alike by all that were asked (3)" in said.err


def test_request_goes_with_the_command():
    """And with it the answers in the reports."""
    vctl, _ = create(lambda _node, _request: FOUND, "--hash-on-nodes", "3")

    assert () == asyncio.run(vctl.store.list(KEYS.requests)).entries


def test_only_as_many_nodes_as_asked_for_hash():
    seen: list[HashRequest] = []
    _, said = create(lambda _node, _request: FOUND, "--hash-on-nodes", "2", seen=seen)

    assert 0 == said.code
    assert 2 == len(set(seen[0].nodes))


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (
            {"b": Hashed(request="", root=OTHER, size_bytes=2048)},
            "a, c: b3:111111111111 (2.0 KiB, rank 8, of org/base); b: b3:222222222222 (2.0 KiB)",
        ),
        (
            {"b": Hashed(request="", problem="/mnt/only-there/v8: is not there on this node")},
            "b: /mnt/only-there/v8: is not there on this node",
        ),
        ({"c": None}, "c: did not answer within 0.3s"),
    ],
)
def test_anything_but_the_same_answer_from_all_makes_nothing(
    answers: Mapping[str, Hashed | None], told: str
):
    """Who found what, or nothing, is named."""
    vctl, said = create(
        lambda node, _request: answers.get(node, FOUND),
        *("--hash-on-nodes", "3", "--timeout", "300ms"),
    )

    assert (1, "") == (said.code, said.out)
    assert told in said.err
    assert [1] == list(vctl.service().releases)


def test_node_that_leaves_before_it_answers_is_not_waited_for():
    """Without a --timeout too."""
    find = agents(lambda node, _request: FOUND if node != "c" else None)

    async def conduct(store: MemoryStore) -> None:
        answering = asyncio.ensure_future(find(store))
        async for update in store.watch(KEYS.requests):
            if update.entries:
                await store.commit(Txn(operations=(Delete(KEYS.node("c")),)))
                break
        await answering

    vctl = a_fleet()
    vctl.conduct = conduct
    said = vctl("release", "create", SERVICE, "--adapter", SOURCE, "--hash-on-nodes", "3")

    assert (1, "") == (said.code, said.out)
    assert "c: left the fleet" in said.err
    assert [1] == list(vctl.service().releases)


def test_fewer_nodes_than_asked_for_is_refused():
    """A quorum is never made smaller silently."""
    vctl, said = create(lambda _node, _request: FOUND, "--hash-on-nodes", "4")

    assert (2, "") == (said.code, said.out)
    assert "release.adapter.hash_on_nodes: asks for 4 nodes; present: 3 (a, b, c)" in said.err
    assert [1] == list(vctl.service().releases)


def test_root_that_was_given_must_be_what_they_found():
    _, good = create(lambda _node, _request: FOUND, "--hash-on-nodes", "3", "--root", ROOT)
    vctl, bad = create(lambda _node, _request: FOUND, "--hash-on-nodes", "3", "--root", OTHER)

    assert 0 == good.code
    assert (1, "") == (bad.code, bad.out)
    assert f"its root is {ROOT}, not {OTHER}" in bad.err
    assert [1] == list(vctl.service().releases)


def test_service_that_does_not_exist_is_refused_before_any_node_hashes():
    seen: list[HashRequest] = []
    vctl = a_fleet()
    vctl.conduct = agents(lambda _node, _request: FOUND, seen)
    said = vctl("release", "create", "suport", "--adapter", SOURCE, "--hash-on-nodes", "3")

    assert (2, "") == (said.code, said.out)
    assert "did you mean 'support'?" in said.err
    assert [] == seen


def test_plan_file_says_the_same(tmp_path: Path):
    """And the flags print the plan that they mean."""
    plan = building.fill(
        tmp_path,
        {
            "plan.yaml": "service: support\nstrategy: full-switch\n"
            f"release: {{adapter: {{source: '{SOURCE}', hash_on_nodes: 3}}}}\n"
        },
    )
    vctl = a_fleet()
    vctl.conduct = agents(lambda _node, _request: FOUND)
    said = vctl("rollout", "start", str(plan / "plan.yaml"), "--no-watch")
    assert 0 == said.code, said
    assert ROOT == vctl.service().releases[2].components[Component.ADAPTER].root

    printed = vctl(
        *("rollout", "start", "--adapter", SOURCE, "--hash-on-nodes", "3", "--print-plan")
    )
    assert "hash_on_nodes: 3" in printed.out


def test_prompt_and_adapter_are_each_hashed():
    """As what each is."""
    seen: list[HashRequest] = []
    vctl, said = create(
        lambda _node, request: (
            FOUND
            if request.component == "adapter"
            else Hashed(request="", root=OTHER, size_bytes=5)
        ),
        *("--prompt", "file:///mnt/only-there/p", "--hash-on-nodes", "3"),
        seen=seen,
    )
    release = vctl.service().releases[2]

    assert 0 == said.code, said
    assert OTHER == release.components[Component.PROMPT].root
    assert {Component.ADAPTER, Component.PROMPT} == {request.component for request in seen}


def test_count_is_at_least_one():
    said = a_fleet()("release", "create", SERVICE, "--adapter", SOURCE, "--hash-on-nodes", "0")

    assert (2, "") == (said.code, said.out)
    assert "--hash-on-nodes" in said.err


def test_field_of_a_plan_is_a_count(tmp_path: Path):
    content = {
        "service": "support",
        "strategy": "full-switch",
        "release": {"adapter": {"source": SOURCE, "hash_on_nodes": 0}},
    }
    (tmp_path / "plan.yaml").write_text(json.dumps(content))
    said = a_fleet()("rollout", "start", str(tmp_path / "plan.yaml"))

    assert (2, "") == (said.code, said.out)
    assert "release.adapter.hash_on_nodes" in said.err


def test_answers_are_counted_where_a_person_waits():
    err = Terminal()
    with counting(Screen(Terminal(), err, has_color=False), "hashing v8", 2) as tell:
        tell("  a: b3:1")
        tell("  b: b3:1")

    assert "  a: b3:1" in err.getvalue()
