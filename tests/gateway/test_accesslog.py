"""The access log: its lines, that nobody waits for its reader, that nothing is lost at an end."""

import asyncio
import io
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog

from tests.gateway.support import eventually
from vctl_agent.gateway.accesslog import AccessLog
from vctl_agent.gateway.logwriter import Writer
from vctl_agent.gateway.passage import Passage


class Pipe(io.StringIO):
    """Stands for stderr: a pipe that is read only when the test does."""

    def __init__(self) -> None:
        self.reads, self.writes = os.pipe()

    def fileno(self) -> int:
        return self.writes

    def taken(self) -> bytes:
        return os.read(self.reads, 2**20)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    before = structlog.get_config()
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    yield made
    structlog.configure(**before)


def passage(request_id: str = "r-1", **fields: Any) -> Passage:
    given: dict[str, Any] = {"service": "support", "release": 1, "route": 5, "status": 200}
    return Passage(request_id, b"", 0.0, **(given | fields))


async def test_line_says_who_got_what_and_when(pipe: Pipe):
    log = AccessLog(file=pipe, node="n1", fleet="dev")
    log.note(passage(why="stable"), 0.01234)
    log.note(passage(group="staff", held_s=0.25), 1.0)
    log.close()
    first, second = map(json.loads, pipe.taken().splitlines())

    at = datetime.fromisoformat(first.pop("timestamp"))
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    wanted = {"request_id": "r-1", "service": "support", "release": 1, "route": 5, "status": 200}
    wanted |= {"peer": "", "hop": "", "ms": 12.34, "why": "stable"}
    assert first == wanted | {"node": "n1", "fleet": "dev", "level": "info", "event": "request"}
    assert ("staff", 250.0, 1000.0) == (second["group"], second["held_ms"], second["ms"])


async def test_lines_are_written_without_being_asked_for(pipe: Pipe):
    log = AccessLog(file=pipe)
    log.note(passage("a"), 0.1)
    log.note(passage("b"), 0.1)
    said = await asyncio.to_thread(pipe.taken)

    assert ["a", "b"] == [json.loads(line)["request_id"] for line in said.splitlines()]
    log.close()


async def test_nobody_waits_for_a_log_that_is_not_read_and_what_is_dropped_is_said(pipe: Pipe):
    dropped: list[int] = []
    log = AccessLog(file=pipe, on_drop=dropped.append)
    log._writer = Writer(pipe, most_bytes=200_000)
    for _ in range(40):  # far more than a pipe holds
        for _ in range(100):
            log.note(passage("x" * 100), 0.1)
        log.flush()
    assert sum(dropped) > 0

    lines: list[dict[str, Any]] = []
    rest = b""

    def has_said() -> bool:
        nonlocal rest
        *whole, rest = (rest + pipe.taken()).split(b"\n")
        lines.extend(map(json.loads, whole))
        if log._dropped:  # it says so with the next line for which there is room
            log.note(passage("more"), 0.1)
            log.flush()
        said: list[int] = [line["dropped"] for line in lines if line["event"] != "request"]
        return sum(said) == sum(dropped)

    await eventually(has_said)
    log.close()


async def test_log_that_nobody_reads_does_not_keep_the_program_from_ending(pipe: Pipe):
    log = AccessLog(file=pipe)
    for _ in range(2000):
        log.note(passage("x" * 100), 0.1)
    log.flush()
    assert log._writer is not None
    log._writer.close(timeout_s=0.05)

    assert pipe.taken()  # the beginning was written


async def test_log_whose_reader_has_gone_costs_nothing(pipe: Pipe):
    os.close(pipe.reads)
    log = AccessLog(file=pipe)
    log.note(passage(), 0.1)
    log.close()
    assert log._writer is not None
    assert not log._writer.is_alive
