"""A program on a real pseudo-terminal, and the screen that a person would see of it.

The screen understands what vctl writes and no more: a sequence that it does not know fails the
test, since nobody decided that terminals need to know it.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Glass:
    """A grid of characters, a cursor, and what scrolled away."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.rows = [""] * lines
        self.at = [0, 0]  # line, column
        self.colours = 0  # sequences that set one
        self.rest = ""  # a sequence that has not come whole

    def resize(self, columns: int, lines: int) -> None:
        """Take another size; what was shown may lie anywhere, as it does on real ones."""
        self.columns, self.lines = columns, lines
        cut = [row[:columns] for row in self.rows[-lines:]]
        self.rows = cut + [""] * (lines - len(cut))
        self.at = [min(self.at[0], lines - 1), min(self.at[1], columns - 1)]

    def feed(self, text: str) -> None:
        """Show what a program wrote."""
        text, self.rest = self.rest + text, ""
        while text:
            if text[0] != "\x1b":
                self._put(text[0])
                text = text[1:]
                continue
            match = _SEQUENCE.match(text)
            if not match:
                assert len(text) < 12, f"unknown to this terminal: {text[:12]!r}"
                self.rest = text
                return
            self._obey(match[1], match[2])
            text = text[match.end() :]

    def _put(self, character: str) -> None:
        if character == "\r":
            self.at[1] = 0
        elif character == "\n":
            self._line_feed()
        else:
            if self.at[1] >= self.columns:
                self.at[1] = 0
                self._line_feed()
            line, column = self.at
            row = self.rows[line].ljust(column)
            self.rows[line] = row[:column] + character + row[column + 1 :]
            self.at[1] += 1

    def _line_feed(self) -> None:
        if self.at[0] + 1 < self.lines:
            self.at[0] += 1
        else:
            self.rows = [*self.rows[1:], ""]

    def _obey(self, said: str, what: str) -> None:
        line, column = self.at
        match what:
            case "A":
                self.at[0] = max(0, line - int(said or 1))
            case "K":
                self.rows[line] = self.rows[line][:column]
            case "J":
                kept = [] if said == "2" else [*self.rows[:line], self.rows[line][:column]]
                self.rows = kept + [""] * (self.lines - len(kept))
            case "H":
                self.at = [0, 0]
            case "m":
                codes = {int(code or 0) for code in said.split(";")}
                self.colours += bool(codes & set(range(30, 50)))
            case _:
                raise AssertionError(f"unknown to this terminal: ESC [ {said} {what}")

    @property
    def text(self) -> str:
        """What is on the screen, without the empty end."""
        return "\n".join(row.rstrip() for row in self.rows).rstrip()


class PseudoTerminal:
    """Runs one program on a terminal of its own; a context manager that leaves none running."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        size: tuple[int, int] = (80, 24),
        cwd: Path | None = None,
    ) -> None:
        self.glass = Glass(*size)
        self.written = ""
        self.code: int | None = None
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            if cwd:
                os.chdir(cwd)
            os.execvpe(command[0], list(command), dict(env))  # noqa: S606  as a shell would
        self._set_size(*size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """Change the terminal's size, as dragging a window does."""
        self._read(0.0)
        self.glass.resize(columns, lines)
        self._set_size(columns, lines)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._fd, keys.encode())

    def until(self, holds: Callable[[str], bool], *, within_s: float = 30) -> str:
        """Wait until the screen is as wanted, and return it."""
        deadline = time.monotonic() + within_s
        while not holds(self.glass.text):
            assert time.monotonic() < deadline, f"the screen shows:\n{self.glass.text}"
            assert self._read(0.1), f"it ended with:\n{self.glass.text}"
        return self.glass.text

    def end(self, *, within_s: float = 30) -> int:
        """Wait until the program ends; return its code, 128 and more for a signal."""
        deadline = time.monotonic() + within_s
        while self._read(0.1):
            assert time.monotonic() < deadline, f"it did not end:\n{self.glass.text}"
        _, status = os.waitpid(self.pid, 0)
        found = os.waitstatus_to_exitcode(status)
        self.code = found if found >= 0 else 128 - found
        return self.code

    def is_echoing(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self._fd)[3] & termios.ECHO)

    def _read(self, timeout_s: float) -> bool:
        """Take what was written; False once nobody can write any more."""
        while select.select([self._fd], [], [], timeout_s)[0]:
            try:
                text = os.read(self._fd, 65536).decode(errors="replace")
            except OSError:  # Linux says so once the last writer is gone
                return False
            if not text:
                return False
            self.written += text
            self.glass.feed(text)
            timeout_s = 0.0
        return True
