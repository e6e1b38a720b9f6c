"""`vctl nodes`, `vctl node drain` and `undrain`, and `vctl config accept-restore`."""

import asyncio
import json
from collections.abc import Mapping

import msgspec
import pytest

from tests.builders import SERVICE, a_report
from tests.cli.support import KEYS, Vctl, a_fleet, a_record
from vctl_cli import draining
from vctl_plans.codec import decode, encode
from vctl_plans.inspection import (
    ACCEPT_RESTORE,
    AcceptRestore,
    Drained,
    DrainPhase,
    DrainRequest,
    drain_id,
)
from vctl_plans.node import NodeRecord
from vctl_plans.operate import Request
from vctl_plans.phase import NodePhase
from vctl_plans.store.memory import MemoryStore


def lines(vctl: Vctl) -> dict[str, Mapping[str, object]]:
    said = vctl("nodes", "-o", "json")
    assert said.code == 0, said
    return {line["node"]: line for line in json.loads(said.out)["nodes"]}


def report(vctl: Vctl, node: str, **changes: object) -> None:
    said = a_report(node, route_revision=99, r1=NodePhase.READY)
    vctl.put(KEYS.report(node), msgspec.structs.replace(said, **changes))


def test_nodes_are_shown_the_worst_first_with_what_is_known_of_them():
    vctl = a_fleet()
    facts = a_record("a").facts
    assert facts
    facts = msgspec.structs.replace(facts, kind="vllm", version="0.10", max_resident=8)
    record = msgspec.structs.replace(a_record("a"), facts=facts, labels={"rack": "7"})
    vctl.put(KEYS.node("a"), record)
    report(vctl, "a", adapters=2, free_memory=0.3, engine_since="2026-01-02T09:00:00Z")
    bad = a_report("c", route_revision=99, r1=NodePhase.QUARANTINED)
    vctl.put(KEYS.report("c"), bad)
    asyncio.run(_gone(vctl.store, "b"))
    report(vctl, "b", at="2026-01-02T11:58:10Z")
    said = vctl("nodes")
    head, *rows = [line.split() for line in said.out.splitlines()]
    assert (said.code, said.err) == (0, "")
    assert head[:4] == ["NODE", "PHASE", "RELEASES", "PLACES"]
    assert [row[0] for row in rows] == ["c", "b", "a"]
    assert rows[1][1] == "absent"
    assert "1m ago" in said.out
    assert rows[2][1:4] == ["ready", "support/1", "2/8"]
    a = lines(vctl)["a"]
    assert (a["places"], a["adapters"], a["free_memory"], a["version"]) == (8, 2, 0.3, "0.10")
    assert a["labels"] == {"rack": "7"}
    assert "3h" in said.out


async def _gone(store: MemoryStore, node: str) -> None:
    from vctl_plans.store.port import Delete, Txn

    await store.commit(Txn(operations=(Delete(KEYS.node(node)),)))


def test_some_nodes_only_and_names_that_are_none():
    vctl = a_fleet()
    assert [line for line in vctl("nodes", "b").out.splitlines() if line.startswith("b ")]
    said = vctl("nodes", "bb")
    assert (said.code, said.out) == (2, "")
    assert said.err == "vctl: NODE: there is no node 'bb'\n  did you mean 'b'?\n"


def answering(*phases: tuple[DrainPhase | None, str], node: str = "a"):
    """Return what makes a node say how far it is, one phase after the other."""

    async def conduct(store: MemoryStore) -> None:
        key = KEYS.request(drain_id(node))
        async for update in store.watch(key):
            if (key in update.entries) == (phases[0][0] is not None):
                break
        for phase, problem in phases:
            said = a_report(node, route_revision=99, r1=NodePhase.READY)
            drain = Drained(request=key, phase=phase, problem=problem) if phase else None
            value = msgspec.structs.replace(said, drain=drain)
            await store.put(KEYS.report(node), encode(value))
            await asyncio.sleep(0.01)

    return conduct


def test_a_drain_is_written_followed_and_ended():
    vctl = a_fleet()
    vctl.conduct = answering(
        (DrainPhase.WAITING, "no other node"), (DrainPhase.DRAINING, ""), (DrainPhase.DRAINED, "")
    )
    said = vctl("node", "drain", "a", "--wait", "--reason", "kernel")
    assert (said.code, said.out) == (0, "a\n")
    assert said.err.splitlines() == [
        "node a is to be drained",
        "node a: to be drained: no other node",
        "node a: draining",
        "node a: drained",
    ]
    held = asyncio.run(vctl.store.get(KEYS.request("drain-a")))
    assert held
    assert held.lease_id == 0  # it lasts
    asked = decode(held.value, DrainRequest)
    assert (asked.by.user, asked.reason, asked.nodes) == ("ann", "kernel", ("a",))
    assert lines(vctl)["a"]["drain"] == "drained"

    vctl.conduct = None
    again = vctl("node", "drain", "a")
    assert (again.code, again.err.splitlines()[0]) == (0, "node a is drained already by ann")
    vctl.conduct = answering((None, ""))
    back = vctl("node", "undrain", "a", "--wait")
    assert (back.code, back.out) == (0, "a\n")
    assert asyncio.run(vctl.store.get(KEYS.request("drain-a"))) is None
    vctl.conduct = None
    assert vctl("node", "undrain", "a").err == "a is not drained\n"


@pytest.mark.parametrize("is_applied", [True, False])
async def test_a_drain_whose_reply_is_lost_is_written_once(*, is_applied: bool):
    """Whether it came through is found out; what did not come through is no drain."""
    store = MemoryStore()
    await store.put(KEYS.node("a"), encode(NodeRecord(node="a", boot_id="x")))
    store.lose_reply(is_applied=is_applied)
    assert await draining.ask(store, KEYS, "a", Request(id="q1"))
    assert await draining.asked(store, KEYS, "a")


def test_a_drain_that_is_not_done_in_time_is_5():
    vctl = a_fleet()
    said = vctl("node", "drain", "a", "--wait", "--timeout", "0.1s")
    assert (said.code, said.out) == (5, "")
    assert "not drained yet; it goes on" in said.err


@pytest.mark.parametrize("verb", ["drain", "undrain"])
def test_a_node_that_does_not_exist_is_refused(verb: str):
    said = a_fleet()("node", verb, "x")
    assert (said.code, said.out) == (2, "")
    assert "there is no node 'x'" in said.err


def test_a_drain_as_json_names_its_kind():
    view = json.loads(a_fleet()("node", "drain", "a", "-o", "json").out)
    assert (view["kind"], view["node"], view["is_asked"]) == ("drain", "a", True)


def test_a_restored_backup_is_accepted_by_a_word_of_its_own():
    vctl = a_fleet()
    said = vctl("config", "accept-restore", "--reason", "disk lost")
    assert said.code == 0
    assert f"{SERVICE}: release 1" in said.err
    held = asyncio.run(vctl.store.get(KEYS.request(ACCEPT_RESTORE)))
    assert held
    word = decode(held.value, AcceptRestore)
    assert (word.reason, word.by.user, word.id) == ("disk lost", "ann", said.out.strip())
    again = vctl("config", "accept-restore")
    assert again.out != said.out
    held = asyncio.run(vctl.store.get(KEYS.request(ACCEPT_RESTORE)))
    assert held
    assert (word.id,) == decode(held.value, AcceptRestore).earlier  # a backup may bring it back
