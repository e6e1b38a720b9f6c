"""A live fleet removes what nothing needs, while it serves, and never what its engines may read."""

import json
import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.support import Fleet, Load, a_fleet, ask

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("gc"),
]

KEEP = 2
ROLLOUTS = 5
ENGINE_STARTS_S = 180
NODES = ("n1", "n2")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes that serve release 1 and keep the two newest releases."""
    with a_fleet(
        tmp_path_factory.mktemp("fleet"), nodes=2, agent_arguments=("--keep-artifacts", str(KEEP))
    ) as made:
        for n in range(1, ROLLOUTS + 1):
            made.new_adapter(f"a{n}", n)
        roll_out(made, "a1")
        yield made


def on_disk(fleet: Fleet, node: str) -> set[int]:
    """Return the releases whose adapters lie on a node's disk, in whole or part; 0: of none."""
    numbers = {
        release.adapter.root.removeprefix("b3:"): number
        for number, release in fleet.service().releases.items()
        if release.adapter
    }
    found = (fleet.folder / "nodes" / node / "agent" / "artifacts").iterdir()
    names = (path.name.strip(".").partition("-")[2] or path.name for path in found)
    return {numbers.get(name, 0) for name in names}


def roll_out(fleet: Fleet, name: str) -> None:
    said = fleet.vctl("rollout", "start", "--new-service", "--adapter", str(fleet.adapter(name)))
    assert said.code == 0, said


def test_five_rollouts_leave_no_more_than_the_newest_and_what_serves(fleet: Fleet) -> None:
    """Not while the engine that was given them runs; once it was restarted, by themselves."""
    with Load(list(fleet.dev.gateway_urls.values())).running(each=1) as load:
        for number in range(2, ROLLOUTS + 1):
            roll_out(fleet, f"a{number}")
        load.wait_for(5)
        dry = fleet.vctl("-o", "json", "node", "gc", "--dry-run", "--timeout", "30s")
        real = fleet.vctl("-o", "json", "node", "gc", "--timeout", "30s")
        load.wait_for(10)

    assert load.failures == []
    assert (0, 0) == (dry.code, real.code), (dry, real)
    for said in (dry, real):
        nodes = json.loads(said.out)["nodes"]
        assert list(NODES) == [node["node"] for node in nodes]
        assert [0, 0] == [node["count"] for node in nodes], "its engine was given each of them"
        stays = {"routed": 2, "this run of the engine was given it": 3}
        assert [stays, stays] == [node["reasons"] for node in nodes]
    assert [set(range(1, ROLLOUTS + 1))] * 2 == [on_disk(fleet, node) for node in NODES]

    live = fleet.service().current_route.serving | set(fleet.service().current_route.instant)
    for node in NODES:
        fleet.dev.restart(node, "engine")
    fleet.until(
        lambda: all(len(on_disk(fleet, n)) <= KEEP + len(live) for n in NODES),
        within_s=ENGINE_STARTS_S,
    )
    fleet.until(lambda: all(live <= on_disk(fleet, node) for node in NODES))
    fleet.until(lambda: _serves(fleet), within_s=ENGINE_STARTS_S)
    assert [{4, 5}] * 2 == [on_disk(fleet, node) for node in NODES]


def _serves(fleet: Fleet) -> bool:
    try:
        return {ask(url)[0] for url in fleet.dev.gateway_urls.values()} == {ROLLOUTS}
    except (AssertionError, OSError):
        return False


def test_collecting_while_serving_costs_no_request(fleet: Fleet) -> None:
    """What no release names goes; what went before is brought anew when it is wanted again."""
    for node in NODES:
        _litter(fleet, node, 20)
    with Load(list(fleet.dev.gateway_urls.values())).running() as load:
        load.wait_for(10)
        said = fleet.vctl("node", "gc", "n1", "--timeout", "30s")
        assert "n1: removed 20 artifacts" in said.out, said
        roll_out(fleet, "a1")
        load.wait_for(10)

    assert load.failures == []
    assert {ROLLOUTS, ROLLOUTS + 1} == {release for release, _ in load.answers}
    fleet.until(lambda: all(on_disk(fleet, node) == {4, 5, 6} for node in NODES))


def _litter(fleet: Fleet, node: str, count: int) -> None:
    """Put adapters on a node's disk that no release names."""
    artifacts = fleet.folder / "nodes" / node / "agent" / "artifacts"
    for n in range(count):
        shutil.copytree(fleet.adapter("a2"), artifacts / f"{n:064x}")


def test_doctor_sees_a_node_whose_engine_died(fleet: Fleet) -> None:
    """And finds nothing wrong before: engines listen on loopback, and somebody conducts."""
    fleet.until(lambda: _doctor(fleet) == (0, []), within_s=ENGINE_STARTS_S)
    fleet.dev.kill("n2", "engine")
    fleet.until(lambda: _doctor(fleet) == (1, [("node n2", "its engine does not answer")]))
    fleet.dev.restart("n2", "engine")
    fleet.until(lambda: _doctor(fleet) == (0, []), within_s=ENGINE_STARTS_S)


def _doctor(fleet: Fleet) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit code, and the errors that were found."""
    said = fleet.vctl("-o", "json", "doctor")
    found = json.loads(said.out)["findings"]
    return said.code, [(f["where"], f["what"]) for f in found if f["severity"] == "error"]
