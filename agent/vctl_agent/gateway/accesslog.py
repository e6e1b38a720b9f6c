"""One line a request on stderr: who got what, how long it took; nothing of what was said.

Lines of one turn of the event loop are written at once, right after it. Where the program's log is
JSON they are made here, since a logger that is made for everything costs as much as the rest of a
request; for a person at a terminal, or a test, they go the way of all other lines.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from vctl_agent.gateway.passage import Passage, reasons

_encode = msgspec.json.Encoder().encode
_log = structlog.get_logger()


class AccessLog:
    """Writes the lines.

    Args:
        bound: What stands in every line, for example ``node="n1"``.
    """

    def __init__(self, **bound: str) -> None:
        self._bound = bound | {"level": "info"}
        self._lines: list[bytes] = []
        last = structlog.get_config()["processors"][-1]
        self._is_json = isinstance(last, structlog.processors.JSONRenderer)

    def note(self, passage: Passage, seconds: float) -> None:
        """Note a request that has ended."""
        line: dict[str, Any] = {
            "request_id": passage.request_id,
            "service": passage.service,
            "release": passage.release,
            "route": passage.route,
            "status": passage.status,
            "peer": passage.leg.peer,
            "hop": passage.leg.sender,
            "ms": round(seconds * 1000, 2),
            **reasons(passage),
        }
        if not self._is_json:
            _log.info("request", **line)
            return
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.flush)
        line |= self._bound
        line["event"] = "request"
        line["timestamp"] = datetime.now(UTC).isoformat()
        self._lines.append(_encode(line))

    def flush(self) -> None:
        """Write what was noted."""
        if self._lines:
            text = b"\n".join([*self._lines, b""])
            self._lines.clear()
            sys.stderr.flush()
            while text:
                text = text[os.write(sys.stderr.fileno(), text) :]
