import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from blake3 import blake3

from vctl_plans.errors import ArtifactError, FileChanged, InvariantError
from vctl_plans.weights import engine, files, workers
from vctl_plans.weights.engine import Piece

MIB = 1 << 20


class Stop(Exception):  # noqa: N818  what a progress callback may raise
    pass


class Counted(list[Piece]):
    """Pieces that count how many of them were taken."""

    taken = 0

    def __getitem__(self, index):
        self.taken += 1
        return super().__getitem__(index)


@pytest.fixture
def opened(tmp_path):
    content = os.urandom(5 * MIB + 17)
    path = tmp_path / "w"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    yield fd, str(path), content
    os.close(fd)


def pieces_of(opened: tuple[int, str, bytes], size: int) -> list[Piece]:
    fd, path, content = opened
    return [
        Piece(fd, path, at, min(at + size, len(content))) for at in range(0, len(content), size)
    ]


@pytest.mark.parametrize("threads", [None, 1, 2, 5])
@pytest.mark.parametrize("size", [4096, 1000 * 1000, MIB])
def test_engine_digests_are_those_of_the_ranges(opened, threads, size):
    pieces = pieces_of(opened, size)
    expected = [blake3(opened[2][piece.begin : piece.end]).digest() for piece in pieces]
    assert engine.hash_pieces(pieces, threads=threads) == expected


@pytest.mark.parametrize("size", [777, 4096, 1000 * 1000, MIB])
def test_engine_reads_directly_whatever_the_ranges(opened, size):
    fd, _, content = opened
    if not files.go_direct(fd):
        pytest.skip("no direct reads here")
    pieces = [piece._replace(is_direct=True) for piece in pieces_of(opened, size)]
    expected = [blake3(content[piece.begin : piece.end]).digest() for piece in pieces]
    assert engine.hash_pieces(pieces) == expected


def test_engine_direct_reads_notice_the_end(opened):
    fd, path, content = opened
    if not files.go_direct(fd):
        pytest.skip("no direct reads here")
    for begin in (len(content) - 1, len(content) + 5000):
        with pytest.raises(FileChanged, match="it ends at byte"):
            engine.hash_pieces([Piece(fd, path, begin, begin + 2, is_direct=True)])


def test_engine_refuses_a_piece_that_is_longer_than_a_leaf(opened):
    with pytest.raises(InvariantError, match="longer than a leaf"):
        engine.hash_pieces(pieces_of(opened, MIB + 1))


def test_engine_takes_nothing_and_empty_pieces(opened):
    fd, path, _ = opened
    assert engine.hash_pieces([]) == []
    assert engine.hash_pieces([Piece(fd, path, 3, 3)]) == [blake3(b"").digest()]


def test_engine_progress_ends_at_all_bytes(opened):
    seen: list[int] = []
    engine.hash_pieces(pieces_of(opened, MIB), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(opened[2])


def test_engine_progress_may_stop_it(opened, monkeypatch):
    def stop(done: int) -> None:
        raise Stop

    monkeypatch.setattr(workers, "_PROGRESS_EVERY_S", 0.0)
    pieces = Counted(pieces_of(opened, 64))
    before = threading.active_count()
    with pytest.raises(Stop):
        engine.hash_pieces(pieces, progress=stop)
    assert threading.active_count() == before
    assert pieces.taken < len(pieces)


def test_engine_failure_of_one_thread_stops_the_others(opened):
    fd, path, content = opened
    beyond = Piece(fd, path, len(content), len(content) + 1)
    pieces = Counted([beyond, *pieces_of(opened, 64)])
    with pytest.raises(ArtifactError, match="changed while it was read: it ends at byte"):
        engine.hash_pieces(pieces, threads=2)
    assert pieces.taken < len(pieces) // 2


def test_engine_reports_a_read_error(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)  # a directory can be opened but not read
    try:
        with pytest.raises(ArtifactError, match="can't be read: Is a directory"):
            engine.hash_pieces([Piece(fd, "d", 0, 1)])
    finally:
        os.close(fd)


def test_engine_runs_beside_itself(opened):
    pieces = pieces_of(opened, MIB)
    expected = [blake3(opened[2][piece.begin : piece.end]).digest() for piece in pieces]
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(engine.hash_pieces, pieces, threads=2) for _ in range(8)]
        assert all(run.result() == expected for run in runs)
