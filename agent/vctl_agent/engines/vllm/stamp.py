"""What vctl keeps in vLLM's weight version: which base the engine holds, and what is done to it.

It is the only thing in a vLLM that tells one base from another, and it ends with the process, as
the base does. So an agent that was killed in the middle of a change leaves word to the next one.
An engine that nobody touched says ``default``.
"""

import secrets
from enum import StrEnum

import msgspec

_UNTOUCHED = "default"
_MARK = "vctl/1"
_WORDS = 4


class Doing(StrEnum):
    """What is done to an engine just now."""

    NOTHING = "nothing"
    PAUSED = "paused"  # requests wait; its weights are whole, its caches may be of a former name
    CHANGING = "changing"  # nobody can know its weights


class Stamp(msgspec.Struct, frozen=True):
    """The base of an engine, and what is done to it."""

    token: str = ""  # another with every base, so a base that comes back is told apart
    doing: Doing = Doing.NOTHING
    path: str = ""  # of the base; empty: the one that it was started with

    def but(self, doing: Doing) -> "Stamp":
        """Return this base with something else done to it."""
        return msgspec.structs.replace(self, doing=doing)

    def text(self) -> str:
        """Return it as a weight version."""
        if self == Stamp():
            return _UNTOUCHED
        return f"{_MARK} {self.token or '-'} {self.doing} {self.path}"


def new(path: str, doing: Doing) -> Stamp:
    """Return the stamp of a base that was never there before."""
    return Stamp(secrets.token_hex(4), doing, path)


def read(version: str) -> Stamp | None:
    """Return the stamp that a weight version holds; None: it is somebody else's."""
    if version == _UNTOUCHED:
        return Stamp()
    words = version.split(" ", _WORDS - 1)
    if len(words) != _WORDS or words[0] != _MARK or words[2] not in set(Doing):
        return None
    return Stamp("" if words[1] == "-" else words[1], Doing(words[2]), words[3])
