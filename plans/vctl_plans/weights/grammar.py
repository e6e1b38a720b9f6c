"""The small part of JSON that a safetensors header may use, read strictly.

A general JSON reader builds whatever a hostile header asks for: 25 MB of brackets become 600 MB of
lists, and duplicate names, floats, NaN, lone surrogates and a byte order mark pass. A header needs
only objects with known keys, strings and arrays of whole numbers, so only these exist here: nothing
recurses, nothing is built that is not kept, and every refusal knows its byte.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from vctl_plans.errors import MalformedWeights

MAX_INTEGER: Final = 2**63 - 1
MAX_NAME_CHARS: Final = 4096

_SPACE = re.compile(r"[ \t\n\r]*")
_INTEGER = re.compile(r"(?:0|[1-9][0-9]{0,18})(?![0-9.eE])")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON = json.JSONDecoder()
_OLD_WRITERS_START = '{},"__metadata__"'
_OLD_WRITER = "safetensors up to 0.4.3 writes this where there are no tensors: take a newer one"
_NEVER = re.compile(r"(?!)")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]|[^"\[\]{},]+')


class Cursor:
    """A place in the header's text.

    Args:
        raw: The header, without its 8 length bytes.
        path: The file, for errors.
        base: Where `raw` begins in the file.

    Raises:
        MalformedWeights: The header is not UTF-8.
    """

    def __init__(self, raw: bytes, *, path: str, base: int) -> None:
        self._path = path
        self._base = base
        self.pos = 0
        try:
            self._text = raw.decode()
        except UnicodeDecodeError as error:
            rule = "the header is not UTF-8"
            raise MalformedWeights(rule, path=path, offset=base + error.start) from error
        self._is_ascii = self._text.isascii()

    def refusal(self, rule: str, at: int | None = None, *, hint: str = "") -> MalformedWeights:
        """Make the error for a rule broken at a place in the text; by default, here."""
        at = self.pos if at is None else at
        offset = at if self._is_ascii else len(self._text[:at].encode())
        return MalformedWeights(rule, path=self._path, offset=self._base + offset, hint=hint)

    def skip_space(self) -> int:
        """Move over JSON's white space and tell where that led."""
        found = _SPACE.match(self._text, self.pos)
        if found:
            self.pos = found.end()
        return self.pos

    def take(self, char: str) -> bool:
        """Move over white space and then over `char`, if it is there."""
        at = self.skip_space()
        if self._text[at : at + 1] != char:
            return False
        self.pos = at + 1
        return True

    def take_null(self) -> bool:
        """Move over ``null``, if it is there."""
        at = self.skip_space()
        if not self._text.startswith("null", at):
            return False
        self.pos = at + len("null")
        return True

    def take_match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Move over white space and then over what `pattern` matches, if it does."""
        found = pattern.match(self._text, self.skip_space())
        if found:
            self.pos = found.end()
        return found

    def expect(self, char: str, where: str) -> None:
        """Move over `char`, which must be there."""
        if not self.take(char):
            raise self.refusal(f"expected {char!r} {where}")

    def expect_end(self) -> None:
        """Refuse anything but padding with spaces."""
        rest = self._text[self.pos :].lstrip(" ")
        if rest:
            at = len(self._text) - len(rest)
            hint = _OLD_WRITER if self._text.startswith(_OLD_WRITERS_START) else ""
            raise self.refusal("only spaces may follow the header's object", at, hint=hint)

    def members(self, where: str) -> Iterator[tuple[str, int]]:
        """Read an object: yield each key and its place; the caller reads the value before going on.

        Raises:
            MalformedWeights: Not an object, or a key appears twice.
        """
        return ((key, at) for key, at, _ in self.members_by(_NEVER, where))

    def members_by(
        self, usual: re.Pattern[str], where: str
    ) -> Iterator[tuple[str, int, re.Match[str] | None]]:
        """Read an object as `members` does, and each member that `usual` matches in one step.

        Args:
            usual: Must match white space, a key without escapes as its first group, a value, and a
                comma or the place before ``}``; and only what is right JSON.
            where: For errors.

        Yields:
            The key, its place, and the match where the value has been read already.

        Raises:
            MalformedWeights: Not an object, or a key appears twice.
        """
        self.expect("{", where)
        seen: set[str] = set()
        if self.take("}"):
            return
        while True:
            found = usual.match(self._text, self.pos)
            if found:
                key, at = found[1], found.start(1) - 1
                self.pos = found.end()
            else:
                at = self.skip_space()
                key = self.string(f"as a key {where}")
            if key in seen:
                raise self.refusal(f"duplicate key {key!r} {where}", at)
            seen.add(key)
            if not found:
                self.expect(":", f"after the key {key!r}")
            yield key, at, found
            if found and self._text[self.pos - 1] == ",":
                continue
            if self.take("}"):
                return
            self.expect(",", where)

    def string(self, where: str) -> str:
        """Read a string."""
        at = self.skip_space()
        if self._text[at : at + 1] != '"':
            raise self.refusal(f"expected a string {where}")
        try:
            value, self.pos = _JSON.raw_decode(self._text, at)
        except ValueError as error:
            broken = error.pos if isinstance(error, json.JSONDecodeError) else at
            raise self.refusal(f"a broken string {where}", broken) from error
        if _SURROGATE.search(value):
            raise self.refusal(f"a lone surrogate in a string {where}", at)
        return str(value)

    def skip_value(self) -> None:
        """Move over any value; the text must have been checked to be JSON."""
        depth = 0
        self.skip_space()
        while found := _TOKEN.match(self._text, self.pos):
            first = found[0][0]
            if depth == 0 and first in ",]}":
                return
            self.pos = found.end()
            depth += (first in "[{") - (first in "]}")

    def fit_name(self, name: str, at: int) -> str:
        """Refuse a name that can't be shown: empty, too long, or with control characters."""
        if not name:
            raise self.refusal("an empty name", at)
        if len(name) > MAX_NAME_CHARS:
            raise self.refusal(f"a name of {len(name)} characters (at most {MAX_NAME_CHARS})", at)
        if _CONTROL.search(name):
            raise self.refusal(f"the name {name!r} holds a control character", at)
        return name

    def integers(self, where: str) -> tuple[int, ...]:
        """Read an array of whole numbers from 0 to 2**63 - 1."""
        self.expect("[", where)
        if self.take("]"):
            return ()
        numbers = [self._integer(where)]
        while not self.take("]"):
            self.expect(",", where)
            numbers.append(self._integer(where))
        return tuple(numbers)

    def _integer(self, where: str) -> int:
        found = _INTEGER.match(self._text, self.skip_space())
        number = int(found.group()) if found else MAX_INTEGER + 1
        if not found or number > MAX_INTEGER:
            raise self.refusal(f"expected a whole number from 0 to 2^63-1 {where}")
        self.pos = found.end()
        return number
