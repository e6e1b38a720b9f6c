"""A node that does not hold what its gateway is asked for: peers answer, and nobody notices."""

import urllib.request

import pytest

from tests.e2e.support import SERVICE, Fleet, Load, ask
from vctl_plans.codec import decode
from vctl_plans.keys import Keys
from vctl_plans.peers import Peers
from vctl_plans.store.gateway import GatewayReader
from vctl_plans.store.settings import StoreSettings

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("three"),
]


def peers_of(fleet: Fleet, number: int) -> set[str]:
    """Return the nodes that the conductor names for a release."""
    key = Keys(fleet.dev.options.fleet).peers(SERVICE)
    settings = StoreSettings(endpoints=(fleet.dev.layout.endpoint,))
    with GatewayReader(settings, budget_s=2.0) as reader:
        found = reader.get(key)
    digest = fleet.service().releases[number].digest
    peers = decode(found.value, Peers) if found else Peers(service=SERVICE)
    return {peer.node for peer in peers.of(number, digest)}


def sent_by(fleet: Fleet, node: str) -> int:
    """Return how many requests a gateway has had served by peers."""
    with urllib.request.urlopen(f"{fleet.dev.layout.url(node, 'gateway-admin')}/metrics") as found:
        lines = found.read().decode().splitlines()
    served = [
        line
        for line in lines
        if line.startswith("vctl_gateway_hops_total{")
        and 'direction="sent"' in line
        and 'outcome="served"' in line
    ]
    return sum(int(float(line.rpartition(" ")[2])) for line in served)


def test_nothing_is_written_while_every_node_is_ready(fleet: Fleet) -> None:
    assert set() == peers_of(fleet, fleet.stable())


def test_node_whose_engine_is_gone_answers_by_its_peers_until_it_is_back(fleet: Fleet) -> None:
    stable = fleet.stable()
    fleet.dev.kill("n1", "engine")
    fleet.until(lambda: peers_of(fleet, stable) == {"n2", "n3"})
    fleet.until(lambda: answers(fleet, "n1"))
    before = sent_by(fleet, "n1")
    load = Load([fleet.dev.gateway_urls["n1"]])
    with load.running(each=4):
        load.wait_for(60)
    assert [] == load.failures
    assert {stable} == {release for release, _ in load.answers}
    assert 1 == len({text for _, text in load.answers})
    assert before + len(load.answers) == sent_by(fleet, "n1")

    load = Load([fleet.dev.gateway_urls["n1"]])
    with load.running(each=2):  # also while the engine starts, and holds nothing at first
        fleet.dev.restart("n1", "engine")
        fleet.until(lambda: holds(fleet, "n1", stable), within_s=60)
        load.wait_for(20)
    assert [] == load.failures
    fleet.until(lambda: not passes_on(fleet, "n1"))


def holds(fleet: Fleet, node: str, number: int) -> bool:
    """Whether a node's engine holds a release."""
    name = fleet.service().releases[number].engine_name
    try:
        with urllib.request.urlopen(f"{fleet.dev.engine_urls[node]}/v1/models") as found:
            return name in found.read().decode()
    except OSError:
        return False


def answers(fleet: Fleet, node: str) -> bool:
    """Whether a gateway answers now."""
    try:
        return bool(ask(fleet.dev.gateway_urls[node]))
    except (AssertionError, OSError):
        return False


def passes_on(fleet: Fleet, node: str) -> bool:
    """Whether a gateway's answer is a peer's."""
    before = sent_by(fleet, node)
    return not answers(fleet, node) or sent_by(fleet, node) > before


def test_node_whose_agent_is_dead_answers_for_a_release_it_never_loaded(fleet: Fleet) -> None:
    """Its gateway sees the new route, and its engine holds the old release only."""
    fleet.dev.kill("n3", "agent")
    fleet.until(lambda: len(fleet.dev.read().present()) == 2)
    said = fleet.vctl("rollout", "start", "--adapter", str(fleet.new_adapter("hopped", 21)))
    assert said.code == 0, said
    new = fleet.stable()
    fleet.until(lambda: peers_of(fleet, new) == {"n1", "n2"})
    fleet.until(lambda: answers(fleet, "n3"))
    expected = ask(fleet.dev.gateway_urls["n1"])
    load = Load(list(fleet.dev.gateway_urls.values()))
    with load.running(each=2):
        load.wait_for(60)
    assert [] == load.failures
    assert {expected} == set(load.answers)
    assert new == expected[0]

    fleet.dev.restart("n3", "agent")
    fleet.until(lambda: not passes_on(fleet, "n3"))
