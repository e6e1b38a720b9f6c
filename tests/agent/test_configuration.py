"""Settings come from flags, variables and a file; all problems are named at once."""

from pathlib import Path

import pytest

from vctl_agent.settings import Settings, load
from vctl_plans.errors import SettingsError

NEEDED = {
    "VCTL_FLEET": "dev",
    "VCTL_STATE": "/s",
    "VCTL_SOCKET": "/g",
    "VCTL_ENGINE_URL": "http://e",
}


def _load(*argv: str, **env: str) -> Settings:
    settings, _ = load(argv, NEEDED | env)
    return settings


def test_flag_wins_over_variable_and_variable_over_file(tmp_path: Path) -> None:
    """The closer to the person who starts the program, the stronger."""
    file = tmp_path / "agent.yaml"
    file.write_text("node: from-file\nlease_ttl: 5\nlog_level: debug\n")

    settings = _load("--config", str(file), "--node", "from-flag", VCTL_LEASE_TTL="7")

    assert (settings.node, settings.lease_ttl, settings.log_level) == ("from-flag", 7.0, "debug")


def test_all_problems_are_named_at_once(tmp_path: Path) -> None:
    """One start shows everything that is to be mended, with where it came from."""
    file = tmp_path / "agent.yaml"
    file.write_text("nod: x\nlease_ttl: soon\n")

    with pytest.raises(SettingsError) as caught:
        load(["--config", str(file), "--conduct"], {"VCTL_FLEET": "dev", "VCTL_CRASH_AT": "-1"})

    said = "\n".join(caught.value.problems)
    for part in ("unknown setting 'nod'; did you mean 'node'?", "lease_ttl", "VCTL_CRASH_AT",
                 "missing: --state (or VCTL_STATE)", "--socket", "--engine-url"):  # fmt: skip
        assert part in said


@pytest.mark.parametrize("text", ["/a,/b", None])
def test_list_is_repeated_as_flag_and_separated_as_variable(text: str | None) -> None:
    """Both ways give the same."""
    argv = [] if text else ["--allowed-root", "/a", "--allowed-root", "/b"]
    env = {"VCTL_ALLOWED_ROOT": text} if text else {}

    assert _load(*argv, **env).allowed_root == ("/a", "/b")


@pytest.mark.parametrize(("word", "expected"), [("yes", True), ("0", False), ("off", False)])
def test_switch_is_read_from_a_word(word: str, expected: bool) -> None:
    """As people write it."""
    assert expected == _load(VCTL_CONDUCT=word).conduct


def test_name_that_is_no_name_is_refused() -> None:
    """Names are parts of keys."""
    with pytest.raises(SettingsError, match="node: 'N 1' is not a name"):
        _load("--node", "N 1")
