"""Adapter and prompt move together on a live fleet, and the application finds the right prompt."""

import json
import os
import signal
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.prompted.support import HOOK, a_prompt, a_script
from tests.e2e.support import SERVICE, Fleet, a_fleet
from vctl_plans.phase import Component, RolloutPhase

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("prompted"),
]


def told(fleet: Fleet) -> list[tuple[str, int, str]]:
    """Return what the hooks were told: event, release, and the prompt that they were shown."""
    lines = (fleet.folder / "hook.log").read_text().splitlines()
    said = [json.loads(line) for line in lines]
    return [(s["event"], s["release"], s["components"]["prompt"]["path"]) for s in said]


def served(fleet: Fleet, node: str) -> tuple[int, str, str]:
    """Ask a node as an application would: the release, its vector, and the prompt that it finds."""
    body = {"model": SERVICE, "prompt": "Hello", "max_tokens": 2, "temperature": 0}
    request = urllib.request.Request(
        f"{fleet.dev.gateway_urls[node]}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        response.read()
        number, vector = int(response.headers["x-vctl-release"]), response.headers["x-vctl-vector"]
    state = fleet.folder / "nodes" / node / "agent"
    known = json.loads((state / "releases" / SERVICE / f"{number}.json").read_text())
    prompt = Path(known["components"]["prompt"]["path"]) / "system.txt"
    return number, vector, prompt.read_text()


def test_adapter_and_prompt_switch_together_and_return_together(fleet: Fleet) -> None:
    """No answer has one of the new and one of the old, before, during and after."""
    before, seen = fleet.stable(), set[tuple[int, str, str]]()
    failures: list[str] = []
    is_over = threading.Event()

    def keep_asking(node: str) -> None:
        while not is_over.is_set():
            try:
                seen.add(served(fleet, node))
            except (OSError, KeyError, ValueError) as error:
                failures.append(f"{node}: {error}")

    clients = [threading.Thread(target=keep_asking, args=(node,)) for node in fleet.dev.nodes]
    for client in clients:
        client.start()
    try:
        said = fleet.vctl(
            *("rollout", "start", "--adapter", str(fleet.adapter(fleet.another()))),
            *("--prompt", str(a_prompt(fleet, 2))),
        )
        assert said.code == 0, said
        fleet.until(lambda: len(seen) == 2)
    finally:
        is_over.set()
        for client in clients:
            client.join()

    after = fleet.stable()
    assert failures == []
    assert seen == {
        (before, "adapter=1,prompt=1", "prompt 1"),
        (after, "adapter=2,prompt=2", "prompt 2"),
    }
    shown = fleet.vctl("release", "show", str(after))
    assert "vector    adapter=2,prompt=2" in shown.out.splitlines()
    assert "adapter=2,prompt=2" in fleet.vctl("status").out

    back = fleet.vctl("rollback", "--now", "--reason", "test")
    assert back.code == 0, back
    assert "adapter=1,prompt=1" in fleet.vctl("status").out
    for node in fleet.dev.nodes:
        assert served(fleet, node) == (before, "adapter=1,prompt=1", "prompt 1")


def test_prompt_alone_leaves_adapter_and_engine_as_they_are(fleet: Fleet) -> None:
    """The counter of the adapter stays, and no engine is asked to load anything."""
    before = fleet.service().stable
    assert before is not None
    loads = _loads(fleet)
    assert min(loads) > 0

    said = fleet.vctl("rollout", "start", "--prompt", str(a_prompt(fleet, 3)))

    assert said.code == 0, said
    stable = fleet.service().stable
    assert stable is not None
    assert before.engine_name == stable.engine_name
    assert before.vector[Component.ADAPTER] == stable.vector[Component.ADAPTER]
    assert loads == _loads(fleet)
    for node in fleet.dev.nodes:
        number, vector, prompt = served(fleet, node)
        assert (stable.number, stable.vector_text, "prompt 3") == (number, vector, prompt)


def _loads(fleet: Fleet) -> list[int]:
    """Return how often each node's agent had its engine load an adapter."""
    logs = [fleet.folder / "logs" / f"{node}-engine.log" for node in fleet.dev.nodes]
    return [log.read_text().count("adapter loaded") for log in logs]


def test_corrupt_prompt_is_refused_by_every_node_and_moves_nothing(fleet: Fleet) -> None:
    """Exit code 1; component and file are named; the adapter beside it is not loaded."""
    stable, victim = fleet.stable(), a_prompt(fleet, 4)
    arguments = ("--adapter", str(fleet.adapter(fleet.others()[1])), "--prompt", str(victim))
    assert fleet.vctl("release", "create", SERVICE, *arguments).code == 0
    number = max(fleet.service().releases)
    (victim / "system.txt").write_text("prompt ?")

    said = fleet.vctl("rollout", "start", "--release", str(number))

    assert said.code == 1
    assert "prompt: " in said.out + said.err
    assert "system.txt" in said.out + said.err
    assert stable == fleet.stable()
    assert fleet.rollout().phase is RolloutPhase.FAILED
    assert number not in {release for _, release, _ in told(fleet)}


def test_verification_of_the_fleet_covers_every_component(fleet: Fleet) -> None:
    """Rot in a prompt is found where it lies, and named."""
    assert fleet.vctl("verify-weights", "--service", SERVICE).code == 0
    stable = fleet.service().stable
    assert stable is not None
    state = fleet.folder / "nodes" / "n2" / "agent"
    known = json.loads((state / "releases" / SERVICE / f"{stable.number}.json").read_text())
    file = Path(known["components"]["prompt"]["path"]) / "system.txt"
    right = file.read_text()
    file.chmod(0o644)
    file.write_text("rotten")
    try:
        said = fleet.vctl("verify-weights", "--service", SERVICE)
    finally:
        file.write_text(right)

    assert said.code == 1
    assert "n2: differs" in said.out
    assert "prompt: " in said.out


def test_hook_was_told_of_each_release_on_each_node(fleet: Fleet) -> None:
    """Of every one that was brought, with a directory of the node's own; of none that was not."""
    loaded = {(release, path) for event, release, path in told(fleet) if event == "load"}
    stable = fleet.stable()
    nodes = {path.partition("/nodes/")[2].partition("/")[0] for n, path in loaded if n == stable}

    assert nodes == set(fleet.dev.nodes)
    assert {event for event, _, _ in told(fleet)} <= {"load", "unload"}


def test_agent_killed_under_its_hook_goes_on(tmp_path: Path) -> None:
    """The next agent calls the hook again, and only then is the release ready."""
    hang = 'mkdir "$0.first" 2>/dev/null && { echo $$ > "$0.pid"; exec sleep 120; }\n'
    hook = a_script(tmp_path / "hook", hang + HOOK)
    pid = tmp_path / "hook.pid"
    with a_fleet(tmp_path, nodes=1, agent_arguments=("--hook", hook)) as fleet:
        try:
            prompt = str(a_prompt(fleet, 1))
            start = ("rollout", "start", "--new-service", "--no-watch", "--prompt", prompt)
            assert fleet.vctl(*start).code == 0
            fleet.until(lambda: pid.exists() and bool(pid.read_text()))
            assert fleet.rollout().phase is RolloutPhase.PREPARING

            fleet.dev.kill("n1", "agent")
            fleet.dev.restart("n1", "agent")

            fleet.until_phase(RolloutPhase.CONVERGED)
            assert [("load", 1)] == [(event, release) for event, release, _ in told(fleet)]
            assert served(fleet, "n1") == (1, "prompt=1", "prompt 1")
        finally:
            with suppress(OSError, ValueError):
                os.kill(int(pid.read_text()), signal.SIGKILL)
