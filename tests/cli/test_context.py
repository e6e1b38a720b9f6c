"""Where a command acts: option, variable, context, default; in this order."""

from pathlib import Path

import pytest

from vctl_cli.context import Target, required_service, resolve
from vctl_cli.options import Shared
from vctl_plans.errors import PlanError, SettingsError

CONFIG = """\
current-context: eu
contexts:
  eu: {fleet: eu-fleet, endpoints: [http://a:2379, http://b:2379], service: support}
  us: {fleet: us-fleet, endpoints: http://c:2379}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def endpoints(target: Target) -> list[str]:
    return [endpoint.url for endpoint in target.settings.parsed_endpoints]


def test_defaults_where_nothing_is_said(tmp_path: Path):
    target = resolve(Shared(), {}, tmp_path / "none")
    assert (target.keys.fleet, endpoints(target)) == ("default", ["http://127.0.0.1:2379"])
    assert (target.service, target.timeout_s) == ("", None)


def test_current_context_is_used(config: Path):
    target = resolve(Shared(), {}, config)
    assert (target.keys.fleet, target.service) == ("eu-fleet", "support")
    assert endpoints(target) == ["http://a:2379", "http://b:2379"]


def test_variable_wins_over_context_and_option_over_both(config: Path):
    env = {"VCTL_FLEET": "x", "ETCDCTL_ENDPOINTS": "http://d:2379"}
    target = resolve(Shared(), env, config)
    assert (target.keys.fleet, endpoints(target)) == ("x", ["http://d:2379"])
    nearer = resolve(Shared(fleet="y", endpoints="http://e:1"), env, config)
    assert (nearer.keys.fleet, endpoints(nearer)) == ("y", ["http://e:1"])


def test_context_is_chosen_by_option_or_variable(config: Path):
    assert resolve(Shared(context="us"), {}, config).keys.fleet == "us-fleet"
    assert resolve(Shared(), {"VCTL_CONTEXT": "us"}, config).keys.fleet == "us-fleet"


def test_unknown_context_is_refused_with_the_closest(config: Path):
    with pytest.raises(SettingsError) as refusal:
        resolve(Shared(context="uss"), {}, config)
    assert "has no context 'uss'" in refusal.value.message
    assert refusal.value.hint == "did you mean 'us'?"


def test_configuration_with_a_mistake_is_named(config: Path):
    config.write_text("contexts: {eu: {flet: x}}")
    with pytest.raises(SettingsError, match="flet"):
        resolve(Shared(), {}, config)


@pytest.mark.parametrize(("given", "seconds"), [("30s", 30.0), ("1h30m", 5400.0), ("0.5", 0.5)])
def test_timeout_is_a_duration_and_bounds_the_store_too(given: str, seconds: float):
    target = resolve(Shared(timeout=given), {}, Path("none"))
    assert seconds == target.timeout_s
    assert target.settings.budget_s <= max(seconds, 0.1) + 1e-9 or seconds > 7


def test_service_is_required_by_those_who_need_one():
    with pytest.raises(PlanError, match="which service"):
        required_service("", resolve(Shared(), {}, Path("none")))
    assert required_service("a", resolve(Shared(), {"VCTL_SERVICE": "b"}, Path("none"))) == "a"
