"""Header fields and first lines as bytes, and back."""

import functools
import time
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

from multidict import CIMultiDict

Fields = CIMultiDict[str]
"""Header fields: names whatever their case, values as text; bytes beyond UTF-8 are escaped."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_REASONS = {status.value: status.phrase for status in HTTPStatus}
_NOT_IN_A_FIELD = str.maketrans("\r\n\0", "   ")
"""A field's value ends at a line's end: none that we write may hold one."""


def text(raw: bytes) -> str:
    """Return a field's name or value as text."""
    return raw.decode("utf-8", "surrogateescape")


def written(fields: Iterable[tuple[str, str]]) -> bytes:
    """Return fields as they are sent, without the empty line after the last."""
    lines = [f"{_safe(name)}: {_safe(value)}\r\n" for name, value in fields]
    return "".join(lines).encode("utf-8", "surrogateescape")


def _safe(part: str) -> str:
    return part.translate(_NOT_IN_A_FIELD)


@functools.lru_cache(maxsize=256)
def status_line(status: int, reason: str = "") -> bytes:
    """Return an answer's first line; without a *reason*, with the standard's own."""
    return f"HTTP/1.1 {status} {_safe(reason or _REASONS.get(status, ''))}\r\n".encode(
        "utf-8", "surrogateescape"
    )


class Date:
    """The present as HTTP dates tell it (RFC 9110 section 5.6.7), made once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def line(self) -> bytes:
        """Return the field that tells it."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = f"Date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self._line
