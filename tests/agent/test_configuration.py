"""Settings come from flags, variables and a file; all problems are named at once."""

from pathlib import Path

import pytest

from vctl_agent.engines.opening import open_engine
from vctl_agent.settings import Settings, read_conductor_settings, read_settings
from vctl_plans.errors import EngineError, SettingsError, VctlError
from vctl_plans.sources import TokenFile

NEEDED = {"VCTL_FLEET": "dev", "VCTL_ENGINE_URL": "http://e"}


def _read(*arguments: str, **environment: str) -> Settings:
    return read_settings(arguments, NEEDED | environment)


def test_flag_wins_over_variable_and_variable_over_file(tmp_path: Path) -> None:
    """The closer to the person who starts the program, the stronger."""
    file = tmp_path / "agent.yaml"
    file.write_text("node: from-file\nlease_ttl: 5\nlog_level: debug\n")

    found = _read("--config", str(file), "--node", "from-flag", VCTL_LEASE_TTL="7s")

    assert (found.node, found.lease_ttl, found.log_level) == ("from-flag", 7.0, "debug")


def test_all_problems_are_named_at_once(tmp_path: Path) -> None:
    """One start shows everything that is to be mended, with where it is set."""
    file = tmp_path / "agent.yaml"
    file.write_text("nod: x\nlease_ttl: soon\n")

    with pytest.raises(SettingsError) as caught:
        read_settings(
            ["--config", str(file), "--colour", "--node", "N 1"],
            {"VCTL_CRASH_AT": "-1", "VCTL_ENDPOINTS": "ftp://x", "VCTL_CONDUCT": "maybe"},
        )

    said = caught.value.problems
    for part in (
        "unknown setting 'nod'; did you mean 'node'?",
        "--lease-ttl (VCTL_LEASE_TTL)",
        "--crash-at (VCTL_CRASH_AT)",
        "--fleet (VCTL_FLEET): is required",
        "--engine-url (VCTL_ENGINE_URL): is required",
        "--node (VCTL_NODE)",
        "--conduct (VCTL_CONDUCT)",
        "unknown argument --colour",
        "VCTL_ENDPOINTS",
    ):
        assert sum(part in problem for problem in said) == 1, (part, said)
    assert len(said) == 9


@pytest.mark.parametrize("place", ["flag", "variable", "file"])
def test_list_can_be_given_in_each_place(tmp_path: Path, place: str) -> None:
    """Repeated as flag, with commas as variable, a list in the file."""
    file = tmp_path / "agent.yaml"
    file.write_text("allowed_root: [/a, /b]\n" if place == "file" else "{}")
    arguments = ["--config", str(file)]
    arguments += ["--allowed-root", "/a", "--allowed-root", "/b"] if place == "flag" else []
    environment = {"VCTL_ALLOWED_ROOT": "/a,/b"} if place == "variable" else {}

    assert (Path("/a"), Path("/b")) == _read(*arguments, **environment).allowed_root


def test_labels_are_names_with_values() -> None:
    assert (("rack", "7"), ("zone", "a=b")) == _read(VCTL_LABELS="rack=7,zone=a=b").label
    for wrong in ("rack", "Rack=7", f"rack={'x' * 64}"):
        with pytest.raises(SettingsError, match="label"):
            _read("--label", wrong)


def test_sources_are_limited_and_let_in_by_prefix() -> None:
    """What is no prefix of a source, or holds a secret, is refused; the secret is not repeated."""
    found = _read(
        "--allowed-source", "https://models.example/", "--allowed-source", "s3://",
        VCTL_SOURCE_TOKEN_FILE="https://models.example/=/run/secrets/token",
    )  # fmt: skip
    assert ("https://models.example/", "s3://") == found.allowed_source
    token = TokenFile("https://models.example/", Path("/run/secrets/token"))
    assert (token,) == found.source_token_file

    with pytest.raises(SettingsError) as caught:
        _read(
            "--allowed-source", "file:///mnt", "--allowed-source", "https://ann:hunter2@x/",
            VCTL_SOURCE_TOKEN_FILE="hunter2",
        )  # fmt: skip
    said = " ".join(caught.value.problems)
    assert "--allowed-source (VCTL_ALLOWED_SOURCE)" in said
    assert "--source-token-file (VCTL_SOURCE_TOKEN_FILE): is not PREFIX=FILE" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(("word", "expected"), [("yes", True), ("0", False), ("off", False)])
def test_switch_is_read_from_a_word(word: str, expected: bool) -> None:
    """As people write it."""
    assert expected == _read(VCTL_CONDUCT=word).conduct


@pytest.mark.parametrize("content", ["- a list", "{", "\x00"])
def test_file_that_is_no_mapping_is_a_problem(tmp_path: Path, content: str) -> None:
    """And no traceback."""
    file = tmp_path / "agent.yaml"
    file.write_text(content)

    with pytest.raises(SettingsError, match="--config"):
        _read("--config", str(file))


def test_every_conductor_may_have_a_prometheus() -> None:
    """Of a node or without one."""
    variables = {"VCTL_FLEET": "dev", "VCTL_PROMETHEUS_URL": "https://mimir/prometheus/"}
    file = ("--prometheus-token-file", "/run/token")
    alone = read_conductor_settings(["--conductor-only", *file], variables)
    of_a_node = read_settings([*file, "--engine-url", "http://e:1"], variables)

    assert alone is not None
    for found in (alone, of_a_node):
        assert "https://mimir/prometheus" == found.prometheus_url
        assert Path("/run/token") == found.prometheus_token_file
    with pytest.raises(SettingsError, match="VCTL_PROMETHEUS_URL"):
        read_conductor_settings(["--conductor-only", "--prometheus-url", "mimir"], variables)


def test_agent_that_only_conducts_needs_no_node() -> None:
    """The fleet is enough."""
    found = read_conductor_settings(
        ["--conductor-only", "--lease-ttl", "3s"], {"VCTL_FLEET": "dev"}
    )

    assert found is not None
    assert ("dev", 3.0, ()) == (found.fleet, found.lease_ttl, found.webhooks)


@pytest.mark.parametrize(
    ("arguments", "environment", "file"),
    [
        (["--conductor-only"], {}, ""),
        (["--conductor-only", "on"], {"VCTL_CONDUCTOR_ONLY": "off"}, ""),
        ([], {"VCTL_CONDUCTOR_ONLY": "1"}, ""),
        ([], {}, "conductor_only: on"),
    ],
)
def test_agent_only_conducts_where_it_is_said(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], file: str
) -> None:
    """By flag, variable or file, the closest first."""
    (tmp_path / "agent.yaml").write_text(file)
    given = [*arguments, "--config", str(tmp_path / "agent.yaml"), "--fleet", "dev"]

    assert read_conductor_settings(given, environment) is not None
    assert read_conductor_settings([*given, "--conductor-only", "off"], environment) is None


def test_settings_of_a_node_are_refused_by_name_where_there_is_none(tmp_path: Path) -> None:
    """Also those of the environment and the file: whoever gave them expects something of them."""
    file = tmp_path / "agent.yaml"
    file.write_text("socket: /run/x.sock\nconductor_only: yes\n")
    with pytest.raises(SettingsError) as caught:
        read_conductor_settings(
            ["--config", str(file), "--state", "/x", "--allowed-root", "/a", "--conduct", "on"],
            {"VCTL_ENGINE_URL": "http://e", "VCTL_LEASE_TTL": "soon"},
        )

    said = caught.value.problems
    for part in (
        "--fleet (VCTL_FLEET): is required",
        "--state (VCTL_STATE): makes no sense with --conductor-only",
        "--socket (VCTL_SOCKET): makes no sense with --conductor-only",
        "--engine-url (VCTL_ENGINE_URL): makes no sense with --conductor-only",
        "--allowed-root (VCTL_ALLOWED_ROOT): makes no sense with --conductor-only",
        "--conduct (VCTL_CONDUCT): makes no sense with --conductor-only",
        "--lease-ttl (VCTL_LEASE_TTL)",
    ):
        assert sum(part in problem for problem in said) == 1, (part, said)
    assert len(said) == 7


def test_switch_that_is_no_word_is_told_with_the_rest() -> None:
    """It is read twice, and told once."""
    environment = NEEDED | {"VCTL_CONDUCTOR_ONLY": "perhaps"}
    assert read_conductor_settings([], environment) is None
    with pytest.raises(SettingsError) as caught:
        read_settings([], environment)

    assert ["--conductor-only (VCTL_CONDUCTOR_ONLY): 'perhaps' is neither on nor off"] == (
        caught.value.problems
    )


def test_hook_is_split_as_a_shell_would() -> None:
    """No shell runs it; none is set by default."""
    found = _read("--hook-timeout", "2m", VCTL_HOOK="/opt/hook --name 'two words'")

    assert (("/opt/hook", "--name", "two words"), 120.0) == (found.hook, found.hook_timeout)
    assert ((), 60.0) == (_read().hook, _read().hook_timeout)


def test_hook_that_is_not_quoted_right_is_a_problem() -> None:
    """It is named with its flag."""
    with pytest.raises(SettingsError, match=r"--hook \(VCTL_HOOK\): No closing quotation"):
        _read(VCTL_HOOK="hook 'open")


def test_engine_behind_a_hook_needs_its_hook() -> None:
    """And no other has one."""
    found = _read("--engine", "hook", "--engine-hook", "/opt/engine --fast")

    assert (("/opt/engine", "--fast"), 120.0) == (found.engine_hook, found.engine_hook_timeout)
    for arguments in (["--engine", "hook"], ["--engine-hook", "/opt/engine"]):
        with pytest.raises(SettingsError) as caught:
            _read(*arguments)
        assert [
            "--engine-hook (VCTL_ENGINE_HOOK): is for --engine hook, which needs it"
        ] == caught.value.problems


@pytest.mark.parametrize("kind", ["torch", "vllm", "sglang", "hook"])
async def test_each_kind_of_engine_is_opened(kind: str, tmp_path: Path) -> None:
    """Its module is loaded, and its keys are read."""
    (tmp_path / "key").write_text("k\n")
    hook = ["--engine-hook", "http://127.0.0.1:1"] if kind == "hook" else []
    keys = [f"--engine{admin}-key-file={tmp_path / 'key'}" for admin in ("", "-admin")]
    engine = open_engine(_read("--engine", kind, *keys, *hook))

    with pytest.raises(EngineError):
        await engine.describe()
    await engine.close()


def test_key_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """By its file."""
    with pytest.raises(VctlError, match="key cannot be read"):
        open_engine(_read("--engine", "sglang", f"--engine-key-file={tmp_path / 'none'}"))
