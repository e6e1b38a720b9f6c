"""Which run of the engine must serve nothing any more, and why: kept on disk for the next agent.

An engine cannot always tell that it is broken: one whose base half changed answers its health check
and dies, or lies, at the next request. So who saw it happen notes it; a restart makes it void.
"""

from pathlib import Path

import msgspec
import structlog

from vctl_agent.noting import note, noted

_log = structlog.get_logger(__name__)


class _Record(msgspec.Struct):
    incarnation: str = ""
    reason: str = ""


class Suspect:
    """The run of the engine that was found unfit, if there is one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = _Record()

    def open(self) -> None:
        """Read what an earlier process noted; what cannot be read counts as nothing."""
        self._record = noted(self._path, _Record) or _Record()

    def reason(self, incarnation: str) -> str:
        """Return why this run of the engine must serve nothing; empty: it may."""
        return self._record.reason if self._record.incarnation == incarnation else ""

    def condemn(self, incarnation: str, reason: str) -> None:
        """Note that this run must serve nothing; on disk afterwards, if the disk takes it."""
        self._record = _Record(incarnation, reason)
        _log.error("engine suspect", incarnation=incarnation, reason=reason)
        note(self._path, self._record, keeps_old=True)
