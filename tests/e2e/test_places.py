"""Engines with few places for adapters: rollout after rollout, and back, on live fleets.

With two places what is retained gives way, and no request notices. With one place on each of some
nodes the releases are exchanged a few nodes at a time; on a single node nothing serves meanwhile,
which the plan must allow, and clients are told to come again.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.support import SERVICE, Fleet, Load, a_fleet, ask
from vctl_plans.phase import NodePhase, RolloutPhase

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("places"),
]


@contextmanager
def narrow(folder: Path, *, places: int, nodes: int) -> Iterator[Fleet]:
    """Run a fleet whose engines hold so many adapters; release 1 serves."""
    arguments = ("--max-loras", str(places))
    with a_fleet(folder, nodes=nodes, engine_arguments=arguments) as fleet:
        fleet.until(lambda: len(told(fleet)) == nodes)
        said = start(fleet, "v1", "--new-service")
        assert said.code == 0, said
        yield fleet


def told(fleet: Fleet) -> list[int | None]:
    """Return the places that the engines tell of."""
    records = fleet.dev.read().records.values()
    return [record.facts.max_adapters for record in records if record.facts]


def start(fleet: Fleet, adapter: str, *more: str):
    return fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter(adapter)), *more)


def held(fleet: Fleet) -> list[int]:
    """Return how many adapters each engine lists."""
    reports = fleet.dev.read().present().values()
    return [report.adapters or 0 for report in reports]


def urls(fleet: Fleet) -> list[str]:
    return list(fleet.dev.gateway_urls.values())


def test_two_places_are_enough_for_three_rollouts_and_a_rollback(tmp_path: Path) -> None:
    """With the defaults, under requests, and at no time are there more adapters than places."""
    with narrow(tmp_path, places=2, nodes=2) as fleet:
        load = Load(urls(fleet))
        with load.running():
            for number, adapter in ((2, "v2"), (3, "v3"), (4, "v1")):
                load.wait_for(10)
                said = start(fleet, adapter, "--reason", adapter)
                assert said.code == 0, said
                assert fleet.stable() == number
                assert (number - 1,) == fleet.service().current_route.instant
                assert max(held(fleet)) <= 2
                gave_way = f"{number - 2}, kept for an instant rollback, gives way to it"
                assert (gave_way in said.out) == (number > 2)
            said = fleet.vctl("rollback", "--now")
            assert said.code == 0, said
            load.wait_for(10)
        assert [] == load.failures
        assert fleet.stable() == 3


def test_one_place_on_each_of_two_nodes_is_exchanged_and_no_request_notices(
    tmp_path: Path,
) -> None:
    """Refused first, with the setting that would help; then allowed, and so is the way back."""
    with narrow(tmp_path, places=1, nodes=2) as fleet:
        refused = start(fleet, "v2")
        assert refused.code == 2
        assert "--max-loras 2" in refused.err
        assert "--allow-downtime" in refused.err

        load = Load(urls(fleet))
        with load.running(each=1):
            for number, adapter in ((2, "v2"), (3, "v3"), (4, "v1")):
                said = start(fleet, adapter, "--allow-downtime")
                assert said.code == 0, said
                assert "they unload what serves before they load it" in said.err + said.out
                assert fleet.stable() == number
                assert held(fleet) == [1, 1]
            refused = fleet.vctl("rollback", "--now")
            assert refused.code == 2
            said = fleet.vctl("rollback", "--now", "--allow-downtime")
            assert said.code == 0, said
            load.wait_for(4)
        assert [] == load.failures
        assert fleet.stable() == 3


def test_one_place_on_one_node_answers_503_while_it_changes(tmp_path: Path) -> None:
    """Clients are told to come again; nothing is answered by another release than it says."""
    with narrow(tmp_path, places=1, nodes=1) as fleet:
        load = Load(urls(fleet))
        with load.running(each=1):
            load.wait_for(3)
            said = start(fleet, "v2", "--allow-downtime")
            assert said.code == 0, said
            assert "nothing serves meanwhile" in said.err + said.out
            load.wait_for(3)
        assert all(re.search(r": 503 ", failure) for failure in load.failures), load.failures
        assert (2, 1) == (fleet.stable(), len(held(fleet)))
        assert 2 == ask(urls(fleet)[0])[0]


def test_bad_adapter_is_refused_and_leaves_the_other_service_alone(tmp_path: Path) -> None:
    """The engine takes ranks up to 2; the reason is what `vctl status` says."""
    arguments = ("--max-loras", "4", "--max-lora-rank", "64")
    with a_fleet(tmp_path, nodes=1, engine_arguments=arguments) as fleet:
        fleet.until(lambda: len(told(fleet)) == 1)
        assert start(fleet, "v1", "--new-service").code == 0
        broken = fleet.folder / "broken"
        broken.mkdir()
        for file in fleet.adapter("v2").iterdir():
            if file.name == "adapter_config.json":
                text = file.read_text().replace('"use_dora": false', '"use_dora": true')
                text = text if '"use_dora"' in text else text.replace("{", '{"use_dora": true,', 1)
                (broken / file.name).write_text(text)
            elif file.suffix == ".safetensors":
                (broken / file.name).write_bytes(file.read_bytes())

        said = fleet.vctl(
            "rollout", "start", "-s", "chat", "--new-service", "--adapter", str(broken)
        )

        assert said.code == 1, said
        assert "its adapter has DoRA, which torch does not take" in said.out
        report = fleet.dev.read().present()["n1"]
        mine = report.release(SERVICE, 1)
        assert mine is not None
        assert mine.phase is NodePhase.READY
        assert 1 == ask(urls(fleet)[0])[0]
        theirs = fleet.dev.read().services["chat"].rollout
        assert theirs is not None
        assert theirs.phase is RolloutPhase.FAILED
