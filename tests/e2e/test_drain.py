"""A node is drained under load, rolled past, restarted, and brought back: nobody notices."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.support import Fleet, Load, a_fleet, ask
from tests.e2e.three.test_hops import sent_by

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("drain"),
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes that serve release 1."""
    with a_fleet(tmp_path_factory.mktemp("fleet"), nodes=2) as made:
        said = made.vctl("rollout", "start", "--new-service", "--adapter", str(made.adapter("v1")))
        assert said.code == 0, said
        yield made


def drain_of(fleet: Fleet, node: str) -> str:
    """Return what `vctl nodes` says of a drain."""
    said = fleet.vctl("nodes", node, "-o", "json")
    assert said.code == 0, said
    return str(json.loads(said.out)["nodes"][0]["drain"])


def test_a_node_is_drained_and_comes_back_under_load(fleet: Fleet) -> None:
    """Through a rollout, and restarts of its agent and gateway, without one failed request."""
    load = Load([fleet.dev.gateway_urls["n1"], fleet.dev.gateway_urls["n2"]])
    with load.running(each=2):
        load.wait_for(20)
        said = fleet.vctl("node", "drain", "n1", "--wait", "--reason", "kernel", "--timeout", "30s")
        assert (said.code, said.out) == (0, "n1\n"), (said, fleet.logs())
        assert "node n1: drained" in said.err
        again = fleet.vctl("node", "drain", "n1")
        assert again.code == 0
        assert "drained already by" in again.err
        before = sent_by(fleet, "n1")
        load.wait_for(40)
        assert sent_by(fleet, "n1") > before

        done = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter("v2")))
        assert done.code == 0, (done, fleet.logs())
        load.wait_for(40)
        fleet.restart_agents("n1")
        load.wait_for(20)
        assert drain_of(fleet, "n1") == "drained"
        seen = fleet.vctl("status")
        assert "drained by" in seen.out
        assert "(kernel)" in seen.out

        back = fleet.vctl("node", "undrain", "n1", "--wait", "--timeout", "30s")
        assert back.code == 0, (back, fleet.logs())
        load.wait_for(20)
    assert load.failures == []
    assert drain_of(fleet, "n1") == ""
    own = sent_by(fleet, "n1")
    release, _ = ask(fleet.dev.gateway_urls["n1"])
    assert (release, sent_by(fleet, "n1")) == (2, own)


def test_a_node_that_is_alone_serves_on_and_says_why(fleet: Fleet) -> None:
    fleet.dev.kill("n2", "agent")
    fleet.dev.kill("n2", "gateway")
    fleet.until_gone("n2")
    said = fleet.vctl("node", "drain", "n1", "--wait", "--timeout", "4s")
    assert said.code == 5, said
    assert "no other node that its gateway can reach is ready for release 2" in said.err
    assert ask(fleet.dev.gateway_urls["n1"])[0] == 2
    fleet.dev.restart("n2", "gateway")
    fleet.restart_agents("n2")
    fleet.until(lambda: drain_of(fleet, "n1") == "drained")
    assert fleet.vctl("node", "undrain", "n1", "--wait", "--timeout", "20s").code == 0


def test_names_that_are_none_are_refused_with_what_was_meant(fleet: Fleet) -> None:
    for verb in ("drain", "undrain"):
        said = fleet.vctl("node", verb, "n11")
        assert (said.code, said.out) == (2, "")
        assert "there is no node 'n11'" in said.err
