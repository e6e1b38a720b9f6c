"""The two streams of a command: data on stdout, talk on stderr.

The rule to keep: what is written here may hold what an engine, a node or another person said, so no
control character gets to a terminal or a log but the ends of lines, tabs, and our own red.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from vctl_plans.errors import VctlError

_DUMB = {"dumb", "unknown"}
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNSAFE_BUT_RED = re.compile(f"(?!{re.escape(_RED)}|{re.escape(_PLAIN)}){_UNSAFE.pattern}")


@dataclass(frozen=True)
class Screen:
    """Where a command writes, and what it may do there."""

    out: TextIO
    err: TextIO
    is_quiet: bool = False
    has_color: bool = True
    has_unicode: bool = False
    can_draw: bool = False  # stdout is a terminal that can move its cursor

    def data(self, text: str) -> None:
        """Write what was asked for, ended by a newline, at once; control characters become ``?``.

        Raises:
            VctlError: It cannot be written there.
            BrokenPipeError: Nobody reads it any more.
        """
        self.exact(self.clean(text))

    def exact(self, text: str) -> None:
        """Write the same, character by character: for what programs read, and is ours or escaped.

        Raises:
            VctlError: It cannot be written there.
            BrokenPipeError: Nobody reads it any more.
        """
        try:
            self.out.write(text if text.endswith("\n") else f"{text}\n")
            self.out.flush()
        except BrokenPipeError:
            raise
        except OSError as cause:
            raise VctlError(f"stdout cannot be written: {cause.strerror}") from cause

    def clean(self, text: str) -> str:
        """Return *text* as it may be shown on stdout."""
        return (_UNSAFE_BUT_RED if self.has_red else _UNSAFE).sub("?", text)

    def say(self, text: str) -> None:
        """Tell the person who waits; nothing when they want quiet."""
        if not self.is_quiet:
            self.complain(text)

    def complain(self, text: str) -> None:
        """Tell what went wrong, also to who wants quiet."""
        self.err.write(f"{_UNSAFE.sub('?', text)}\n")
        self.err.flush()

    def bad(self, text: str) -> str:
        """Return *text* in red where a person sees stdout."""
        return f"{_RED}{text}{_PLAIN}" if self.has_red else text

    @property
    def has_red(self) -> bool:
        """Whether a person sees stdout, and colours on it."""
        return self.is_terminal and self.has_color

    @property
    def is_terminal(self) -> bool:
        """Whether a person sees stdout as it is written."""
        return self.out.isatty()

    @property
    def can_animate(self) -> bool:
        """Whether talk may move and be overwritten."""
        return self.err.isatty() and not self.is_quiet


def has_unicode(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether a terminal may be expected to show more than ASCII.

    Python writes UTF-8 in the C locale too, and says so by setting LC_CTYPE (PEP 538): what the
    user said stands in the other variables.
    """
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    said = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or "C"
    if said == "C.UTF-8" and not env.get("LC_ALL"):
        said = env.get("LANG") or "C"
    return encoding == "utf8" and "utf" in said.lower()


def is_drawable(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether a picture can be drawn there: on a terminal that can move its cursor."""
    return stream.isatty() and env.get("TERM", "") not in _DUMB


_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "?") | dict.fromkeys(b"\t\n\r", " ")


def harmless(text: str) -> str:
    """Return *text* without control characters, as long as it was.

    What an engine or a node says is shown to people, and must not move their cursor.
    """
    return text.translate(_CONTROLS)
