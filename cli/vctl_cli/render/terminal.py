"""A place on a terminal that is drawn anew, and what the terminal can show.

Each line is overwritten where it stands and what is left of it erased, all in one write: nothing
is ever blank in between, so nothing flickers. What cannot be known is where lines went that the
terminal wrapped anew when its size changed: then the screen is cleared once and drawn from its top.
While it is drawn typed keys are not echoed, since an echoed Enter would move the picture.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self, TextIO

from rich.console import Console
from rich.text import Text

from vctl_cli.render.screen import Screen, harmless

_UP, _ERASE_LINE, _ERASE_BELOW, _CLEAR = "\x1b[{}A", "\x1b[K", "\x1b[J", "\x1b[H\x1b[2J"
_USUAL = os.terminal_size((80, 24))


class Glyphs(NamedTuple):
    """What pictures are made of."""

    full: str
    empty: str
    cell: str  # a node, or several
    arrow: str
    more: str  # stands for what is cut off


UNICODE = Glyphs("█", "░", "■", "→", "…")
ASCII = Glyphs("#", ".", "#", "->", "...")


def glyphs(screen: Screen) -> Glyphs:
    """Return what can be shown there."""
    return UNICODE if screen.has_unicode else ASCII


def size_of(stream: TextIO) -> os.terminal_size:
    """Return columns and lines, which a terminal may change at any time."""
    with suppress(OSError, ValueError):
        found = os.get_terminal_size(stream.fileno())
        if found.columns and found.lines:
            return found
    return _USUAL


class _NoEcho:
    """Keeps keys from being echoed, where this process may say so."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def begin(self) -> None:
        import termios  # noqa: PLC0415  only where a terminal is

        with suppress(OSError, ValueError, termios.error, AttributeError):
            fd = sys.stdin.fileno()
            if os.tcgetpgrp(fd) != os.getpgrp():
                return  # in the background a change of the terminal would stop us
            self._before = termios.tcgetattr(fd)
            after = termios.tcgetattr(fd)
            after[3] &= ~termios.ECHO
            termios.tcsetattr(fd, termios.TCSADRAIN, after)

    def end(self) -> None:
        import termios  # noqa: PLC0415  see above

        if self._before is not None:
            with suppress(OSError, ValueError, termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)


class Picture:
    """A place on the terminal that is drawn anew; what it showed last stays there.

    Args:
        screen: Where to.
        size: Tells how large it is now.
    """

    def __init__(
        self, screen: Screen, size: Callable[[TextIO], os.terminal_size] = size_of
    ) -> None:
        self._screen = screen
        self._size_of = size
        self._size = size(screen.out)
        self._shown: list[str] = []
        self._is_displaced = False
        self._echo = _NoEcho()

    def __enter__(self) -> Self:
        self._echo.begin()
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGCONT, self._resumed)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):
            signal.signal(signal.SIGCONT, signal.SIG_DFL)
        self._echo.end()

    def _resumed(self, *_: object) -> None:
        """Take the terminal again after Ctrl-Z and fg: others have written on it."""
        self._is_displaced = True
        self._echo.begin()

    @property
    def space(self) -> os.terminal_size:
        """The columns and lines that a picture may take now.

        The last column stays free (erasing after it would erase it), and so does the last line,
        where the cursor waits.
        """
        size = self._size_of(self._screen.out)
        return os.terminal_size((max(20, size.columns - 1), max(4, size.lines - 1)))

    @property
    def is_stale(self) -> bool:
        """Whether the terminal has changed since the last picture."""
        return self._is_displaced or self._size_of(self._screen.out) != self._size

    def draw(self, lines: Sequence[Text]) -> None:
        """Put *lines* in the place of what was there; nothing is written where they are the same.

        What does not fit is cut off.
        """
        stale, space = self.is_stale, self.space
        shown = self._rendered(lines[: space.lines], space.columns)
        if shown == self._shown and not stale:
            return
        start = _UP.format(len(self._shown)) if self._shown else ""
        start = _CLEAR if stale and self._shown else f"\r{start}"
        body = "".join(f"{line}{_ERASE_LINE}\r\n" for line in shown)
        self._screen.out.write(f"{start}{body}{_ERASE_BELOW}")
        self._screen.out.flush()
        self._shown, self._size = shown, self._size_of(self._screen.out)
        self._is_displaced = False

    def _rendered(self, lines: Sequence[Text], columns: int) -> list[str]:
        console = Console(
            file=self._screen.out,
            force_terminal=True,
            no_color=not self._screen.has_color,
            highlight=False,
            width=columns,
        )
        found = []
        for line in lines:
            line.plain = harmless(line.plain)
            with console.capture() as capture:
                console.print(line, no_wrap=True, overflow="crop", crop=True, end="")
            found.append(capture.get())
        return found
