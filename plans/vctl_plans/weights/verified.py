"""What was verified before, by the stamps of the files: so that a file need not be read twice.

The stamp (device, inode, size, mtime, ctime) does not prove that bytes are unchanged: a failing
disk or a mapped write can change them without it. So this is for who asks for it, and whoever uses
it is told which files were not read.

A file that was written less than two seconds before is not remembered: it could be written once
more within the same tick of its file system's clock (git calls this a racy entry).
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from vctl_plans.errors import ArtifactError

from . import merkle
from .files import Stamp

MAX_FILES: Final = 4096  # remembered; the oldest are forgotten

_SETTLED_NS: Final = 2_000_000_000
_VERSION: Final = 1


class _Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    v: int
    stamp: Stamp
    header: bytes  # of safetensors: the header's digest; else empty
    digests: bytes  # of the ranges in turn, joined


class Verified:
    """Digests of files that were verified, one small file for each in a folder.

    Args:
        folder: Where they are; made when something is kept.
        now_ns: The time before any file was looked at.
    """

    def __init__(self, folder: str | os.PathLike[str], *, now_ns: int | None = None) -> None:
        self._folder = Path(folder)
        self._settled_ns = (time.time_ns() if now_ns is None else now_ns) - _SETTLED_NS
        self._noted: dict[str, bytes] = {}
        self.skipped: list[str] = []  # paths of files that were not read

    def find(self, path: str, stamp: Stamp, header: bytes) -> list[bytes] | None:
        """Recall the digests of a file's ranges; None when it is not known, or has changed."""
        try:
            raw = (self._folder / _name(stamp)).read_bytes()
        except OSError:
            return None
        body, check = raw[: -merkle.DIGEST_BYTES], raw[-merkle.DIGEST_BYTES :]
        if merkle.plain(body) != check:
            return None
        try:
            entry = msgspec.msgpack.decode(body, type=_Entry)
        except msgspec.MsgspecError:
            return None
        if (entry.v, entry.stamp, entry.header) != (_VERSION, stamp, header):
            return None
        self.skipped.append(path)
        step = merkle.DIGEST_BYTES
        return [entry.digests[at : at + step] for at in range(0, len(entry.digests), step)]

    def note(self, path: str, stamp: Stamp, header: bytes, digests: list[bytes]) -> None:
        """Take a file's digests, to be kept once they have been found to be right."""
        if max(stamp.mtime_ns, stamp.ctime_ns) <= self._settled_ns and path not in self.skipped:
            entry = _Entry(_VERSION, stamp, header, b"".join(digests))
            self._noted[_name(stamp)] = msgspec.msgpack.encode(entry)

    def keep(self) -> None:
        """Remember what was noted: it was verified.

        Raises:
            ArtifactError: It can't be written.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, body in self._noted.items():
                fd, draft = tempfile.mkstemp(dir=self._folder, prefix=".")
                with open(fd, "wb") as file:  # noqa: PTH123  a descriptor, not a path
                    file.write(body + merkle.plain(body))
                Path(draft).replace(self._folder / name)
            self._forget()
        except OSError as error:
            raise ArtifactError(f"{self._folder}: can't be written: {error.strerror}") from error
        self._noted.clear()

    def _forget(self) -> None:
        kept = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in kept[:-MAX_FILES]:
            path.unlink(missing_ok=True)


def _name(stamp: Stamp) -> str:
    return f"{stamp.device:x}-{stamp.inode:x}"
