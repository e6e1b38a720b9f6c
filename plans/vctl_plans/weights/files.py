"""Opening and reading files that others may be changing, or may have prepared to mislead.

Everything is opened from the source's own directory, one component at a time, and no link is
followed at any of them; what is not a regular file is refused after opening without blocking, so a
FIFO can't hang us. Plain reads only: a mapped file that shrinks kills the process (SIGBUS).

One kind of link is understood, without following it: in a snapshot of the Hugging Face cache each
file is a link to `blobs/<digest>` of the same repository. Its text must be exactly that, and the
blob is then opened by its own name, which may not be a link.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Final, NamedTuple

from vctl_plans.errors import ArtifactError, FileChanged, NotAllowed

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
PAGE_BYTES: Final = 4096  # what direct reads are aligned to; no disk asks for more
_OPEN_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_DIRECTORY
_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # named by git's SHA-1, or by SHA-256
_SNAPSHOTS = "snapshots"
_BLOBS = "blobs"
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
        blobs: The way from it to the blobs of its Hugging Face cache; empty where it is in none.
    """

    fd: int
    label: str
    single: str = ""
    blobs: str = ""

    def display(self, path: str) -> str:
        """Write a file's path for errors; quoted when it could not be printed as it is."""
        shown = "/".join(part for part in (self.label, path) if part) or "."
        return shown if shown.isprintable() else ascii(shown)

    def folder(self, path: str) -> list[Listed]:
        """List a folder below it; see `list_folder`."""
        return list_folder(self, path)


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
    is_folder = stat.S_ISDIR(mode)
    folder = named if is_folder else named.parent
    blobs = _way_to_blobs(folder)
    if stat.S_ISLNK(mode) and not blobs:
        raise NotAllowed(f"{named}: is a symbolic link", hint="name what it points to")
    if not (is_folder or stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise NotAllowed(f"{named}: is neither a directory nor a regular file")
    follow = 0 if is_folder else os.O_NOFOLLOW
    with _reading(str(folder)):
        fd = os.open(folder, _OPEN_FOLDER & ~follow)
    try:
        label = "" if str(folder) == "." else str(folder)
        yield Source(fd, label, "" if is_folder else named.name, blobs)
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
        FileChanged: It, which was listed, is not there.
        ArtifactError: It can't be opened.
    """
    with _reading(source.display(path)):
        try:
            fd = _open_beneath(source.fd, path, _OPEN_FILE)
        except FileNotFoundError as error:
            raise changed(source.display(path), "was removed while it was read") from error
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            fd = _open_blob(source, path)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise NotAllowed(f"{source.display(path)}: is not a regular file")
    return fd


def stamp_at(source: Source, path: str) -> Stamp:
    """Take the stamp of a file below the source; see `open_file`."""
    fd = open_file(source, path)
    try:
        return stamp_of(fd)
    finally:
        os.close(fd)


def read_exactly(fd: int, size: int, offset: int, *, path: str) -> bytes:
    """Read `size` bytes at `offset`.

    Raises:
        FileChanged: The file ended before.
        ArtifactError: It could not be read.
    """
    buffer = bytearray(size)
    fill(fd, memoryview(buffer), offset, path=path)
    return bytes(buffer)


def fill(fd: int, view: memoryview, offset: int, *, path: str) -> None:
    """Read into the whole of `view` from `offset`.

    Raises:
        FileChanged: The file ended before.
        ArtifactError: It could not be read.
    """
    done = 0
    with _reading(path):
        while done < len(view):
            got = os.preadv(fd, [view[done:] if done else view], offset + done)
            if got == 0:
                raise _ended(path, offset + done)
            done += got


def fill_direct(fd: int, buffer: memoryview, begin: int, end: int, *, path: str) -> memoryview:
    """Read the bytes [begin, end) of a file that `go_direct` prepared, whole pages at a time.

    Args:
        fd: The file.
        buffer: Begins on a page, and is two pages longer than what is read.
        begin: The first byte.
        end: The byte after the last one.
        path: The file, for errors.

    Returns:
        Where in `buffer` the bytes are.

    Raises:
        FileChanged: The file ended before.
        ArtifactError: It could not be read.
    """
    first = begin - begin % PAGE_BYTES
    whole = -(-(end - first) // PAGE_BYTES) * PAGE_BYTES
    done = 0
    with _reading(path):
        while done < end - first:
            got = os.preadv(fd, [buffer[done:whole]], first + done)
            done += got
            if done < end - first and (got == 0 or done % PAGE_BYTES):
                raise _ended(path, first + done)
    return buffer[begin - first : end - first]


def go_direct(fd: int) -> bool:
    """Let an open file be read past the page cache (O_DIRECT); False where its file system can't.

    From then on only `fill_direct` can read it.
    """
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
        os.preadv(fd, [page_buffer(PAGE_BYTES)], 0)
    except OSError:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
        return False
    return True


def page_buffer(size: int) -> memoryview:
    """Make a buffer that begins on a page, as direct reads need it: memory, no mapped file."""
    return memoryview(mmap(-1, size))


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
        FileChanged: It was written, replaced or removed since `before` was taken.
        NotAllowed: It is a link now.
    """
    fd = open_file(source, path)
    try:
        check_same(before, stamp_of(fd), path=source.display(path))
    finally:
        os.close(fd)


def check_same(before: Stamp, now: Stamp, *, path: str) -> None:
    """Require that two stamps of a file are equal.

    Raises:
        FileChanged: They differ; it says in what.
    """
    names = [name for name in Stamp._fields if getattr(now, name) != getattr(before, name)]
    if names:
        raise changed(path, f"changed while it was read ({', '.join(names)})")


def changed(path: str, rule: str) -> FileChanged:
    """Make the error for a file that did not hold still."""
    return FileChanged(f"{path}: {rule}", hint="wait until its writer is done, then try again")


def _ended(path: str, at: int) -> FileChanged:
    return changed(path, f"changed while it was read: it ends at byte {at} now")


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def _listed(source: Source, folder: str, entry: os.DirEntry[str]) -> Listed:
    path = source.display(f"{folder}/{entry.name}" if folder else entry.name)
    if entry.is_symlink():
        _blob_of(source, f"{folder}/{entry.name}" if folder else entry.name)
        return Listed(entry.name, is_folder=False)
    is_folder = entry.is_dir(follow_symlinks=False)
    if not is_folder and not entry.is_file(follow_symlinks=False):
        raise NotAllowed(f"{path}: is neither a folder nor a regular file")
    return Listed(entry.name, is_folder)


def _open_beneath(root_fd: int, path: str, flags: int) -> int:
    """Open a path component by component, so that no folder on its way can be a link."""
    with _parent_of(root_fd, path) as (at, name):
        return os.open(name, flags, dir_fd=at)


@contextmanager
def _parent_of(root_fd: int, path: str) -> Iterator[tuple[int, str]]:
    *folders, name = path.split("/")
    at = os.dup(root_fd)
    try:
        for folder in folders:
            below = os.open(folder, _OPEN_FOLDER, dir_fd=at)
            os.close(at)
            at = below
        yield at, name
    finally:
        os.close(at)


def _way_to_blobs(folder: Path) -> str:
    """Name the way from a folder of a Hugging Face cache's snapshot to the blobs; else empty.

    ``<repository>/snapshots/<revision>/...``, beside ``<repository>/blobs/``.
    """
    real = Path(os.path.realpath(folder))
    for depth, at in enumerate((real, *real.parents)):
        blobs = at.parent.parent / _BLOBS
        if at.parent.name == _SNAPSHOTS and blobs.is_dir() and not blobs.is_symlink():
            return "/".join([".."] * (depth + 2) + [_BLOBS])
    return ""


def _open_blob(source: Source, path: str) -> int:
    blob = _blob_of(source, path)
    try:
        return _open_beneath(source.fd, blob, _OPEN_FILE)
    except FileNotFoundError as error:
        rule = f"its blob {blob} is missing"
        raise ArtifactError(f"{source.display(path)}: {rule}", hint="download it again") from error


def _blob_of(source: Source, path: str) -> str:
    """Name the blob that a link of a snapshot means.

    Raises:
        NotAllowed: The link is none of the repository's own.
    """
    with _parent_of(source.fd, path) as (at, name):
        target = os.readlink(name, dir_fd=at)
    way, _, blob = target.rpartition("/")
    if not source.blobs or way != "../" * path.count("/") + source.blobs:
        raise NotAllowed(f"{source.display(path)}: is a symbolic link", hint=_LINK_HINT)
    if not _BLOB.fullmatch(blob):
        rule = "is a symbolic link to what is no blob of its repository"
        raise NotAllowed(f"{source.display(path)}: {rule}", hint=_LINK_HINT)
    return f"{source.blobs}/{blob}"


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotAllowed(f"{path}: is a symbolic link", hint=_LINK_HINT) from error
        raise ArtifactError(f"{path}: can't be read: {error.strerror}") from error
