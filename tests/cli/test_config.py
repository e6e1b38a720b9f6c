"""`vctl config` and `vctl rollout validate`: what needs no etcd."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.support import Vctl
from tests.cli.test_examples import EXAMPLES


@pytest.fixture
def vctl(tmp_path: Path) -> Vctl:
    return Vctl(env={"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "vctl" / "config.yaml"


def test_first_context_is_made_and_current(vctl: Vctl, file: Path):
    said = vctl("config", "set", "eu", "--fleet", "eu-1", "--endpoints", "http://e:2379")

    assert (0, "context eu made\n") == (said.code, said.err)
    assert {
        "current-context": "eu",
        "contexts": {"eu": {"fleet": "eu-1", "endpoints": "http://e:2379"}},
    } == yaml.safe_load(file.read_text())
    assert 0o600 == file.stat().st_mode & 0o777


def test_contexts_are_listed_and_chosen(vctl: Vctl):
    for name in ("eu", "us"):
        assert 0 == vctl("config", "set", name, "--fleet", f"{name}-1").code
    assert 0 == vctl("config", "use-context", "us").code

    said = vctl("config", "get-contexts", "-o", "json")
    listed = json.loads(said.out)["contexts"]
    assert [("eu", False), ("us", True)] == [(c["name"], c["is_current"]) for c in listed]
    assert "*  us" in vctl("config", "get-contexts").out


def test_set_changes_what_is_given_and_takes_away_what_is_named(vctl: Vctl, file: Path):
    vctl("config", "set", "eu", "--fleet", "eu-1", "--service", "support")
    said = vctl("config", "set", "eu", "--fleet", "eu-2", "--unset", "service")

    assert "context eu changed\n" == said.err
    assert {"fleet": "eu-2"} == yaml.safe_load(file.read_text())["contexts"]["eu"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("use-context", "ue"), "eu"),
        (("set", "us"), "--fleet"),
        (("set", "us", "--unset", "fleed"), "fleet, prefix, endpoints, service"),
        (("set", "Not A Name", "--fleet", "x"), "name"),
    ],
)
def test_wrong_commands_help_and_change_nothing(
    vctl: Vctl, file: Path, arguments: tuple[str, ...], word: str
):
    vctl("config", "set", "eu", "--fleet", "eu-1")
    before = file.read_bytes()
    said = vctl("config", *arguments)

    assert 2 == said.code
    assert word in said.err
    assert before == file.read_bytes()


def test_file_that_does_not_validate_is_left_as_it_is(vctl: Vctl, file: Path):
    file.parent.mkdir()
    file.write_text("contexts: [nonsense]\n")
    said = vctl("config", "set", "eu", "--fleet", "x")

    assert 0 != said.code
    assert str(file) in said.err
    assert "contexts: [nonsense]\n" == file.read_text()


def test_config_kept_elsewhere_stays_a_link(vctl: Vctl, file: Path, tmp_path: Path):
    kept = tmp_path / "dotfiles.yaml"
    kept.write_text("{}\n")
    file.parent.mkdir()
    file.symlink_to(kept)
    assert 0 == vctl("config", "set", "eu", "--fleet", "x").code

    assert file.is_symlink()
    assert "eu" in kept.read_text()


def test_without_any_context_it_says_how_to_make_one(vctl: Vctl):
    assert "vctl config set NAME --fleet F" in vctl("config", "get-contexts").out


def test_every_example_is_valid(vctl: Vctl):
    said = vctl("rollout", "validate", *map(str, EXAMPLES))

    assert 0 == said.code, said.err
    assert len(EXAMPLES) == said.err.count(": valid\n")


def test_plan_that_is_wrong_is_named_with_its_field(vctl: Vctl, tmp_path: Path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("service: support\nstrategy: weighted\nrelease: 2\nstepps: []\n")
    said = vctl("rollout", "validate", str(plan))

    assert 2 == said.code
    assert "stepps" in said.err
    assert "steps" in said.err.replace("stepps", "")


def test_plan_is_read_from_stdin_and_shown(vctl: Vctl):
    vctl.stdin = "service: support\nstrategy: full-switch\nrelease: 2\n"
    said = vctl("rollout", "validate", "--show", "-")

    assert (0, 2) == (said.code, yaml.safe_load(said.out)["release"])
