"""What a shell is answered: by the process itself, as each shell's script asks it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.etcd.conftest import StoreMaker
from tests.etcd.servers import find_binaries, free_port
from vctl_plans.keys import Keys

KEYS = Keys("prod")


def ask(env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `vctl` as a shell does when somebody presses the tab key."""
    command = [sys.executable, "-m", "vctl_cli"]
    known = {name: value for name, value in os.environ.items() if not name.startswith("VCTL_")}
    return subprocess.run(
        command, env={**known, **env}, capture_output=True, text=True, check=False, timeout=20
    )


def bash(line: str, **env: str) -> list[str]:
    """Return what bash is answered at the end of *line*."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = ask({"_VCTL_COMPLETE": "complete_bash", **asked, **env})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_a_verb_is_completed_in_each_shell_s_own_form():
    assert bash("vctl node ") == ["gc", "drain", "undrain"]
    zsh = ask({"_VCTL_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "vctl rollout pa"})
    assert zsh.stdout == (
        """_arguments '*: :(("pause":"Stop a rollout where it is, until it is resumed."))'\n"""
    )
    fish = {"_VCTL_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": "vctl rollout pa"}
    got = ask({**fish, "_TYPER_COMPLETE_FISH_ACTION": "get-args"})
    assert got.stdout == "pause\tStop a rollout where it is, until it is resumed.\n"
    assert ask({**fish, "_TYPER_COMPLETE_FISH_ACTION": "is-args"}).returncode == 0
    nothing = {**fish, "_TYPER_COMPLETE_ARGS": "vctl rollout zzz"}
    assert ask({**nothing, "_TYPER_COMPLETE_FISH_ACTION": "is-args"}).returncode == 1
    files = ask({"_VCTL_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "vctl manifest "})
    assert files.stdout == "_files\n"


def test_an_open_quote_and_a_shared_option_before_the_verb_are_understood():
    assert bash("vctl --fleet prod roll") == ["rollout", "rollback"]
    assert ask(
        {"_VCTL_COMPLETE": "complete_bash", "COMP_WORDS": "vctl 'roll", "COMP_CWORD": "1"}
    ).stdout.split() == ["rollout", "rollback"]


def test_a_verb_needs_neither_typer_nor_a_store():
    code = (
        "import sys, vctl_cli.completing as c; c.suggestions(['rollout'], 'st');"
        " print(sorted({'typer', 'msgspec', 'grpc', 'asyncio', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture(params=sorted(find_binaries()))
def endpoint(request: pytest.FixtureRequest, shared_servers: Callable[[str], str]) -> str:
    return shared_servers(request.param)


@pytest.mark.etcd
async def test_what_a_fleet_has_is_suggested(endpoint: str, make_store: StoreMaker):
    store = make_store(endpoint)
    for key in (
        *(KEYS.spec(name) for name in ("support", "search")),
        *(KEYS.release("support", number) for number in (1, 2, 10)),
        *(KEYS.node(name) for name in ("gpu-a", "gpu-b", "cpu-c")),
    ):
        await store.put(key, b"{}")
    patience = {"VCTL_COMPLETE_TIMEOUT_S": "20"}  # this machine may be busy
    env = {"VCTL_ENDPOINTS": endpoint, "VCTL_FLEET": "prod", **patience}
    assert bash("vctl status -s ", **env) == ["search", "support"]
    assert bash("vctl status --service su", **env) == ["support"]
    assert bash("vctl release show -s support ", **env) == ["10", "2", "1"]
    assert bash("vctl rollback --to ", VCTL_SERVICE="support", **env) == ["10", "2", "1"]
    assert bash("vctl node drain gpu", **env) == ["gpu-a", "gpu-b"]
    assert bash(f"vctl --endpoints {endpoint} --fleet prod node undrain c", **patience) == ["cpu-c"]
    assert bash("vctl status -s ", **{**env, "VCTL_FLEET": "other"}) == []


def test_contexts_are_suggested(tmp_path: Path):
    folder = tmp_path / "vctl"
    folder.mkdir()
    (folder / "config.yaml").write_text("contexts: {eu: {fleet: a}, us: {fleet: b}}\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path), "VCTL_COMPLETE_TIMEOUT_S": "20"}
    assert bash("vctl config use-context ", **env) == ["eu", "us"]
    assert bash("vctl status --context e", **env) == ["eu"]
    (folder / "config.yaml").write_text("contexts: [")
    assert bash("vctl status --context e", **env) == []


def test_silence_while_etcd_is_away_or_is_no_etcd():
    for endpoint in (f"http://127.0.0.1:{free_port()}", "http://192.0.2.1:2379", "nonsense://"):
        assert bash("vctl status -s ", VCTL_ENDPOINTS=endpoint) == []


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_the_script_itself_completes_in_bash(tmp_path: Path):
    program = tmp_path / "vctl"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vctl_cli "$@"\n')
    program.chmod(0o755)
    script = (
        "source <(vctl completion bash); COMP_WORDS=(vctl rollout sta); COMP_CWORD=2;"
        " _vctl_completion vctl; echo ${COMPREPLY[@]}"
    )
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("start status\n", "")
