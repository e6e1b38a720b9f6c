"""One line a request on stderr: who got what, how long it took; nothing of what was said.

Lines are gathered for `EVERY_S` and written at once by a thread of their own, so that neither a
request nor any other waits for whoever reads stderr. What waits to be written is bounded: beyond,
lines are dropped and counted, and the log itself says how many once it can.

Where the program's log is JSON they are made here, since a logger that is made for everything costs
as much as the rest of a request; for a person at a terminal, or a test, they go the way of all
other lines.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import TextIO

import msgspec
import structlog

from vctl_agent.gateway.logwriter import Writer
from vctl_agent.gateway.passage import Passage

EVERY_S = 0.05
"""A process that is killed takes at most so much of its log along."""

_encode = msgspec.json.Encoder().encode
_log = structlog.get_logger()


class _Line(msgspec.Struct, frozen=True):
    """What stands in a line, but for what stands in every line, and for the time."""

    request_id: str
    service: str
    release: int
    route: int
    status: int
    peer: str
    hop: str
    ms: float
    why: str | msgspec.UnsetType = msgspec.UNSET
    tenant: str | msgspec.UnsetType = msgspec.UNSET
    group: str | msgspec.UnsetType = msgspec.UNSET
    held_ms: float | msgspec.UnsetType = msgspec.UNSET


class AccessLog:
    """Writes the lines.

    Args:
        on_drop: Told of how many lines were dropped.
        file: Where to; stderr if not given.
        bound: What stands in every line, for example ``node="n1"``.
    """

    def __init__(
        self,
        *,
        on_drop: Callable[[int], None] = lambda _: None,
        file: TextIO | None = None,
        **bound: str,
    ) -> None:
        self._on_drop = on_drop
        self._dropped = 0  # lines that the log has yet to tell of
        self._noted: list[tuple[Passage, float, float]] = []
        self._second = 0
        self._second_text = b""
        fixed = _encode(bound | {"level": "info", "event": "request"})
        self._fixed = b"," + fixed[1:-1] + b',"timestamp":"'
        last = structlog.get_config()["processors"][-1]
        self._is_json = isinstance(last, structlog.processors.JSONRenderer)
        self._writer = Writer(file or sys.stderr) if self._is_json else None

    def note(self, passage: Passage, seconds: float) -> None:
        """Note a request that has ended."""
        if not self._is_json:
            _log.info("request", **msgspec.to_builtins(_line(passage, seconds)))
            return
        if not self._noted:
            asyncio.get_running_loop().call_later(EVERY_S, self.flush)
        self._noted.append((passage, seconds, time.time()))

    def flush(self) -> None:
        """Have what was noted written."""
        noted, self._noted = self._noted, []
        if not noted or self._writer is None:
            return
        lines = [self._line(*each) for each in noted]
        if self._dropped:
            lines.append(self._of_dropped())
        if self._writer.write(b"\n".join([*lines, b""])):
            self._dropped = 0
        else:
            self._dropped += len(noted)
            self._on_drop(len(noted))

    def close(self) -> None:
        """Write what is left, for as long as somebody takes it."""
        self.flush()
        if self._writer is not None:
            self._writer.close()

    def _line(self, passage: Passage, seconds: float, at: float) -> bytes:
        line = _encode(_line(passage, seconds))
        return b'%b%b%b"}' % (line[:-1], self._fixed, self._time(at))

    def _of_dropped(self) -> bytes:
        said = _encode({"dropped": self._dropped})[:-1]
        fixed = self._fixed.replace(b'"event":"request"', b'"event":"access log lines dropped"')
        return b'%b%b%b"}' % (said, fixed, self._time(time.time()))

    def _time(self, at: float) -> bytes:
        """Return a time in UTC as ISO 8601 has it; the seconds' text is made once a second."""
        second = int(at)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%b.%06d+00:00" % (self._second_text, int((at - second) * 1e6))


def _line(passage: Passage, seconds: float) -> _Line:
    held_s = passage.held_s
    return _Line(
        passage.request_id,
        passage.service,
        passage.release,
        passage.route,
        passage.status,
        passage.leg.peer,
        passage.leg.sender,
        int(seconds * 100_000 + 0.5) / 100,  # `round` to two places takes as long as all the rest
        passage.why or msgspec.UNSET,
        passage.tenant or msgspec.UNSET,
        passage.group or msgspec.UNSET,
        round(held_s * 1000, 2) if held_s else msgspec.UNSET,
    )
