"""Who holds which API key: a file of lines ``TENANT SHA-256``, read again when it changes.

    # comments, and empty lines
    acme  2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
    acme  9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08   # the new one
    blue  60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558ea11c75

Keys themselves are nowhere: a key that comes is hashed, and its hash is looked up. How long that
takes tells at most of the hash, and nobody can choose a key by its hash (SHA-256, FIPS 180-4). So
keys must be long and random; `hash-key` refuses short ones.

The rule that a change must keep: what is looked up in is replaced whole, by a file that was read
whole and is right in every line. A file that changes is taken once it has held still, so that one
that is being written is not; one that is wrong keeps the one before, and is told in the log.
"""

import asyncio
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from vctl_plans.errors import PlanError, SettingsError
from vctl_plans.names import check_name

LOOK_S = 1.0
"""How often the file is looked at; one that changed is read when it did not change again since."""

_HASH = re.compile(r"[0-9a-fA-F]{64}")
_COMMENT = re.compile(r"(?:\A|\s)#.*")

_log = structlog.get_logger()

Held = Mapping[bytes, str]
"""The tenant of each key, by the key's hash."""


class KeysFile(msgspec.Struct, frozen=True):
    """A file of keys as it was read."""

    path: Path
    held: Held


class _Seen(msgspec.Struct, frozen=True):
    """What tells that a file is another one, or was written."""

    inode: int
    size: int
    changed_ns: int  # nobody can set it back, and a mode that is mended changes it as well


def hash_of(key: str) -> bytes:
    """Return what a key is known by; header fields hold bytes, and are hashed as they came."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def read_keys_file(text: str) -> KeysFile | None:
    """Return the keys in the file that *text* names; None: there is to be none.

    Raises:
        SettingsError: All problems of the file.
    """
    return KeysFile(Path(text), _read(Path(text))[1]) if text else None


def parse(text: str) -> Held:
    """Return the tenants by the hashes of their keys.

    Raises:
        SettingsError: All problems, each with its line.
    """
    held: dict[bytes, str] = {}
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = _COMMENT.sub("", line).split()
        try:
            if words:
                _take(words, held)
        except (ValueError, PlanError) as cause:
            problems.append(f"line {number}: {cause}")
    if not held and not problems:
        problems.append("it holds no key, so nobody could come in; a line is TENANT SHA-256")
    if problems:
        raise SettingsError(problems, hint="vctl-gateway hash-key TENANT makes a line")
    return held


def _take(words: list[str], held: dict[bytes, str]) -> None:
    if len(words) != 2:  # noqa: PLR2004
        raise ValueError(f"{len(words)} words; a line is TENANT SHA-256, and # begins a comment")
    tenant, written = check_name(words[0], what="tenant"), words[1]
    if not _HASH.fullmatch(written):
        # Not repeated: who has put the key itself there has not published it by our log as well.
        raise ValueError("the second word is no SHA-256: 64 hexadecimal digits, not the key itself")
    other = held.setdefault(bytes.fromhex(written), tenant)
    if other != tenant:
        raise ValueError(f"{tenant} has the same key as {other}: a key is of one tenant")


def _read(path: Path) -> tuple[_Seen, Held]:
    """Return a file that was not written while it was read.

    Raises:
        SettingsError: It cannot be read, is wrong, or was being written.
    """
    try:
        with path.open("rb") as file:
            before = _seen(os.fstat(file.fileno()))
            content = file.read()
            after = _seen(os.fstat(file.fileno()))
        text = content.decode()
    except (OSError, UnicodeDecodeError) as cause:
        raise SettingsError([f"{path}: {cause}"]) from cause
    if before != after or len(content) != after.size:
        raise SettingsError([f"{path}: it was written while it was read"])
    try:
        return after, parse(text)
    except SettingsError as cause:
        told = [f"{path}: {problem}" for problem in cause.problems]
        raise SettingsError(told, hint=cause.hint) from cause


def _seen(stat: os.stat_result) -> _Seen:
    return _Seen(stat.st_ino, stat.st_size, stat.st_ctime_ns)


class ApiKeys:
    """The keys that hold now.

    Args:
        file: As it was read at the start.
        look_s: How often to look at it.
    """

    def __init__(self, file: KeysFile, *, look_s: float = LOOK_S) -> None:
        self.held = file.held
        self.problem = ""  # of the file as it is now, while an earlier one holds; empty: none
        self._path = file.path
        self._look_s = look_s
        self._taken: _Seen | None = None  # the file that was read last, right or wrong
        self._before: _Seen | None = None  # as it was at the last look
        self._is_missing = False

    async def run(self) -> None:
        """Look at the file until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(self._look_s)

    def look(self) -> None:
        """Read the file if it is another than before, and has held still since the last look."""
        try:
            seen = _seen(self._path.stat())
        except OSError as cause:
            if not self._is_missing:
                self._refuse(f"{self._path}: {cause}")
            self._is_missing, self._before = True, None
            return
        is_still, self._before = seen == self._before, seen
        if self._is_missing:
            self._is_missing, self._taken = False, None
        if is_still and seen != self._taken:
            self.reread()

    def reread(self) -> None:
        """Read the file now: also what somebody does who says that it is complete (SIGHUP)."""
        try:
            self._taken, held = _read(self._path)
        except SettingsError as cause:
            self._taken = self._before
            self._refuse("; ".join(cause.problems))
            return
        if held != self.held or self.problem:
            _log.info("API keys read", keys=len(held), tenants=len(set(held.values())))
        self.held, self.problem = held, ""

    def _refuse(self, problem: str) -> None:
        self.problem = problem
        _log.error("API keys not read, those before hold", error=problem)
