"""`vctl node gc`: every node removes what nothing needs, and says what it removed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.builders import NODES, a_report, a_root
from tests.cli.support import KEYS, Conduct, Vctl, a_fleet
from vctl_cli.commands import node_gc
from vctl_cli.fleetcollect import (
    FleetCollection,
    NodeCollection,
    Removed,
    node_text,
    verdict_text,
)
from vctl_plans.codec import decode, encode
from vctl_plans.inspection import Collected, CollectRequest
from vctl_plans.store.memory import MemoryStore


def nodes_that_answer(*nodes: str, problem: str = "", **more: Any) -> Conduct:
    """Return agents that answer a request; *problem* is what keeps the first from removing."""

    async def conduct(store: MemoryStore) -> None:
        async for update in store.watch(KEYS.requests):
            for entry in update.entries.values():
                await _answer(store, decode(entry.value, CollectRequest))

    async def _answer(store: MemoryStore, request: CollectRequest) -> None:
        for node in nodes:
            if not request.is_for(node):
                continue
            plain = Collected(
                request=request.id,
                removed=(a_root(1), a_root(99)),
                count=2,
                freed_bytes=2048 if not request.is_dry else 4096,
                kept=3,
                reasons={"routed": 1, "among the newest": 2},
            )
            answer = msgspec.structs.replace(plain, **more)
            if problem and node == nodes[0]:
                answer = Collected(request=request.id, kept=5, problem=problem)
            report = msgspec.structs.replace(a_report(node), collected=(answer,))
            await store.put(KEYS.report(node), encode(report))

    return conduct


def _vctl(conduct: Conduct) -> Vctl:
    vctl = a_fleet()
    vctl.conduct = conduct
    return vctl


def test_each_node_says_what_went_and_what_stays() -> None:
    """By the release that it was of; what no release names by its root alone."""
    said = _vctl(nodes_that_answer(*NODES))("node", "gc")

    assert (0, "") == (said.code, said.err)
    assert said.out.splitlines() == [
        *(
            line
            for node in NODES
            for line in (
                f"{node}: removed 2 artifacts, 2.0 KiB; 3 stay: 2 among the newest, 1 routed",
                "  b3:000000000001  release 1 of support",
                "  b3:000000000063  no release",
            )
        ),
        "6 artifacts removed, 6.0 KiB (3/3 nodes)",
    ]


def test_dry_run_says_what_would_go() -> None:
    """And asks for nothing else."""
    said = _vctl(nodes_that_answer(*NODES))("node", "gc", "a", "--dry-run")

    assert 0 == said.code
    assert "a: would remove 2 artifacts, 4.0 KiB" in said.out
    assert said.out.splitlines()[-1] == "2 artifacts would be removed, 4.0 KiB (1/1 nodes)"


def test_node_with_nothing_to_remove_says_so() -> None:
    """With what stays."""
    nothing: dict[str, Any] = {
        "removed": (),
        "count": 0,
        "freed_bytes": 0,
        "kept": 1,
        "reasons": {"loaded": 1},
    }
    said = _vctl(nodes_that_answer(*NODES, **nothing))("node", "gc", "b")

    assert "b: nothing to remove; 1 stays: 1 loaded" in said.out
    assert 0 == said.code


def test_only_the_first_are_named() -> None:
    """The rest is counted."""
    many: dict[str, Any] = {"removed": tuple(a_root(n) for n in range(50)), "count": 70}
    said = _vctl(nodes_that_answer(*NODES, **many))("node", "gc", "a")

    assert "  60 more" in said.out
    assert 10 == said.out.count("  b3:")


def test_node_that_does_not_answer_is_unconfirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named, and exit 8; without --timeout as well."""
    vctl = _vctl(nodes_that_answer("a", "c"))
    said = vctl("node", "gc", "--timeout", "200ms")
    assert 8 == said.code
    assert "(2/3 nodes); unconfirmed: b" in said.out

    monkeypatch.setattr(node_gc, "WAIT_S", 0.2)
    assert 8 == vctl("node", "gc").code


def test_node_that_cannot_tell_what_it_needs_removed_nothing() -> None:
    """It says why, and the command does not end well."""
    said = _vctl(nodes_that_answer(*NODES, problem="the engine does not answer"))("node", "gc")

    assert 8 == said.code
    assert "a: nothing goes: the engine does not answer" in said.out
    assert "(2/3 nodes)" in said.out


def test_node_that_is_not_present_is_refused() -> None:
    """Nothing is asked of the others."""
    said = _vctl(nodes_that_answer(*NODES))("node", "gc", "bb")

    assert (2, "") == (said.code, said.out)
    assert "node 'bb' is not present" in said.err
    assert "did you mean 'b'?" in said.err


def test_request_goes_with_the_command_and_result_is_one_document() -> None:
    """For a program to read."""
    vctl = _vctl(nodes_that_answer(*NODES))
    said = vctl("-o", "json", "node", "gc")

    view = json.loads(said.out)
    assert ("collection", False, 3) == (view["kind"], view["is_dry"], len(view["nodes"]))
    assert "release 1 of support" == view["nodes"][0]["removed"][0]["what"]
    assert () == asyncio.run(vctl.store.list(KEYS.requests)).entries


def test_sample_of_the_page_is_what_is_shown() -> None:
    """As it stands there."""
    made = NodeCollection(
        node="n1",
        count=2,
        removed=(
            Removed(root="b3:3f19ab04c7d2" + "0" * 52, what="release 3 of support"),
            Removed(root="b3:77c0e1f29a55" + "0" * 52, what="release 4 of support (prompt)"),
        ),
        freed_bytes=1_288_490_189,
        kept=4,
        reasons={"routed": 2, "this run of the engine was given it": 2},
        problem="",
    )
    view = FleetCollection(request="q", is_dry=False, nodes=(made,), unconfirmed=())
    text = f"{node_text(made, is_dry=False)}\n{verdict_text(view)}"

    page = (Path(__file__).parents[2] / "docs" / "artifacts.md").read_text()
    assert "\n".join(f"    {line}" for line in text.splitlines()) in page
