"""A TCP proxy between a store and its etcd that can fail in the ways a network does.

It runs in the test's own event loop. Faults work on connections that exist and on new ones alike.
"""

import asyncio
from contextlib import suppress
from typing import Self

_CHUNK_BYTES = 65_536

_TURNS_OF_AN_ACCEPT = 4
"""Turns of the loop, with one to spare, from accepting a socket until `_accept` is told of it."""


class Proxy:
    """Listens on a free port and passes everything on to *target_port* on loopback."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_open_for_new = asyncio.Event()
        self._is_open_for_new.set()
        self._is_flowing = asyncio.Event()
        self._is_flowing.set()
        self._is_dropping_replies = False
        self.dropped_bytes = 0
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        # Accepts that are under way end before the server closes: asyncio (3.11) attaches a new
        # transport to its server, fails when that is closed, and leaves the socket open.
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(_TURNS_OF_AN_ACCEPT):
            await asyncio.sleep(0)
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cut()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # aborted transports let go of their sockets in the loop's next turn

    @property
    def endpoint(self) -> str:
        """The address to give to the store."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def hold_new(self) -> None:
        """Accept new connections, and pass nothing on for them until `release_new`."""
        self._is_open_for_new.clear()

    def release_new(self) -> None:
        """End `hold_new`."""
        self._is_open_for_new.set()

    def freeze(self) -> None:
        """Pass nothing on, in either direction, while all connections stay open."""
        self._is_flowing.clear()

    def thaw(self) -> None:
        """End `freeze`; what was held is passed on."""
        self._is_flowing.set()

    def drop_replies(self) -> None:
        """Pass requests on, and swallow what the server answers, until the connection is cut."""
        self._is_dropping_replies = True

    def cut(self) -> None:
        """Reset all connections; new ones work as before, without dropping."""
        self._is_dropping_replies = False
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Note the connection at once.

        A coroutine here would be a task that can be cancelled before it begins, and then nobody
        would close the socket.
        """
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                await self._is_open_for_new.wait()
                server = await asyncio.open_connection("127.0.0.1", self._target_port)
                self._writers.add(server[1])
                await self._pass_both_ways((reader, writer), server)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.transport.abort()

    async def _pass_both_ways(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(client[0], server[1], is_reply=False))
                group.create_task(self._pass(server[0], client[1], is_reply=True))
        finally:
            for writer in (client[1], server[1]):
                writer.transport.abort()
                self._writers.discard(writer)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                await self._is_flowing.wait()
                if is_reply and self._is_dropping_replies:
                    self.dropped_bytes += len(chunk)
                    continue
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()
