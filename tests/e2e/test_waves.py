"""Another base model on a live fleet: a few nodes at a time, and no request notices.

Every answer is judged by what the release that it claims must say, in text and log-probabilities:
the same adapter answers otherwise on another base, so a node that served while its base was not the
release's, or from a cache of the other one, would be told.
"""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.support import SERVICE, Fleet, a_fleet
from vctl_cli.demo.clients import Clients
from vctl_cli.demo.oracle import Oracle
from vctl_cli.demo.tally import Said, count
from vctl_cli.programs import command_of
from vctl_plans.base import base_root
from vctl_plans.phase import NodePhase, RolloutPhase

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("waves"),
]

NODES = 4
Right = dict[int, Sequence[Said]]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Four nodes that serve release 1: adapter v1 on the base that their engines start with."""
    with a_fleet(tmp_path_factory.mktemp("fleet"), nodes=NODES) as made:
        said = made.vctl("rollout", "start", "--new-service", "--adapter", str(made.adapter("v1")))
        assert said.code == 0, said
        yield made


@pytest.fixture(scope="module")
def bases(fleet: Fleet) -> dict[str, Path]:
    """The base that engines start with, and another."""
    other = fleet.dev.models.base.parent / "other-base"
    subprocess.run([command_of("vctl-engine"), "make-base", str(other), "--seed", "11"], check=True)
    return {"": fleet.dev.models.base, "other": other}


@pytest.fixture(scope="module")
def said_by(fleet: Fleet, bases: Mapping[str, Path]) -> dict[str, Sequence[Said]]:
    """What adapter v1 says on each base, worked out without server or cache."""
    adapters = {"v1": fleet.adapter("v1")}
    found: dict[str, Sequence[Said]] = {}
    for name, base in bases.items():
        folder = fleet.folder / f"oracle-{name}"
        folder.mkdir()
        oracle = Oracle(base, adapters, folder=folder, env=os.environ)
        found[name] = oracle.results()["v1"]
    assert found[""] != found["other"]
    return found


def right(fleet: Fleet, said_by: Mapping[str, Sequence[Said]]) -> Right:
    """Return what each release must say to each prompt."""
    releases = fleet.service().releases.values()
    return {r.number: said_by["other" if base_root(r) else ""] for r in releases}


class Watching:
    """Looks all the time how many nodes are ready for nothing that has traffic."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on)
        self.most_unready = 0
        self.looks = 0

    def _look_on(self) -> None:
        while not self._stop.wait(0.05):
            seen = self._fleet.dev.read()
            serving = seen.services[SERVICE].current_route.serving
            ready = [
                node
                for node, report in seen.present().items()
                if any(r.phase is NodePhase.READY and r.number in serving for r in report.releases)
            ]
            self.most_unready = max(self.most_unready, NODES - len(ready))
            self.looks += 1

    @contextmanager
    def running(self) -> Iterator["Watching"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()


@contextmanager
def under_load(fleet: Fleet, said_by: Mapping[str, Sequence[Said]]) -> Iterator[Clients]:
    """Ask all nodes all the time; afterwards every answer was right."""
    with Clients(SERVICE, fleet.dev.gateway_urls) as clients:
        assert clients.wait_for(lambda seen: len(seen) >= 2 * NODES, within_s=30)
        yield clients
        before = len(clients.answers)
        assert clients.wait_for(lambda seen: len(seen) >= before + 4 * NODES, within_s=30)
    assert [] == [f"{answer.node}: {answer.error}" for answer in clients.answers if answer.error]
    tally = count(clients.answers, right(fleet, said_by))
    assert (0, 0, 0) == (tally.errors, tally.wrong_release, tally.stale_cache), tally.examples
    assert tally.cached_tokens > 0


def held(fleet: Fleet) -> set[str]:
    """Return the roots of the bases that nodes say that they hold."""
    return {report.base for report in fleet.dev.read().present().values()}


def sentences(fleet: Fleet) -> str:
    return fleet.vctl("rollout", "history").out


def test_base_changes_by_waves_under_load(
    fleet: Fleet, bases: Mapping[str, Path], said_by: Mapping[str, Sequence[Said]]
) -> None:
    """No request fails, each is right, and never more than one node is missing."""
    before = fleet.stable()
    with under_load(fleet, said_by) as clients, Watching(fleet).running() as watching:
        said = fleet.vctl("rollout", "start", "--weights", str(bases["other"]), within_s=200)

    assert said.code == 0, said
    stable = fleet.service().stable
    assert stable is not None
    assert stable.number == before + 1
    assert {base_root(stable)} == held(fleet)
    assert watching.looks > 10
    assert watching.most_unready <= 1
    assert {before, stable.number} == {answer.release for answer in clients.answers}
    told = sentences(fleet)
    assert "1 of 4 nodes hold the base of release 2: 33.33 % of traffic moves to it" in told
    assert "converged (4/4) on release 2" in told


def test_rollback_after_the_end_goes_by_waves_in_reverse(
    fleet: Fleet, said_by: Mapping[str, Sequence[Said]]
) -> None:
    """The command says up front what it takes; release 2 serves on until the base is back."""
    with under_load(fleet, said_by), Watching(fleet).running() as watching:
        said = fleet.vctl("rollback", "--now", "--reason", "test", within_s=200)

    assert said.code == 0, said
    assert "no node holds its base: it is loaded by waves of 1 node; 2 serves on" in (
        said.out + said.err
    )
    assert {""} == held(fleet)
    assert watching.most_unready <= 1
    assert (1, (2,)) == (fleet.stable(), fleet.service().current_route.revoked)


def test_rollback_midway_returns_traffic_at_once(
    fleet: Fleet, bases: Mapping[str, Path], said_by: Mapping[str, Sequence[Said]]
) -> None:
    """Some nodes still hold the old base: the others follow, and no request fails."""
    with under_load(fleet, said_by):
        start = ("rollout", "start", "--weights", str(bases["other"]), "--no-watch")
        assert fleet.vctl(*start).code == 0
        number = fleet.rollout().to_release
        fleet.until(lambda: fleet.service().current_route.weight > 50, within_s=100)
        assert len(held(fleet)) == 2
        said = fleet.vctl("rollback", "--now", within_s=100)

    assert said.code == 0, said
    assert fleet.rollout().phase is RolloutPhase.ROLLED_BACK
    assert {""} == held(fleet)
    route = fleet.service().current_route
    assert (1, 0) == (route.stable, route.candidate)
    assert number in route.revoked


def test_base_that_no_engine_loads_moves_no_traffic(
    fleet: Fleet, bases: Mapping[str, Path], said_by: Mapping[str, Sequence[Said]]
) -> None:
    """The first node refuses it and is named; aborted, it serves again."""
    broken = bases["other"].with_name("broken-base")
    broken.mkdir()
    for file in bases["other"].iterdir():
        if file.suffix == ".json" and not file.name.startswith("vctl"):
            text = file.read_text().replace('"model_type": "llama"', '"model_type": "other"')
            (broken / file.name).write_text(
                text.replace('"model_type":"llama"', '"model_type":"x"')
            )
        elif file.suffix == ".safetensors":
            (broken / file.name).write_bytes(file.read_bytes())
    with under_load(fleet, said_by):
        said = fleet.vctl("rollout", "start", "--weights", str(broken), within_s=100)
        assert said.code == 4, said
        assert "which change to its base: " in said.out + said.err
        assert fleet.vctl("rollout", "abort").code in {0, 1, 3}
        fleet.until(lambda: held(fleet) == {""})

    assert fleet.rollout().phase is RolloutPhase.FAILED
    said = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter("v1")))
    assert said.code == 0, said


def test_killed_agents_and_conductors_go_on(
    fleet: Fleet, bases: Mapping[str, Path], said_by: Mapping[str, Sequence[Said]]
) -> None:
    """One after the other, while nodes change; an engine started again gets the base that serves.

    What was killed is started again at once, as a supervisor does.
    """
    adapter = ("--adapter", str(fleet.adapter("v1")))
    start = ("rollout", "start", "--weights", str(bases["other"]), *adapter, "--no-watch")
    with under_load(fleet, said_by):
        assert fleet.vctl(*start).code == 0
        number = fleet.rollout().to_release
        for node in fleet.dev.nodes:
            seq = fleet.rollout().seq
            fleet.until(lambda seq=seq: fleet.rollout().seq > seq, within_s=60)  # type: ignore[misc]
            fleet.dev.kill(node, "agent")
            fleet.dev.restart(node, "agent")
        fleet.until(lambda: fleet.rollout().phase.is_terminal, within_s=120)

    assert fleet.rollout().phase is RolloutPhase.CONVERGED, sentences(fleet)
    assert number == fleet.stable()
    fleet.dev.kill("n2", "engine")
    fleet.dev.restart("n2", "engine")
    root = base_root(fleet.service().stable)
    fleet.until(lambda: holds(fleet, "n2", number), within_s=60)
    assert {root} == held(fleet)
    with under_load(fleet, said_by):
        pass


def holds(fleet: Fleet, node: str, number: int) -> bool:
    """Whether a node says that it is ready for a release."""
    report = fleet.dev.read().present().get(node)
    found = report.release(SERVICE, number) if report else None
    return bool(found and found.phase is NodePhase.READY)
