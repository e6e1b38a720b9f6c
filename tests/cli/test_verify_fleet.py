"""`vctl verify-weights --fleet`: every node hashes again, and says what it found."""

import asyncio
import json

import msgspec

from tests.builders import NODES, a_report
from tests.cli.support import FLEET, KEYS, Conduct, Vctl, a_fleet
from vctl_plans.codec import decode, encode
from vctl_plans.inspection import Checked, Checks, VerifyRequest
from vctl_plans.phase import Component
from vctl_plans.store.memory import MemoryStore

ROOT = "b3:" + "1" * 64
COMMAND = ("verify-weights", "--fleet", FLEET)


def nodes_that_answer(*nodes: str, rotten: str = "") -> Conduct:
    """Return agents that answer a request, *rotten* with a difference."""

    async def conduct(store: MemoryStore) -> None:
        async for update in store.watch(KEYS.requests):
            for entry in update.entries.values():
                await _answer(store, decode(entry.value, VerifyRequest))

    async def _answer(store: MemoryStore, request: VerifyRequest) -> None:
        for node in nodes:
            found = Checked(
                request=request.id,
                service="support",
                number=1,
                root=ROOT,
                size_bytes=2048,
                problem="tensor 'w' differs in 1 block" if node == rotten else "",
            )
            answer = Checks(request=request.id, found=(found,))
            report = msgspec.structs.replace(a_report(node), checks=(answer,))
            await store.put(KEYS.report(node), encode(report))

    return conduct


def _vctl(conduct: Conduct) -> Vctl:
    vctl = a_fleet()
    vctl.conduct = conduct
    return vctl


def test_fleet_whose_bytes_are_right_is_verified() -> None:
    """Node by node, and with its count."""
    said = _vctl(nodes_that_answer(*NODES))(*COMMAND)

    assert 0 == said.code, said
    assert said.out.splitlines() == [
        *(f"{node}: verified, 1 artifacts, 2.0 KiB" for node in NODES),
        "verified (3/3)",
    ]
    assert "" == said.err


def test_difference_is_named_with_its_node() -> None:
    """Exit 1, whatever the others say."""
    said = _vctl(nodes_that_answer(*NODES, rotten="b"))(*COMMAND)

    assert 1 == said.code
    assert "b: differs: release 1 of support: tensor 'w' differs in 1 block" in said.out
    assert "verified (2/3)" in said.out


def test_node_that_does_not_answer_is_unconfirmed() -> None:
    """Named, and exit 8: nothing passes for verified that was not."""
    said = _vctl(nodes_that_answer("a", "c"))(*COMMAND, "--timeout", "300ms")

    assert 8 == said.code
    assert "verified (2/3); unconfirmed: b" in said.out


def test_request_goes_with_the_command() -> None:
    """And with it the answers."""
    vctl = _vctl(nodes_that_answer(*NODES))
    vctl(*COMMAND)

    assert () == asyncio.run(vctl.store.list(KEYS.requests)).entries


def test_result_is_one_document_in_json() -> None:
    """For a program to read."""
    said = _vctl(nodes_that_answer(*NODES))("-o", "json", *COMMAND)

    view = json.loads(said.out)
    assert ("fleet-verification", 3, []) == (view["kind"], len(view["nodes"]), view["unconfirmed"])


def test_fleet_without_a_node_is_refused() -> None:
    """There is nothing to ask."""
    said = Vctl()(*COMMAND)

    assert (2, "") == (said.code, said.out)
    assert "no node is present" in said.err


def test_neither_path_nor_fleet_is_a_usage_error() -> None:
    """With what can be given."""
    said = a_fleet()("verify-weights")

    assert 2 == said.code
    assert "--fleet NAME" in said.err


def test_component_that_differs_is_named() -> None:
    """Adapters are the rule; of what else a release has, it is said which."""
    found = Checked(
        request="q", service="support", number=3, root=ROOT, component=Component.PROMPT, problem="x"
    )
    adapter = msgspec.structs.replace(found, component=Component.ADAPTER)

    assert "release 3 of support: prompt: x" == found.problem_text
    assert "release 3 of support: x" == adapter.problem_text
    assert adapter == decode(encode(adapter), Checked), "as an agent of before wrote it"
