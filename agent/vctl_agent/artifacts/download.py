"""Blocks are read from a source, each verified before it is written to its place.

Neighbouring blocks are asked for as one range, and several ranges at once. A connection that is cut
costs the block that it was cut in. What may go better is tried again a few times, with growing
waits; what will not is raised at once, and so is a source that changed.
"""

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from blake3 import blake3

from vctl_agent.artifacts.layout import Tell, opened
from vctl_plans.errors import RootMismatch, SourceError, SourceMissing, SourceRefused
from vctl_plans.sources import Entry, Source
from vctl_plans.weights import Block, Manifest
from vctl_plans.weights.workers import Work, run

STREAMS = 4
_LONGEST_RANGE_BYTES = 32 * 1024 * 1024
_SHORTEST_RANGE_BYTES = 4 * 1024 * 1024
_RANGES_A_STREAM = 4  # so that none waits long for the last one

_TRIES = 5  # in a row, without a block that came
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 3.0
_WRONG_TRIES = 3  # of one block whose bytes were others: perhaps only the way was bad

Wait = Callable[[float], bool]
"""Waits so many seconds; True: it was told to end."""


def download(
    folder: Path,
    missing: Sequence[Block],
    source: Source,
    *,
    manifest: Manifest,
    tell: Tell,
    wait: Wait | None = None,
) -> None:
    """Read blocks from a source into the unfinished copy; all of them, or it raises.

    Args:
        folder: The unfinished copy.
        missing: The blocks, in order.
        source: Where they are.
        manifest: Whose they are.
        tell: Told the bytes that came so far; what it raises breaks the reads.
        wait: For tests; see `Wait`.

    Raises:
        RootMismatch: The source has other bytes.
        FileChanged: It did not hold still.
        SourceError: It cannot be read, now or ever, by its kind.
    """
    entries = {file.path: Entry(file.path, file.size) for file in manifest.files}
    ended = threading.Event()
    ranges = _ranges(missing, source, entries)
    work = _Downloading(folder, ranges, source, entries=entries, wait=wait or ended.wait)

    def told(done: int) -> None:
        try:
            tell(done)
        except BaseException:  # whatever it raised, also the end of the agent; raised again
            ended.set()
            source.abort()
            raise

    run(work, threads=min(STREAMS, len(ranges)), name="fetch", progress=told)


def _ranges(
    missing: Sequence[Block], source: Source, entries: dict[str, Entry]
) -> list[list[Block]]:
    """Cut the blocks into what is asked for at once; a whole file where there are no ranges."""
    share = sum(block.size for block in missing) // (STREAMS * _RANGES_A_STREAM)
    longest = max(_SHORTEST_RANGE_BYTES, min(share, _LONGEST_RANGE_BYTES))
    cut: list[list[Block]] = []
    whole: dict[str, list[Block]] = {}
    for block in missing:
        whole.setdefault(block.path, []).append(block)
    for path, blocks in whole.items():
        parts = _parts(blocks, longest)
        can_seek = len(parts) == 1 and not blocks[0].begin
        can_seek = can_seek or source.has_ranges(entries[path])
        cut += parts if can_seek else [blocks]
    return cut


def _parts(blocks: Sequence[Block], longest: int) -> list[list[Block]]:
    parts: list[list[Block]] = []
    for block in blocks:
        last = parts[-1] if parts else []
        is_next = last and last[-1].end == block.begin
        if is_next and block.end - last[0].begin <= longest:
            last.append(block)
        else:
            parts.append([block])
    return parts


class _Downloading(Work):
    def __init__(
        self,
        folder: Path,
        ranges: Sequence[list[Block]],
        source: Source,
        *,
        entries: dict[str, Entry],
        wait: Wait,
    ) -> None:
        super().__init__()
        self._folder = folder
        self._ranges = list(reversed(ranges))
        self._source = source
        self._entries = entries
        self._wait = wait
        self._wrong: Counter[Block] = Counter()

    def share(self) -> None:
        while not self.stopped:
            with self.lock:
                if not self._ranges:
                    return
                blocks = self._ranges.pop()
            self._bring(blocks)

    def _bring(self, todo: list[Block]) -> None:
        """Bring the blocks of one range; what came is taken off *todo*."""
        failures = 0
        while todo and not self.stopped:
            before = len(todo)
            try:
                self._stream(todo)
            except (SourceMissing, SourceRefused):
                raise
            except SourceError:
                failures = 1 if len(todo) < before else failures + 1
                if failures >= _TRIES or self.stopped:
                    raise
                longest = min(_FIRST_WAIT_S * 2.0**failures, _LONGEST_WAIT_S)
                if self._wait(longest * random.uniform(0.5, 1.0)):  # noqa: S311  no secret
                    raise

    def _stream(self, todo: list[Block]) -> None:
        """Read from the first block to the end of the last; blocks between them may be had."""
        begin, end = todo[0].begin, todo[-1].end
        path, at, held = todo[0].path, begin, bytearray()
        with (
            opened(self._folder, path) as fd,
            closing(self._source.read(self._entries[path], begin, end)) as pieces,
        ):
            for piece in pieces:
                held += piece
                while todo and not self.stopped:
                    gap = min(todo[0].begin - at, len(held))
                    del held[:gap]
                    at += gap
                    if len(held) < todo[0].size or at < todo[0].begin:
                        break
                    self._take(fd, todo[0], held)
                    at += todo[0].size
                    del held[: todo.pop(0).size]
                if self.stopped:
                    return

    def _take(self, fd: int, block: Block, held: bytearray) -> None:
        """Write a block, if it is the one that is meant."""
        with memoryview(held) as whole, whole[: block.size] as content:
            if blake3(content).digest() != block.digest:
                raise self._other_bytes(block)
            _write(fd, content, block.begin)
        with self.lock:
            self.bytes_done += block.size

    def _other_bytes(self, block: Block) -> SourceError | RootMismatch:
        with self.lock:
            self._wrong[block] += 1
            times = self._wrong[block]
        where = f"{self._source.uri}: {block.path}: bytes {block.begin} to {block.end}"
        rule = f"{where} ({block.part}) are not those that the root names"
        if times < _WRONG_TRIES:
            return SourceError(rule)
        return RootMismatch(rule, tensors=(block.part,))


def _write(fd: int, content: memoryview, at: int) -> None:
    done = 0
    while done < len(content):
        done += os.pwrite(fd, content[done:], at + done)
