"""Opening and reading files that others may be changing, or may have prepared to mislead.

Everything is opened from the source's own directory, one component at a time, and no link is
followed at any of them; what is not a regular file is refused after opening without blocking, so a
FIFO can't hang us. Plain reads only: a mapped file that shrinks kills the process (SIGBUS).
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vctl_plans.errors import ArtifactError, NotAllowed

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_OPEN_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_DIRECTORY
_LINK_HINT = "name what the link points to, or copy the file here"


class Stamp(NamedTuple):
    """What changes when a file is written or replaced."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class Listed(NamedTuple):
    """A name in a folder."""

    name: str
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Source:
    """An open directory, and whether one file in it is meant.

    Args:
        fd: The directory.
        label: How errors name it.
        single: The one file that is meant; empty for the whole directory.
    """

    fd: int
    label: str
    single: str = ""

    def display(self, path: str) -> str:
        """Write a file's path for errors; quoted when it could not be printed as it is."""
        shown = "/".join(part for part in (self.label, path) if part) or "."
        return shown if shown.isprintable() else ascii(shown)


@contextmanager
def open_source(path: str | os.PathLike[str]) -> Iterator[Source]:
    """Open what a person named: a directory, or one file by way of its directory.

    Raises:
        NotAllowed: It is a link, or neither a directory nor a regular file.
        ArtifactError: It does not exist or can't be read.
    """
    named = Path(path)
    try:
        with _reading(str(named)):
            mode = named.lstat().st_mode
    except ValueError as error:
        raise NotAllowed(f"{str(named)!a}: is no path: {error}") from error
    if stat.S_ISLNK(mode):
        raise NotAllowed(f"{named}: is a symbolic link", hint="name what it points to")
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise NotAllowed(f"{named}: is neither a directory nor a regular file")
    is_folder = stat.S_ISDIR(mode)
    folder = named if is_folder else named.parent
    follow = 0 if is_folder else os.O_NOFOLLOW
    with _reading(str(folder)):
        fd = os.open(folder, _OPEN_FOLDER & ~follow)
    try:
        label = "" if str(folder) == "." else str(folder)
        yield Source(fd, label, "" if is_folder else named.name)
    finally:
        os.close(fd)


def list_folder(source: Source, path: str) -> list[Listed]:
    """List a folder below the source, by name.

    Args:
        source: Where to look.
        path: The folder from there; empty for the source itself.

    Raises:
        NotAllowed: It holds a link or something that is neither a folder nor a regular file.
    """
    with _reading(source.display(path)):
        fd = _open_beneath(source.fd, path, _OPEN_FOLDER) if path else os.dup(source.fd)
        try:
            with os.scandir(fd) as entries:
                found = [_listed(source, path, entry) for entry in entries]
        finally:
            os.close(fd)
    return sorted(found)


def open_file(source: Source, path: str) -> int:
    """Open a regular file below the source; the caller closes it.

    Raises:
        NotAllowed: It, or a folder on its way, is a link; or it is no regular file.
        ArtifactError: It can't be opened.
    """
    with _reading(source.display(path)):
        fd = _open_beneath(source.fd, path, _OPEN_FILE)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise NotAllowed(f"{source.display(path)}: is not a regular file")
    return fd


def read_exactly(fd: int, size: int, offset: int, *, path: str) -> bytes:
    """Read `size` bytes at `offset`.

    Raises:
        ArtifactError: The file ended before, or could not be read.
    """
    buffer = bytearray(size)
    fill(fd, memoryview(buffer), offset, path=path)
    return bytes(buffer)


def fill(fd: int, view: memoryview, offset: int, *, path: str) -> None:
    """Read into the whole of `view` from `offset`.

    Raises:
        ArtifactError: The file ended before, or could not be read.
    """
    done = 0
    with _reading(path):
        while done < len(view):
            got = os.preadv(fd, [view[done:] if done else view], offset + done)
            if got == 0:
                rule = f"changed while it was read: it ends at byte {offset + done} now"
                raise changed(path, rule)
            done += got


def read_small(source: Source, path: str, limit: int) -> bytes:
    """Read a whole file that may not be longer than `limit` bytes.

    Raises:
        NotAllowed: It is longer, a link, or no regular file.
        ArtifactError: It can't be read.
    """
    shown = source.display(path)
    fd = open_file(source, path)
    try:
        size = stamp_of(fd).size
        if size > limit:
            raise NotAllowed(f"{shown}: {size} bytes, over the limit of {limit}")
        return read_exactly(fd, size, 0, path=shown)
    finally:
        os.close(fd)


def stamp_of(fd: int) -> Stamp:
    """Take an open file's stamp."""
    return _stamp(os.fstat(fd))


def check_unchanged(source: Source, path: str, before: Stamp) -> None:
    """Require that a path still names the same, unwritten file.

    Raises:
        ArtifactError: It was written, replaced or removed since `before` was taken.
    """
    try:
        now = _stamp(os.stat(path, dir_fd=source.fd, follow_symlinks=False))
    except OSError as error:
        raise changed(source.display(path), "was removed while it was read") from error
    check_same(before, now, path=source.display(path))


def check_same(before: Stamp, now: Stamp, *, path: str) -> None:
    """Require that two stamps of a file are equal.

    Raises:
        ArtifactError: They differ; it says in what.
    """
    names = [name for name in Stamp._fields if getattr(now, name) != getattr(before, name)]
    if names:
        raise changed(path, f"changed while it was read ({', '.join(names)})")


def changed(path: str, rule: str) -> ArtifactError:
    """Make the error for a file that did not hold still."""
    return ArtifactError(f"{path}: {rule}", hint="wait until its writer is done, then try again")


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def _listed(source: Source, folder: str, entry: os.DirEntry[str]) -> Listed:
    path = source.display(f"{folder}/{entry.name}" if folder else entry.name)
    if entry.is_symlink():
        raise NotAllowed(f"{path}: is a symbolic link", hint=_LINK_HINT)
    is_folder = entry.is_dir(follow_symlinks=False)
    if not is_folder and not entry.is_file(follow_symlinks=False):
        raise NotAllowed(f"{path}: is neither a folder nor a regular file")
    return Listed(entry.name, is_folder)


def _open_beneath(root_fd: int, path: str, flags: int) -> int:
    """Open a path component by component, so that no folder on its way can be a link."""
    *folders, name = path.split("/")
    at = os.dup(root_fd)
    try:
        for folder in folders:
            below = os.open(folder, _OPEN_FOLDER, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, flags, dir_fd=at)
    finally:
        os.close(at)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotAllowed(f"{path}: is a symbolic link", hint=_LINK_HINT) from error
        raise ArtifactError(f"{path}: can't be read: {error.strerror}") from error
