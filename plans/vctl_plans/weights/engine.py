"""The hashing engine: one thread a core, each pulling the next piece from one counter.

A thread owns one buffer of a leaf's size; a piece is one `preadv` and one `blake3()` call, both
without the interpreter's lock. Memory does not grow with the file but for 32 bytes a piece.
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from blake3 import blake3

from vctl_plans.errors import InvariantError

from . import workers
from .files import PAGE_BYTES, fill, fill_direct, page_buffer
from .merkle import LEAF_BYTES


class Piece(NamedTuple):
    """A byte range of an open file, not longer than a leaf.

    Args:
        fd: The open file.
        path: The file, for errors.
        begin: The first byte.
        end: The byte after the last one.
        is_direct: Whether `files.go_direct` prepared the file.
    """

    fd: int
    path: str
    begin: int
    end: int
    is_direct: bool = False


def hash_pieces(
    pieces: Sequence[Piece],
    *,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[bytes]:
    """Hash each piece with plain BLAKE3.

    Args:
        pieces: In the order in which they should be read.
        threads: As many as there are cores for this process, unless given.
        progress: Called in the caller's thread with the bytes hashed so far, ten times a second and
            at the end. What it raises stops the hashing.

    Returns:
        The digests, in the order of `pieces`.

    Raises:
        FileChanged: A file shrank.
        ArtifactError: A file could not be read.
    """
    work = _Hashing(pieces)
    count = min(threads or len(os.sched_getaffinity(0)), len(pieces))
    workers.run(work, threads=count, name="hash", progress=progress)
    return work.digests


class _Hashing(workers.Work):
    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__()
        self._pieces = pieces
        self._next = 0
        self.digests = [b""] * len(pieces)

    def share(self) -> None:
        buffer = page_buffer(LEAF_BYTES + 2 * PAGE_BYTES)
        while (index := self._claim()) is not None:
            piece = self._pieces[index]
            self.digests[index] = blake3(_content(piece, buffer)).digest()
            with self.lock:
                self.bytes_done += piece.end - piece.begin

    def _claim(self) -> int | None:
        with self.lock:
            index = self._next
            if self.stopped or index == len(self._pieces):
                return None
            self._next = index + 1
            return index


def _content(piece: Piece, buffer: memoryview) -> memoryview:
    if piece.end - piece.begin > LEAF_BYTES:
        raise InvariantError(f"{piece}: longer than a leaf")
    view = buffer[: piece.end - piece.begin]
    if piece.is_direct:
        return fill_direct(piece.fd, buffer, piece.begin, piece.end, path=piece.path)
    fill(piece.fd, view, piece.begin, path=piece.path)
    return view
