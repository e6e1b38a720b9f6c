"""The picture and the pager on a real pseudo-terminal, without a fleet."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.pseudoterminal import PseudoTerminal

ROOT = Path(__file__).parents[2]
PICTURE = """
import os, sys, time
from rich.text import Text
from vctl_cli.render.screen import Screen
from vctl_cli.render.terminal import Picture
print("before")
with Picture(Screen(sys.stdout, sys.stderr)) as picture:
    for n in range(10_000):
        columns, lines = picture.space
        body = [Text("x" * 300, style="bold red")] * (lines if columns > 50 else lines // 2)
        picture.draw([Text(f"{n} in {columns} x {lines}"), *body])
        time.sleep(0.02)
"""
PAGER = """
import os, sys
from vctl_cli.render.pager import page
from vctl_cli.render.screen import Screen
text = "\\n".join(f"line {n}" for n in range(int(sys.argv[1])))
page(Screen(sys.stdout, sys.stderr, can_draw=True), text, os.environ)
"""


def program(script: str, *arguments: str, size: tuple[int, int] = (80, 24), **env: str):
    rooms = os.pathsep.join(str(ROOT / room) for room in ("cli", "agent", "plans"))
    surroundings = os.environ | {"PYTHONPATH": rooms, "TERM": "xterm"} | env
    return PseudoTerminal([sys.executable, "-c", script, *arguments], env=surroundings, size=size)


def test_picture_fills_the_terminal_and_again_after_each_resize():
    with program(PICTURE, NO_COLOR="1") as seen:
        text = seen.until(lambda shown: "in 79 x 23" in shown and shown.count("x" * 79) == 22)
        assert text.startswith("0 in") or " in 79 x 23\n" in text
        for columns, lines in ((40, 12), (200, 50), (80, 24)):
            seen.resize(columns, lines)
            first = f"in {columns - 1} x {lines - 1}"
            count = lines - 2 if columns > 51 else (lines - 1) // 2
            seen.until(
                lambda shown, first=first, count=count, columns=columns: (
                    first in shown.splitlines()[0]
                    and shown.count("x" * (columns - 1)) == count
                    and len(shown.splitlines()) == count + 1
                )
            )


def test_picture_leaves_no_line_behind_and_echoes_no_key():
    with program(PICTURE) as seen:
        seen.until(lambda shown: "in 79 x 23" in shown)
        assert not seen.is_echoing()
        seen.type("\r\r\rxyz\r")
        now = int(seen.glass.text.partition(" in")[0].split()[-1])
        text = seen.until(lambda shown: f"{now + 3} in " in shown)
        assert text.count(" in 79 x 23") == 1
        assert "xyz" not in text
        assert seen.glass.colours


def test_terminal_echoes_again_after_an_interrupt():
    with program(PICTURE) as seen:
        seen.until(lambda shown: "in 79 x 23" in shown)
        seen.type("\x03")
        assert seen.end() == 128 + signal.SIGINT
        assert seen.is_echoing()


@pytest.mark.parametrize(
    ("lines", "pager", "is_paged"),
    [
        (50, "sed s/^/paged:/", True),
        (5, "sed s/^/paged:/", False),
        (50, "cat", False),
        (50, "", False),
        (50, "no-such-pager", False),
    ],
)
def test_long_text_goes_through_the_pager(lines: int, pager: str, is_paged: bool):
    with program(PAGER, str(lines), PAGER=pager) as seen:
        assert seen.end() == 0
    assert seen.written.count("line ") == lines
    assert seen.written.count("paged:") == (lines if is_paged else 0)


def test_own_variable_of_the_pager_wins():
    with program(PAGER, "50", PAGER="sed s/^/theirs:/", VCTL_PAGER="sed s/^/ours:/") as seen:
        assert seen.end() == 0
    assert "ours:line 0" in seen.written
