"""Each exit code, from real processes: the commands are those of docs/exit-codes.md."""

import os
import shutil
import signal
import subprocess

import pytest

from tests.e2e.cli.conftest import Shell
from tests.e2e.cli.exitcodetable import command_of
from tests.e2e.support import Said
from vctl_plans.phase import RolloutPhase as P

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("cli"),
]

SLOW = "steps: [{weight: 50, soak: 10m}, {weight: 100, soak: 10m}]"


@pytest.fixture
def command(request: pytest.FixtureRequest) -> str:
    """The command that the table has for this test."""
    return command_of(request.node.originalname)


def ended(process: subprocess.Popen[str]) -> Said:
    out, err = process.communicate(timeout=30)
    return Said(process.returncode, out, err)


def test_exit_0_as_asked(shell: Shell, command: str) -> None:
    said = shell(command.replace("adapters/v2", shell.another()))
    assert said.code == 0, said
    assert said.out.splitlines()[-1].endswith(f"converged (2/2) on release {shell.fleet.stable()}")


def test_exit_1_failed(shell: Shell, command: str) -> None:
    shell.plan("refused.yaml", 'probes: [{prompt: "Hello", expect: "no model says this"}]',
               strategy="full-switch")  # fmt: skip
    before = shell.fleet.stable()
    said = shell(command)
    assert said.code == 1, said
    assert "no model says this" in said.out
    assert "vctl rollout retry" in said.err
    assert before == shell.fleet.stable()


def test_exit_1_a_difference(shell: Shell, command: str) -> None:
    damaged = shell.folder / "damaged"
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(shell.folder / "adapters" / "v3", damaged)
    assert shell("vctl manifest damaged").code == 0
    weights = damaged / "adapter_model.safetensors"
    weights.chmod(0o644)
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    said = shell(command)
    assert said.code == 1, said
    assert "NOT what was expected" in said.out


def test_exit_2_usage(shell: Shell, command: str) -> None:
    shell.write("misspelled.yaml", "service: support\nstragety: weighted\nrelease: 1\n")
    said = shell(command)
    assert (said.code, said.out) == (2, ""), said
    assert "strategy" in said.err


def test_exit_3_otherwise(shell: Shell, command: str) -> None:
    shell.plan("slow.yaml", SLOW)
    process = shell.begin(command)
    shell.fleet.until(lambda: shell.fleet.rollout().phase is P.SOAKING)
    assert shell("vctl rollout abort").code == 0
    said = ended(process)
    assert said.code == 3, said
    assert "rolled back" in said.out.splitlines()[-1]


def test_exit_4_paused(shell: Shell, command: str) -> None:
    shell.plan("manual.yaml", "steps: [{weight: 50, soak: 0s, manual: true}, {weight: 100}]")
    said = shell(command)
    assert said.code == 4, said
    assert "vctl rollout promote -s support" in said.err
    assert shell("vctl rollout status").code == 4


def test_exit_5_timeout(shell: Shell, command: str) -> None:
    shell.plan("slow.yaml", SLOW)
    said = shell(command)
    assert said.code == 5, said
    assert "it goes on\n  follow it: vctl rollout watch -s support" in said.err
    assert not shell.fleet.rollout().phase.is_terminal


def test_exit_6_no_etcd(shell: Shell, command: str) -> None:
    said = shell(command)
    assert (said.code, said.out) == (6, ""), said
    first, *rest = said.err.splitlines()
    assert first == "etcd does not answer yet: http://127.0.0.1:1; trying again"
    assert rest[0].startswith("vctl: etcd did not answer")


def test_exit_7_not_now(shell: Shell, command: str) -> None:
    said = shell(command)
    assert (said.code, said.out) == (7, ""), said
    assert "allowed now: vctl rollout start" in said.err


def test_exit_8_unconfirmed(shell: Shell, command: str) -> None:
    shell.plan("spare.yaml", "gate: {max_absent: 1}", "deadlines: {converge: 2s}",
               "steps: [{weight: 50, soak: 1s}, {weight: 100, soak: 1s}]")  # fmt: skip
    process = shell.begin(command)
    try:
        shell.fleet.until(lambda: shell.fleet.rollout().phase is P.SOAKING)
        shell.fleet.dev.kill("n2", "agent")
        said = ended(process)
    finally:
        shell.fleet.restart_agents("n2")
    assert said.code == 8, said
    assert "unconfirmed: n2" in said.err


def test_exit_70_a_bug(shell: Shell, command: str) -> None:
    """A library that breaks is none of what vctl expects, as a bug of its own is not."""
    shell.write("manual.yaml", "service: support\nstrategy: full-switch\nrelease: 1\n")
    shell.write("broken/yaml.py", "raise RuntimeError('half installed')\n")
    path = os.pathsep.join([str(shell.folder / "broken"), os.environ.get("PYTHONPATH", "")])
    said = shell(command, env={"PYTHONPATH": path})
    assert (said.code, said.out) == (70, ""), said
    assert said.err.splitlines() == [
        "vctl: a bug in vctl: RuntimeError: half installed",
        "  run it again with --debug, and report what it shows",
    ]
    assert "Traceback" in shell(f"{command} --debug", env={"PYTHONPATH": path}).err


def test_exit_130_interrupted(shell: Shell, command: str) -> None:
    shell.plan("slow.yaml", SLOW)
    assert shell("vctl rollout start slow.yaml --no-watch").code == 0
    process = shell.begin(f"exec {command}")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said = ended(process)
    assert said.code == 130, said
    assert "goes on\n  follow it: vctl rollout watch -s support" in said.err
    assert not shell.fleet.rollout().phase.is_terminal
