"""Direct mode on live engines: clients call them by one name, and no gateway is between."""

from collections.abc import Iterator

import pytest

from tests.e2e.engines import DirectLoad, ask_engine, listed
from tests.e2e.support import SERVICE, Fleet, a_fleet
from vctl_plans.capability import Capability, lacking
from vctl_plans.phase import RolloutPhase

pytestmark = [pytest.mark.e2e, pytest.mark.etcd, pytest.mark.torch, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes without a gateway that serve release 1."""
    folder = tmp_path_factory.mktemp("fleet")
    with a_fleet(folder, nodes=2, agent_arguments=("--gateway", "none")) as made:
        records = made.dev.read().records.values()
        if any(lacking(record.facts, {Capability.REPLACE}) for record in records):
            pytest.skip("this engine cannot give a name another adapter")
        said = made.vctl(
            *("rollout", "start", "--new-service", "--direct", "--adapter"),
            str(made.adapter("v1")),
        )
        assert said.code == 0, said
        yield made


def _root(fleet: Fleet, number: int) -> str:
    adapter = fleet.service().releases[number].adapter
    assert adapter is not None
    return adapter.root.removeprefix("b3:")


def _hold(fleet: Fleet, number: int) -> bool:
    """Whether every engine lists the service's name, from the release's verified copy alone."""
    names = listed(fleet)
    return all(
        set(each) == {SERVICE} and each[SERVICE].endswith(_root(fleet, number)) for each in names
    )


def test_one_name_moves_from_release_to_release_and_back(fleet: Fleet) -> None:
    """Nobody who asks an engine meanwhile is refused, and no answer is of both."""
    engines = list(fleet.dev.engine_urls.values())
    first = ask_engine(engines[0])
    assert _hold(fleet, 1)
    with DirectLoad(engines).running(each=1) as load:
        load.wait_for(5)
        said = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter("v2")))
        assert said.code == 0, said
        assert "release 2 is staged on 2 of 2 nodes: traffic moves to it" in said.out
        assert _hold(fleet, 2)
        second = ask_engine(engines[0])
        assert [second, second] == [ask_engine(url) for url in engines]
        load.wait_for(5)

        back = fleet.vctl("rollback", "--now")
        assert back.code == 0, back
        assert _hold(fleet, 1)
        load.wait_for(5)

    assert first != second
    assert [] == load.failures
    assert {first, second} == set(load.answers)
    assert (2,) == fleet.service().current_route.revoked


def test_adapter_that_fails_its_probe_takes_the_name_nowhere_for_long(fleet: Fleet) -> None:
    """Each node goes back by itself; the rollout waits for a person, with the reason."""
    dud = fleet.folder / "models" / "adapters" / "dud"
    dud.mkdir()
    for file in fleet.adapter("v3").iterdir():
        content = file.read_bytes()
        if file.suffix == ".safetensors":
            begin = 8 + int.from_bytes(content[:8], "little")
            content = content[:begin] + bytes(len(content) - begin)
        (dud / file.name).write_bytes(content)
    before = fleet.stable()

    said = fleet.vctl("rollout", "start", "--adapter", str(dud))

    assert said.code == 4, said
    assert "exactly as the base model" in fleet.rollout().sentence
    fleet.until(lambda: _hold(fleet, before))
    assert fleet.vctl("rollout", "abort").code == 0
    fleet.until_phase(RolloutPhase.ROLLED_BACK)
    assert (before, True) == (fleet.stable(), _hold(fleet, before))


def test_engine_that_is_restarted_gets_its_release_again(fleet: Fleet) -> None:
    """The agent sees it, and acts on the route as before."""
    right = ask_engine(fleet.dev.engine_urls["n1"])
    fleet.dev.restart("n1", "engine")
    fleet.until(lambda: _is_asked(fleet, right), within_s=110)


def _is_asked(fleet: Fleet, right: tuple[int, str]) -> bool:
    try:
        return ask_engine(fleet.dev.engine_urls["n1"]) == right and _hold(fleet, fleet.stable())
    except OSError:
        return False


def test_what_needs_a_gateway_is_refused(fleet: Fleet) -> None:
    """A split of traffic when it is asked for; another service by the nodes, at once."""
    weighted = fleet.vctl(
        "rollout", "start", "--adapter", str(fleet.adapter("v3")), "--steps", "10,100"
    )
    assert weighted.code == 2
    other = fleet.vctl(
        *("rollout", "start", "--service", "other", "--new-service"),
        *("--adapter", str(fleet.adapter("v3"))),
    )
    assert other.code == 1
    assert "has no gateway" in other.out


def test_service_is_let_go_as_it_is(fleet: Fleet) -> None:
    """Engines hold it by its own name already: nothing is loaded, nothing moves."""
    right = ask_engine(fleet.dev.engine_urls["n2"])
    said = fleet.vctl("--yes", "service", "eject", SERVICE)
    assert said.code == 0, said
    assert _hold(fleet, fleet.service().ejected)
    assert right == ask_engine(fleet.dev.engine_urls["n2"])
