"""Keeps one small record in a file, for the next agent process.

Written whole and flushed under another name, then renamed: a kill leaves the old record or the new
one. A record that cannot be read counts as none.
"""

import contextlib
import os
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

T = TypeVar("T")

_log = structlog.get_logger(__name__)


def noted(path: Path, kind: type[T]) -> T | None:
    """Return what was noted; None: nothing, or what cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None


def note(path: Path, record: msgspec.Struct, *, keeps_old: bool = False) -> None:
    """Note *record*; on disk when this returns, if the disk takes it.

    Args:
        path: The file.
        record: What is noted.
        keeps_old: Where the disk does not take it, the record before stays; else there is none.
    """
    temporary = path.with_suffix(".new")
    try:
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as cause:
        _log.warning("not noted on disk", file=path.name, cause=str(cause))
        if not keeps_old:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
