"""`file://`: a folder or one file on a mount.

Nothing is reached by a link, and nothing but regular files is opened: see `weights.files`. Which
places may be read at all is for the caller to say.
"""

import contextlib
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from vctl_plans.errors import ArtifactError, FileChanged, SourceError, SourceRefused
from vctl_plans.location import checked
from vctl_plans.weights import files as disk
from vctl_plans.weights.selection import MANIFEST_NAME, MANIFEST_SUFFIX

from .port import CHUNK_BYTES, MAX_MANIFEST_BYTES, Entry, Source, check_path

_READABLE = 0o644  # to all, as mkstemp's files are not


class FileSource(Source):
    """A place on this machine's file systems.

    Args:
        uri: A `file://` URI.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.path = Path(unquote(checked(uri).path))
        self._seen: dict[str, disk.Stamp] = {}

    def manifest_document(self) -> bytes | None:
        """See `Source.manifest_document`."""
        with self._open() as source:
            name = source.single + MANIFEST_SUFFIX if source.single else MANIFEST_NAME
            try:
                return disk.read_small(source, name, MAX_MANIFEST_BYTES)
            except FileChanged:  # it is not there: nobody has listed it before
                return None

    def files(self) -> tuple[Entry, ...]:
        """See `Source.files`."""
        with self._open() as source:
            paths = [source.single] if source.single else sorted(_below(source, ""))
            return tuple(self._entry(source, path) for path in paths)

    def read(self, file: Entry, begin: int, end: int) -> Generator[bytes]:
        """See `Source.read`."""
        with self._open() as source:
            fd = disk.open_file(source, check_path(file.path, self.uri))
            shown = source.display(file.path)
            try:
                stamp = self._seen.setdefault(file.path, disk.stamp_of(fd))
                if stamp.size != file.size:
                    rule = f"has {stamp.size} bytes, and not {file.size}"
                    raise disk.changed(shown, rule)
                for at in range(begin, end, CHUNK_BYTES):
                    size = min(CHUNK_BYTES, end - at)
                    yield disk.read_exactly(fd, size, at, path=shown)
                disk.check_same(stamp, disk.stamp_of(fd), path=shown)
            finally:
                os.close(fd)

    def write(self, path: str, content: BinaryIO, *, size: int) -> None:
        """See `Source.write`."""
        place = self.path / check_path(path, self.uri)
        draft = ""
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _refuse_links(self.path, place)
            fd, draft = tempfile.mkstemp(dir=place.parent, prefix=".")
            with open(fd, "wb") as file:  # noqa: PTH123  a descriptor, not a path
                while piece := content.read(CHUNK_BYTES):
                    file.write(piece)
                file.flush()
                os.fchmod(fd, _READABLE)
                os.fsync(fd)
                _check_size(place, file.tell(), size)
            Path(draft).replace(place)
            draft = ""
        except PermissionError as error:
            raise SourceRefused(f"{place}: can't be written: {error.strerror}") from error
        except OSError as error:
            raise SourceError(f"{place}: can't be written: {error.strerror}") from error
        finally:
            if draft:
                Path(draft).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _open(self) -> Iterator[disk.Source]:
        try:
            self.path.lstat()
        except FileNotFoundError as error:
            raise SourceError(f"{self.path}: is not there on this machine") from error
        except OSError as error:
            raise SourceError(f"{self.path}: can't be read: {error.strerror}") from error
        with disk.open_source(self.path) as source:
            yield source

    def _entry(self, source: disk.Source, path: str) -> Entry:
        stamp = disk.stamp_at(source, path)
        self._seen[path] = stamp
        return Entry(path, stamp.size, "-".join(map(str, stamp)))


def _below(source: disk.Source, folder: str) -> Iterator[str]:
    for entry in disk.list_folder(source, folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_folder:
            yield from _below(source, path)
        else:
            yield path


def _refuse_links(base: Path, place: Path) -> None:
    """Refuse a folder between *base* and *place* that is a link: it would lead elsewhere."""
    for folder in place.relative_to(base).parents:
        if (base / folder).is_symlink() and folder != Path():
            raise SourceRefused(f"{base / folder}: is a symbolic link")


def _check_size(place: Path, written: int, size: int) -> None:
    if written != size:
        raise ArtifactError(f"{place}: {written} bytes were given, and not {size}")
