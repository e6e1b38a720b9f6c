"""Whole files' digests as `b3sum FILE` prints them: a second pass, for comparing with other tools.

Leaves begin where tensors do, not where BLAKE3's own chunks begin, so a file's digest can't be made
from them. Reading and hashing take turns in two buffers, while BLAKE3 uses all cores; no file is
mapped.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from blake3 import blake3

from . import files, selection
from .files import Source
from .scan import Progress
from .selection import Kind

_BUFFER_BYTES: Final = 4 << 20


def file_digests(
    path: str | os.PathLike[str], *, kind: Kind | None = None, progress: Progress | None = None
) -> Iterator[tuple[str, str]]:
    """Hash each file of an artifact in whole.

    Args:
        path: A directory, or one file.
        kind: See `scan`.
        progress: Called with (bytes done, bytes of all files).

    Yields:
        The file as it would be named on a command line, and the digest in hexadecimal.

    Raises:
        FileChanged: A file changed meanwhile.
        ArtifactError: As `scan` does, for what is not selected or can't be read.
    """
    with files.open_source(path) as source, ThreadPoolExecutor(1) as reader:
        stamps = {
            name: files.stamp_at(source, name) for name in selection.select(source, kind).files
        }
        total, done = sum(stamp.size for stamp in stamps.values()), 0
        for name, stamp in stamps.items():
            hasher = blake3(max_threads=blake3.AUTO)
            for part in _parts(source, name, stamp, reader):
                hasher.update(part)
                done += len(part)
                if progress:
                    progress(done, total)
            files.check_unchanged(source, name, stamp)
            yield source.display(name), hasher.hexdigest()


def line(path: str, digest: str) -> str:
    """Write a digest as `b3sum` and `sha256sum` do: a name that needs it is escaped, and marked."""
    escaped = path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{'' if escaped == path else chr(92)}{digest}  {escaped}"


def _parts(
    source: Source, name: str, stamp: files.Stamp, reader: ThreadPoolExecutor
) -> Iterator[memoryview]:
    """Yield a file's bytes, the next part being read while the last one is used."""
    fd = files.open_file(source, name)
    try:
        shown, size = source.display(name), stamp.size
        files.check_same(stamp, files.stamp_of(fd), path=shown)
        buffers = [memoryview(bytearray(min(_BUFFER_BYTES, size))) for _ in range(2)]

        def read(at: int) -> memoryview:
            part = buffers[at // _BUFFER_BYTES % 2][: min(_BUFFER_BYTES, size - at)]
            files.fill(fd, part, at, path=shown)
            return part

        coming = reader.submit(read, 0)
        for at in range(_BUFFER_BYTES, size + _BUFFER_BYTES, _BUFFER_BYTES):
            part = coming.result()
            if at < size:
                coming = reader.submit(read, at)
            yield part
    finally:
        reader.submit(int).result()  # no read is under way when the file is closed
        os.close(fd)
