"""A closed loop of HTTP clients that costs little: one request a connection at a time."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any


@dataclass(slots=True)
class Load:
    """What a run came to."""

    wall_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    events: int = 0
    failures: int = 0

    @property
    def requests(self) -> int:
        return len(self.latencies_s)

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.wall_s

    def quantile_ms(self, share: float) -> float:
        """Return a quantile of the latencies, in milliseconds."""
        if len(self.latencies_s) < 2:
            return 1000 * self.latencies_s[0] if self.latencies_s else float("nan")
        return 1000 * statistics.quantiles(self.latencies_s, n=1000)[int(share * 1000) - 1]


class _Client(asyncio.Protocol):
    def __init__(
        self, request: bytes, load: Load, ends: float, done: "asyncio.Future[None]"
    ) -> None:
        self._request, self._load, self._ends, self._done = request, load, ends, done
        self._begun = 0.0
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._begun = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._load.events += data.count(b"data: {")
        self._buffer = self._buffer + data if self._buffer else data
        if not self._is_whole():
            return
        now = time.perf_counter()
        self._load.latencies_s.append(now - self._begun)
        self._load.failures += not self._buffer.startswith(b"HTTP/1.1 200")
        self._buffer = b""
        if now < self._ends:
            self._ask()
        else:
            self._transport.close()

    def _is_whole(self) -> bool:
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return False
        head = self._buffer[:head_end].lower()
        at = head.find(b"content-length: ")
        if at < 0:
            if self._buffer.endswith(b"0\r\n\r\n"):
                return True
            self._buffer = self._buffer[: head_end + 4] + self._buffer[-8:]  # keeps it short
            return False
        length = int(head[at + 16 :].split(b"\r", 1)[0])
        return len(self._buffer) >= head_end + 4 + length

    def connection_lost(self, exc: Exception | None) -> None:
        if self._buffer or exc:
            self._load.failures += 1
        if not self._done.done():
            self._done.set_result(None)


def request(host: str, port: int, body: bytes, *, path: str = "/v1/chat/completions") -> bytes:
    """Return a request as bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def run(address: tuple[str, int], body: bytes, *, connections: int, seconds: float) -> Load:
    """Ask again and again over *connections* connections for *seconds*."""
    loop = asyncio.get_running_loop()
    load = Load()
    began = time.perf_counter()
    text = request(*address, body)
    waits: Sequence[asyncio.Future[None]] = [loop.create_future() for _ in range(connections)]
    for done in waits:
        client = partial(_Client, text, load, began + seconds, done)
        await loop.create_connection(client, *address)
    await asyncio.gather(*waits)
    load.wall_s = time.perf_counter() - began
    return load
