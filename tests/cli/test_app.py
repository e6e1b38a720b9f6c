"""Exit codes, what is told on which stream, and what a start costs."""

import os
import subprocess
import sys

import pytest

from tests.cli.support import Vctl, a_fleet
from vctl_cli.app import command
from vctl_cli.exitcodes import ExitCode, of_error
from vctl_cli.verbs import ROOT
from vctl_plans.errors import (
    ArtifactError,
    Conflict,
    InvariantError,
    PlanError,
    RootMismatch,
    SettingsError,
    StoreUnavailable,
    TransitionError,
    VctlError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PlanError("x"), 2),
        (SettingsError(["x"]), 2),
        (TransitionError("x"), 7),
        (StoreUnavailable("x"), 6),
        (Conflict("x"), 6),
        (RootMismatch("x"), 1),
        (ArtifactError("x"), 1),
        (VctlError("x"), 1),
        (InvariantError("x"), 70),
    ],
)
def test_exit_code_follows_the_kind_of_error(error: VctlError, code: int):
    assert code == of_error(error)


def test_version_is_data():
    said = Vctl()("version")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("vctl ")
    assert said.out == Vctl()("--version").out


def test_help_lists_every_verb_without_importing_one():
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "vctl_cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    for verb in ROOT.members:
        assert f"\n  {verb}" in result.stdout
    imported = {line.split("|")[-1].strip() for line in result.stderr.splitlines()}
    heavy = {"grpc", "torch", "httpx", "asyncio", "msgspec", "pydantic", "rich", "rich.table"}
    assert set() == heavy & imported


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, vctl_cli.app; print(*sorted({'grpc', 'torch', 'rich'} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""


def test_nothing_given_shows_help_and_is_wrong_usage():
    said = Vctl()()
    assert (said.code, said.out) == (2, "")
    assert "Usage: vctl" in said.err
    assert "rollback" in said.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("rolout",), "no such command 'rolout'. Did you mean 'rollout', 'route'?"),
        (("rollout", "strat"), "Did you mean 'start', 'status'?"),
        (("version", "--nope"), "no such option: --nope"),
        (("-o", "xml", "version"), "'xml' is not one of 'table', 'json', 'yaml'"),
        (("release", "show", "none"), "unable to parse string as an integer"),
        (("status", "--timeout", "soon"), "'soon' is not a duration"),
    ],
)
def test_wrong_usage_is_told_in_two_lines(arguments: tuple[str, ...], told: str):
    said = Vctl()(*arguments)
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert said.err.startswith("vctl: ")
    assert len(said.err.splitlines()) <= 2


def test_shared_options_may_stand_before_and_after_the_verb():
    vctl = a_fleet()
    before = vctl("--output", "json", "status")
    assert before.out == vctl("status", "--output", "json").out
    assert before.out.startswith('{\n  "kind": "status"')
    nearer = vctl("-o", "json", "status", "-o", "yaml")
    assert nearer.out.startswith("kind: status")


def test_store_that_is_away_is_6_and_says_what_to_check():
    vctl = a_fleet()
    vctl.failure = StoreUnavailable("etcd did not answer in 3 s: http://x:2379", hint="check x")
    for arguments in (("status",), ("rollback", "--now"), ("rollout", "watch")):
        said = vctl(*arguments)
        assert (said.code, said.out) == (6, "")
        assert said.err == "vctl: etcd did not answer in 3 s: http://x:2379\n  check x\n"


def test_bug_is_70_with_a_traceback_only_for_debug(capsys: pytest.CaptureFixture[str]):
    vctl = Vctl(failure=ZeroDivisionError("oh"))  # type: ignore[arg-type]
    said = vctl("status")
    assert (said.code, said.out) == (70, "")
    assert said.err.startswith("vctl: a bug in vctl: ZeroDivisionError: oh\n")
    assert capsys.readouterr().err == ""
    assert vctl("status", "--debug").code == 70
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_is_130_and_says_that_the_rollout_goes_on():
    said = Vctl(failure=KeyboardInterrupt())("status")  # type: ignore[arg-type]
    assert (said.code, said.out) == (130, "")
    assert "goes on" in said.err


def test_reader_that_leaves_is_met_quietly():
    command_line = [sys.executable, "-m", "vctl_cli", "completion", "bash"]
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(command_line, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (result.returncode, result.stderr) == (ExitCode.INTERRUPTED, b"")


def test_each_verb_s_line_is_the_first_sentence_of_its_help():
    lines = dict(_lines(command()))
    assert len(lines) > 15
    for path, (summary, help_text) in lines.items():
        assert help_text.splitlines()[0] == summary, path


def _lines(group, path: str = ""):
    for name, verb in group.verbs.members.items():
        found = group.get_command(None, name)
        if hasattr(found, "verbs"):
            yield from _lines(found, f"{path} {name}")
        else:
            yield f"{path} {name}", (verb.summary, found.help)


@pytest.mark.parametrize(
    ("words", "index", "found"),
    [
        ("vctl roll", "1", {"rollout", "rollback"}),
        ("vctl rollout sta", "2", {"start", "status"}),
        ("vctl completion ", "2", {"bash", "zsh", "fish"}),
        ("vctl rollout start --adap", "3", {"--adapter"}),
    ],
)
def test_completion_knows_verbs_and_options(words: str, index: str, found: set[str]):
    env = {
        **os.environ,
        "_VCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": index,
    }
    command_line = [sys.executable, "-m", "vctl_cli"]
    result = subprocess.run(command_line, env=env, capture_output=True, text=True, check=True)
    assert found == set(result.stdout.split())


def test_completion_scripts_are_printed_and_an_unknown_shell_is_2():
    said = Vctl()("completion", "zsh")
    assert said.code == 0
    assert "#compdef vctl" in said.out
    refused = Vctl()("completion", "tcsh")
    assert (refused.code, refused.out) == (2, "")
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in refused.err


def test_agent_run_becomes_the_agent():
    command_line = [
        sys.executable,
        "-m",
        "vctl_cli",
        "agent",
        "run",
        "--fleet",
        "x",
        "--",
        "--nope",
    ]
    result = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert "vctl-agent: unknown argument --nope" in result.stderr
