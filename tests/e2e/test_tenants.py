"""Two tenants on one fleet of real programs: keys, a hand-over, break-glass, and what is told."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import SERVICE, Fleet, a_fleet

pytestmark = [pytest.mark.e2e, pytest.mark.etcd, pytest.mark.torch, pytest.mark.xdist_group("live")]

ACME, BLUE = "sk-acme-0123456789abcdef", "sk-blue-0123456789abcdef"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes: `support` of acme and `chat` of blue; their gateways ask for keys."""
    folder = tmp_path_factory.mktemp("fleet")
    keys = folder / "api-keys"
    keys.write_text(_line("acme", ACME) + _line("blue", BLUE))
    with a_fleet(folder, nodes=2) as made:
        for node in made.dev.nodes:
            _restart_gateway(made, node)
        for service, tenant, adapter in ((SERVICE, "acme", "v1"), ("chat", "blue", "v2")):
            said = made.vctl(
                *("rollout", "start", "--service", service, "--new-service", "--tenant", tenant),
                *("--adapter", str(made.adapter(adapter))),
            )
            assert said.code == 0, said
        yield made


def _line(tenant: str, key: str) -> str:
    command = [sys.executable, "-m", "vctl_agent.gateway", "hash-key", tenant]
    return subprocess.run(command, input=key, capture_output=True, check=True, text=True).stdout


def _restart_gateway(fleet: Fleet, node: str) -> None:
    keys = {"VCTL_GATEWAY_API_KEYS_FILE": str(fleet.folder / "api-keys")}
    fleet.dev.restart(node, "gateway", more_env=keys)
    fleet.until(lambda: fleet.dev.read().present()[node].checks_keys is True)


def ask(fleet: Fleet, node: str, model: str, key: str = "") -> tuple[int, str]:
    """Return the status, and the release or the error's code."""
    body = {"model": model, "prompt": "Hello", "max_tokens": 2, "temperature": 0}
    request = urllib.request.Request(
        f"{fleet.dev.gateway_urls[node]}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {key}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["x-vctl-release"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["code"]


def test_each_tenant_reaches_its_own_and_nothing_else(fleet: Fleet) -> None:
    """On every node, also where the release is loaded and its gateway just started."""
    for node in fleet.dev.nodes:
        assert (200, "1") == ask(fleet, node, SERVICE, ACME)
        assert (200, "1") == ask(fleet, node, "chat", BLUE)
        assert (404, "model_not_found") == ask(fleet, node, "chat", ACME)
        assert (404, "model_not_found") == ask(fleet, node, "nothing", ACME)
        assert (401, "invalid_api_key") == ask(fleet, node, SERVICE)


def test_tenants_outlive_a_restart_with_etcd_away(fleet: Fleet) -> None:
    """What etcd had said is on disk."""
    etcd = fleet.dev.program("", "etcd")
    etcd.kill()
    try:
        keys = {"VCTL_GATEWAY_API_KEYS_FILE": str(fleet.folder / "api-keys")}
        fleet.dev.restart("n1", "gateway", more_env=keys)
        fleet.until(lambda: _asked(fleet, SERVICE, ACME) == (200, "1"))
        assert (404, "model_not_found") == ask(fleet, "n1", "chat", ACME)
        assert (200, "1") == ask(fleet, "n1", "chat", BLUE)
    finally:
        etcd.start()
    fleet.until(lambda: fleet.dev.read().present().keys() == {"n1", "n2"})


def _asked(fleet: Fleet, model: str, key: str) -> tuple[int, str]:
    try:
        return ask(fleet, "n1", model, key)
    except OSError:  # it is starting
        return 0, ""


def test_status_and_explain_tell_of_tenants(fleet: Fleet) -> None:
    """A tenant's own, and what a key of it would get."""
    said = fleet.vctl("status", "--tenant", "acme")
    assert (0, True, False) == (said.code, SERVICE in said.out, "chat" in said.out), said
    said = fleet.vctl("route", "explain", "--tenant", "blue")
    assert (1, True) == (said.code, said.out.startswith("refused with 404: ")), said
    assert fleet.vctl("route", "explain", "--tenant", "acme").code == 0


def test_break_glass_shows_in_the_status_until_it_is_cleared(fleet: Fleet) -> None:
    """Root's word on one node, told by its agent's report."""
    state = fleet.folder / "nodes" / "n2" / "gateway"
    _override(state, "--release", "1", "--reason", "a drill")
    fleet.until(lambda: "BREAK-GLASS: support is served by release 1 on n2" in fleet.stand())
    assert "BREAK-GLASS" in fleet.vctl("route", "explain").out
    _override(state, "--clear")
    fleet.until(lambda: "BREAK-GLASS" not in fleet.stand())


def _override(state: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "vctl_agent.gateway", "override", "--state", str(state)]
    subprocess.run([*command, "--service", SERVICE, *arguments], check=True, capture_output=True)


def test_service_that_is_handed_over_answers_its_new_tenant_only(fleet: Fleet) -> None:
    """Without a restart, and with the caches of neither."""
    said = fleet.vctl("service", "set", "chat", "--tenant", "acme", "--reason", "bought")
    assert said.code == 0, said
    fleet.until(lambda: all(ask(fleet, n, "chat", ACME)[0] == 200 for n in fleet.dev.nodes))
    assert (404, "model_not_found") == ask(fleet, "n1", "chat", BLUE)
    assert "chat is of the tenant acme from now on" in fleet.vctl("events").out
