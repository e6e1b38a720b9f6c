"""What a release must answer before it serves, its prompt in every chat, and the fuse: all real."""

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import FAULTS, SERVICE, Fleet, ask
from vctl_plans.fuse import Fuse
from vctl_plans.phase import NodePhase, RolloutPhase

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("prompted"),
]

GOLDEN = """
service: {service}
strategy: full-switch
release: {{adapter: {{source: {adapter}}}}}
probes:
  - {{prompt: Hello, {expectation}, max_tokens: 24}}
  - messages: [{{role: user, content: Hello}}]
    similar_to: {anything}
    similarity: 0.01
"""
ANYTHING = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789"


def a_text(fleet: Fleet, system: str) -> Path:
    """Return a prompt whose text goes before every chat."""
    folder = fleet.folder / "prompts" / f"p{len(system)}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prompt.yaml").write_text("system_file: system.txt\nmode: replace\n")
    (folder / "system.txt").write_text(f"{system}\n")
    return folder


def tokens_of(system: str) -> int:
    """Return how long a chat is for the engine, whose tokens are bytes, and one that begins."""
    return 1 + len(f"<|system|>\n{system}\n<|user|>\nHello\n<|assistant|>\n")


def chat(fleet: Fleet, node: str) -> tuple[int, int]:
    """Ask a node; return the release that answered, and how many tokens the engine was asked."""
    messages = [{"role": "system", "content": "x" * 50}, {"role": "user", "content": "Hello"}]
    body = {"model": SERVICE, "messages": messages, "max_tokens": 2, "temperature": 0}
    request = urllib.request.Request(
        f"{fleet.dev.gateway_urls[node]}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        asked = json.load(response)["usage"]["prompt_tokens"]
        return int(response.headers["x-vctl-release"]), asked


def test_prompt_moves_with_its_release_and_returns_with_it(fleet: Fleet) -> None:
    """Every chat has the text of the release that its answer names; so it is after a rollback."""
    said = fleet.vctl("rollout", "start", "--prompt", str(a_text(fleet, "Be kind.")))
    assert said.code == 0, said
    before, seen, failures = fleet.stable(), set[tuple[int, int]](), []
    is_over = threading.Event()

    def keep_asking(node: str) -> None:
        while not is_over.is_set():
            try:
                seen.add(chat(fleet, node))
            except (OSError, KeyError, ValueError) as error:
                failures.append(f"{node}: {error}")

    clients = [threading.Thread(target=keep_asking, args=(node,)) for node in fleet.dev.nodes]
    for client in clients:
        client.start()
    try:
        longer = "Be kind, and answer in one sentence."
        said = fleet.vctl("rollout", "start", "--prompt", str(a_text(fleet, longer)))
        assert said.code == 0, said
        fleet.until(lambda: len(seen) == 2)
    finally:
        is_over.set()
        for client in clients:
            client.join()

    after = fleet.stable()
    assert failures == []
    assert seen == {(before, tokens_of("Be kind.")), (after, tokens_of(longer))}
    assert fleet.vctl("rollback", "--now", "--reason", "test").code == 0
    assert {(before, tokens_of("Be kind."))} == {chat(fleet, node) for node in fleet.dev.nodes}


def golden(fleet: Fleet, adapter: str, expectation: str) -> str:
    """Return a plan that brings an adapter, of which something is expected."""
    return GOLDEN.format(
        service=SERVICE,
        adapter=fleet.adapter(adapter),
        expectation=expectation,
        anything=ANYTHING,
    )


def said_of(fleet: Fleet, number: int) -> list[dict[str, Any]]:
    """Return what `vctl status` says of a release on each node."""
    nodes = json.loads(fleet.vctl("status", "-o", "json").out)["nodes"]
    return [r for node in nodes for r in node["releases"] if r["release"] == number]


def test_release_that_answers_wrong_never_serves_and_the_numbers_are_shown(fleet: Fleet) -> None:
    """The rollout fails with what was expected and what came; the right one tells its numbers."""
    before = fleet.stable()
    plan = fleet.folder / "plan.yaml"
    plan.write_text(golden(fleet, fleet.another(), "expect: never"))
    said = fleet.vctl("rollout", "start", str(plan))
    assert said.code == 1, said
    assert "golden prompts: 1 of 2 fail: prompt 1: expected 'never', got '" in said.out
    assert fleet.rollout().phase is RolloutPhase.FAILED
    assert before == fleet.stable()
    assert "expected 'never'" in fleet.vctl("status").out

    plan.write_text(golden(fleet, fleet.others()[1], f"similar_to: {ANYTHING}, similarity: 0.01"))
    said = fleet.vctl("rollout", "start", str(plan))
    assert said.code == 0, said
    shown = said_of(fleet, fleet.stable())
    assert [NodePhase.READY] * 2 == [each["phase"] for each in shown]
    for each in shown:
        assert "cached and fresh answers 0.0000 apart" in each["probe"]
        assert "golden prompts: 2 of 2 pass (similarity 0." in each["probe"]


def test_probe_that_fails_everywhere_takes_one_node_of_two(fleet: Fleet) -> None:
    """All engines start again with a cache that serves what others left: the fuse holds."""
    release = fleet.service().stable
    assert release is not None
    (fleet.folder / FAULTS).write_text(f"stale {release.engine_name}\n")
    for node in fleet.dev.nodes:
        fleet.dev.restart(node, "engine")

    def stand() -> list[tuple[str, bool]]:
        reports = fleet.dev.read().present().values()
        found = [r.release(SERVICE, release.number) for r in reports]
        return sorted((each.phase.value, each.fails_probe) for each in found if each)

    fleet.until(lambda: stand() == [("quarantined", True), ("ready", True)], within_s=300)
    fuse: Fuse | None = fleet.service().fuse
    assert fuse is not None
    assert 1 == len(fuse.nodes)
    assert release.number == ask(next(iter(fleet.dev.gateway_urls.values())))[0]
    shown = said_of(fleet, release.number)
    assert all("its cached answer differs" in each["reason"] for each in shown)
    assert "serves though it fails its probe" in fleet.vctl("status").out
