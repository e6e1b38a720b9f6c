"""The two streams of a command: data on stdout, talk on stderr."""

from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True)
class Screen:
    """Where a command writes, and what it may do there."""

    out: TextIO
    err: TextIO
    is_quiet: bool = False
    has_color: bool = True

    def data(self, text: str) -> None:
        """Write what was asked for, ended by a newline, at once."""
        self.out.write(text if text.endswith("\n") else f"{text}\n")
        self.out.flush()

    def say(self, text: str) -> None:
        """Tell the person who waits; nothing when they want quiet."""
        if not self.is_quiet:
            self.complain(text)

    def complain(self, text: str) -> None:
        """Tell what went wrong, also to who wants quiet."""
        self.err.write(f"{text}\n")
        self.err.flush()

    def bad(self, text: str) -> str:
        """Return *text* in red where a person sees stdout."""
        return f"\x1b[31m{text}\x1b[0m" if self.is_terminal and self.has_color else text

    @property
    def is_terminal(self) -> bool:
        """Whether a person sees stdout as it is written."""
        return self.out.isatty()

    @property
    def can_animate(self) -> bool:
        """Whether talk may move and be overwritten."""
        return self.err.isatty() and not self.is_quiet
