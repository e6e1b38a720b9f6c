"""What was done for good, by engine incarnation: kept on disk for the next agent process.

Which adapters were probed, by their names; for which releases the hook was done, by their digests.
Each is a fact about one run of the engine's process: a name is its content, and neither changes
under it. Another incarnation makes the file void.
"""

import contextlib
import os
from pathlib import Path

import msgspec
import structlog

_log = structlog.get_logger(__name__)


class _Record(msgspec.Struct):
    incarnation: str = ""
    names: list[str] = []


class Probed:
    """The names for which it was done: adapters that have passed their probe, above all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = _Record()

    def open(self) -> None:
        """Read what an earlier process noted; what cannot be read counts as nothing."""
        try:
            self._record = msgspec.json.decode(self._path.read_bytes(), type=_Record)
        except (OSError, msgspec.MsgspecError):
            self._record = _Record()

    def has(self, incarnation: str, name: str) -> bool:
        """Whether it was done for *name* in this run of the engine."""
        return self._record.incarnation == incarnation and name in self._record.names

    def add(self, incarnation: str, name: str) -> None:
        """Note that it was done for *name*; on disk when this returns, if the disk takes it."""
        if self._record.incarnation != incarnation:
            self._record = _Record(incarnation)
        self._record.names = sorted({*self._record.names, name})
        self._save()

    def discard(self, name: str) -> None:
        """Forget *name*, which is loaded anew, or goes."""
        if name in self._record.names:
            self._record.names.remove(name)
            self._save()

    def _save(self) -> None:
        """Write the record; where that fails, the next agent's process does it once more."""
        temporary = self._path.with_suffix(".new")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(self._record))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as cause:
            _log.warning("not noted on disk", file=self._path.name, cause=str(cause))
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)  # none is better than an old one
