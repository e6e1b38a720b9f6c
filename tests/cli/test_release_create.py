"""`vctl release create`."""

from pathlib import Path

import pytest

from tests.builders import SERVICE
from tests.cli.support import Vctl, a_fleet
from tests.weights import building
from vctl_plans import weights
from vctl_plans.phase import Component


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return building.adapter(tmp_path / "v2")


def test_release_is_written_and_nothing_moves(adapter: Path):
    vctl = a_fleet()
    said = vctl("release", "create", SERVICE, "--adapter", str(adapter), "--reason", "try it")
    service = vctl.service()
    assert (said.code, said.out) == (0, "support: release 2 (adapter=2)\n")
    assert weights.scan(adapter).root == service.releases[2].components[Component.ADAPTER].root
    assert (service.current_route.stable, service.rollout) == (1, None)


def test_service_must_exist_or_be_said_to_be_new(adapter: Path):
    vctl = Vctl()
    refused = vctl("release", "create", SERVICE, "--adapter", str(adapter))
    assert (refused.code, refused.out) == (2, "")
    assert "--new-service" in refused.err
    made = vctl("release", "create", SERVICE, "--adapter", str(adapter), "--new-service")
    assert (made.code, made.out) == (0, "support: release 1 (adapter=1)\n")


def test_root_must_be_one_and_must_match(adapter: Path):
    vctl = a_fleet()
    arguments = ("release", "create", SERVICE, "--adapter", str(adapter), "--root")
    assert vctl(*arguments, "b3:1").code == 2
    assert vctl(*arguments, f"b3:{'0' * 64}").code == 1
    assert list(vctl.service().releases) == [1]


def test_name_of_a_service_is_checked(adapter: Path):
    said = a_fleet()("release", "create", "Sup port", "--adapter", str(adapter))
    assert (said.code, said.out) == (2, "")
    assert "service: 'Sup port' is not a name" in said.err
