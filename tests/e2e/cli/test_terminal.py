"""The live view as a person sees it, on a real pseudo-terminal and a real fleet."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.cli.conftest import Shell
from tests.e2e.pseudoterminal import PseudoTerminal
from vctl_plans.phase import RolloutPhase as P

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("cli"),
]

SOAKS = "steps: [{weight: 10, soak: 10m, manual: true}, {weight: 100, soak: 0s}]"
SIZES = [(80, 24), (200, 50)]
UTF8 = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}


def terminal(shell: Shell, *arguments: str, size: tuple[int, int] = (80, 24), **env: str):
    command = [sys.executable, "-m", "vctl_cli", *arguments]
    return PseudoTerminal(command, env=shell.env | UTF8 | env, size=size, cwd=shell.folder)


@pytest.fixture
def soaking(shell: Shell) -> Shell:
    """A fleet whose rollout soaks at its first step of two."""
    shell.plan("soaks.yaml", SOAKS, "guardrails: {min_requests: 20}")
    assert shell("vctl rollout start soaks.yaml --no-watch").code == 0
    shell.fleet.until(lambda: shell.fleet.rollout().phase is P.SOAKING)
    return shell


def fits(text: str, size: tuple[int, int]) -> bool:
    lines = text.splitlines()
    return len(lines) <= size[1] and all(len(line) <= size[0] for line in lines)


@pytest.mark.parametrize("size", SIZES)
def test_view_shows_step_soak_guardrails_nodes_and_log(
    soaking: Shell, size: tuple[int, int]
) -> None:
    with terminal(soaking, "rollout", "watch", size=size) as seen:
        text = seen.until(lambda shown: "soaking" in shown and "left of 10m" in shown)
        lines = text.splitlines()
        assert fits(text, size)
        assert lines[1] == "phase     soaking, step 1/2"
        assert lines[2].startswith("traffic   ██░░░░░░░░░░░░░░░░░░  10 % on release ")
        assert lines[3] == "steps     [10 % manual] → 100 %"
        assert "error ratio" in text
        assert "nodes     2 of 2 ready" in lines
        assert "  ready  2  ■■  n1, n2" in lines
        assert lines[-1].endswith("soaking 10m")


def test_time_left_goes_on_between_changes(soaking: Shell) -> None:
    with terminal(soaking, "rollout", "watch") as seen:
        first = seen.until(lambda shown: "left of 10m" in shown)
        seen.until(lambda shown: "left of 10m" in shown and shown != first, within_s=10)


def test_view_fits_again_after_the_terminal_was_resized(soaking: Shell) -> None:
    with terminal(soaking, "rollout", "watch", size=(200, 50)) as seen:
        seen.until(lambda shown: "left of 10m" in shown)
        for size in ((60, 16), (120, 40), (80, 24)):
            seen.resize(*size)
            text = seen.until(
                lambda shown: "soaking, step 1/2" in shown and shown.startswith("support  release")
            )
            assert fits(text, size)
            assert text.count("phase     soaking") == 1


def test_typed_keys_do_not_move_the_picture(soaking: Shell) -> None:
    with terminal(soaking, "rollout", "watch") as seen:
        seen.until(lambda shown: "left of 10m" in shown)
        assert not seen.is_echoing()
        before = seen.glass.text.splitlines()[1:4]
        seen.type("\r\r\rxyz")
        first = seen.glass.text
        seen.until(lambda shown: shown != first, within_s=10)
        assert before == seen.glass.text.splitlines()[1:4]


def test_ctrl_c_leaves_the_picture_and_says_how_to_follow(soaking: Shell) -> None:
    with terminal(soaking, "rollout", "watch") as seen:
        seen.until(lambda shown: "left of 10m" in shown)
        seen.type("\x03")
        assert seen.end() == 130
        lines = seen.glass.text.splitlines()
        assert "phase     soaking, step 1/2" in lines
        assert lines[-1] == "  follow it: vctl rollout watch -s support"
        assert "interrupted; rollout" in lines[-2]
        assert seen.is_echoing()
    assert soaking.fleet.rollout().phase is P.SOAKING


def test_paused_view_stays_and_says_what_to_do_next(soaking: Shell) -> None:
    with terminal(soaking, "status", "--watch", "-s", "support") as seen:
        seen.until(lambda shown: "left of 10m" in shown)
        assert soaking("vctl rollout pause").code == 0
        assert seen.end() == 4
        text = seen.glass.text
        assert "phase     paused, step 1/2" in text
        assert "vctl rollout resume -s support" in text
        assert "vctl rollback --now -s support" in text


def test_without_colour_and_unicode_it_says_the_same(soaking: Shell) -> None:
    watch = terminal(soaking, "rollout", "watch", NO_COLOR="1", LANG="C", LC_ALL="C")
    with watch as seen:
        text = seen.until(lambda shown: "left of 10m" in shown)
        assert text.isascii()
        assert seen.glass.colours == 0
        assert "steps     [10 % manual] -> 100 %" in text
        assert "  ready  2  ##  n1, n2" in text


def test_terminal_that_cannot_move_its_cursor_gets_lines(soaking: Shell) -> None:
    with terminal(soaking, "rollout", "watch", TERM="dumb") as seen:
        seen.until(lambda shown: "soaking" in shown)
        assert "\x1b" not in seen.written


def test_fleet_is_one_picture_too(soaking: Shell) -> None:
    with terminal(soaking, "status", "--watch") as seen:
        text = seen.until(lambda shown: "nodes" in shown)
        assert text.startswith("fleet dev\nsupport  release ")
        assert "soaking 1/2" in text
        assert "nodes  2 of 2 ready" in text
        seen.type("\x03")
        assert seen.end() == 130


def test_rollout_goes_on_when_the_command_is_killed(shell: Shell) -> None:
    shell.plan("slow.yaml", "steps: [{weight: 50, soak: 2s}, {weight: 100, soak: 0s}]")
    with terminal(shell, "rollout", "start", "slow.yaml") as seen:
        seen.until(lambda shown: "left of 2s" in shown)
        os.kill(seen.pid, signal.SIGKILL)
        assert seen.end() == 137
    shell.fleet.until_phase(P.CONVERGED)


def test_interrupted_question_does_nothing_and_is_130(soaking: Shell) -> None:
    with terminal(soaking, "rollout", "abort") as seen:
        seen.until(lambda shown: shown.endswith("Give up the rollout of support? [y/N]:"))
        seen.type("\x03")
        assert seen.end() == 130
    with terminal(soaking, "rollout", "abort") as seen:
        seen.until(lambda shown: shown.endswith("[y/N]:"))
        seen.type("n\r")
        assert seen.end() == 2
        assert seen.glass.text.endswith("vctl: nothing was done")
    assert soaking.fleet.rollout().phase is P.SOAKING


def test_long_history_goes_through_the_pager_and_a_short_one_does_not(soaking: Shell) -> None:
    size = (80, 8)
    with terminal(soaking, "rollout", "history", size=size, PAGER="sed -e s/^/paged:/") as seen:
        assert seen.end() == 0
        assert "paged:" in seen.written
    with terminal(soaking, "rollout", "history", size=size, PAGER="cat") as seen:
        assert seen.end() == 0
    with terminal(soaking, "rollout", "history", size=(200, 400), PAGER="false") as seen:
        assert seen.end() == 0
        assert "rollout " in seen.written


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_view_in_tmux_which_wraps_lines_anew(soaking: Shell) -> None:
    """A terminal of others, as a check on the one above."""
    socket = f"vctl-test-{os.getpid()}"

    def tmux(*arguments: str) -> str:
        command = ["tmux", "-L", socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def until(holds) -> str:
        deadline = time.monotonic() + 20
        while not holds(text := tmux("capture-pane", "-p")):
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        return text.rstrip()

    env = [f"-e{name}={value}" for name, value in (soaking.env | UTF8).items() if name != "TERM"]
    run = f"{sys.executable} -m vctl_cli rollout watch; sleep 60"
    tmux("-f", "/dev/null", "new-session", "-d", "-x", "200", "-y", "50", *env, run)
    try:
        until(lambda shown: "left of 10m" in shown)
        for columns, lines in ((70, 20), (80, 24)):
            tmux("resize-window", "-x", str(columns), "-y", str(lines))
            text = until(lambda shown: shown.startswith("support  release"))
            assert text.count("phase     soaking") == 1
        tmux("send-keys", "C-c")
        until(lambda shown: "follow it: vctl rollout watch" in shown)
    finally:
        tmux("kill-server")
