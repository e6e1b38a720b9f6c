"""What may die under load without a request noticing."""

import urllib.request

import pytest

from tests.e2e.support import Fleet, Load, ask

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.xdist_group("two"),
]


def test_agent_killed_and_restarted_under_load_costs_no_request(fleet: Fleet) -> None:
    """The gateway serves on the agent's last word, and the next agent's first word is the same."""
    stable = fleet.stable()
    load = Load(list(fleet.dev.gateway_urls.values()), max_tokens=16)
    with load.running(each=4):
        load.wait_for(20)
        for node in fleet.dev.nodes:
            fleet.dev.kill(node, "agent")
        load.wait_for(40)
        fleet.restart_agents(*fleet.dev.nodes)
        load.wait_for(40)

    assert load.failures == []
    assert {stable} == {release for release, _ in load.answers}


def test_rollback_reaches_gateways_whose_agents_are_dead(fleet: Fleet) -> None:
    """Gateways watch the route themselves: traffic moves though no agent lives."""
    before = fleet.stable()
    said = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter(fleet.another())))
    assert said.code == 0, said
    for node in fleet.dev.nodes:
        fleet.dev.kill(node, "agent")

    said = fleet.vctl("--timeout", "3s", "rollback", "--now")

    assert said.code == 5, said
    load = Load(list(fleet.dev.gateway_urls.values()))
    with load.running(each=1):
        load.wait_for(10)
    assert load.failures == []
    assert {before} == {release for release, _ in load.answers}
    for node in fleet.dev.nodes:
        fleet.dev.restart(node, "agent")
    assert fleet.vctl("rollout", "watch").code == 0


def test_restarted_engine_is_loaded_again(fleet: Fleet) -> None:
    """All that it held is gone with its process; the node brings it back by itself."""
    release = fleet.service().stable
    assert release is not None
    fleet.dev.restart("n1", "engine")

    def holds() -> bool:
        try:
            with urllib.request.urlopen(f"{fleet.dev.engine_urls['n1']}/v1/models") as found:
                return release.engine_name in found.read().decode()
        except OSError:
            return False

    def serves() -> bool:
        try:
            return ask(fleet.dev.gateway_urls["n1"])[0] == release.number
        except (AssertionError, OSError):
            return False

    assert not holds(), "an engine that has just started holds nothing"
    fleet.until(holds, within_s=60)
    fleet.until(serves)
