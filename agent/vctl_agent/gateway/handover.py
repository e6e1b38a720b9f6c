"""A gateway's upgrade: the new process takes the sockets of the old one, which ends its streams.

The listening sockets themselves are handed on (SCM_RIGHTS, unix(7)), so there is one queue of
connections throughout: none is refused, and none is lost in the queue of a socket that closes, as
can happen with SO_REUSEPORT.

The order that a change must keep:

1. the old one saves what it acts on, and takes no more words from the agent;
2. it hands its clients' and its probes' sockets on, and the new one serves by what was saved;
3. the new one says so, and the old one accepts nobody any more: a failure before this changes
   nothing;
4. for `LINGER_S` the old one answers what comes on the connections that it has, and ends each;
5. it hands on the agent's socket: now the new one speaks for both, and counts what the old one
   still has in flight, until that is nothing.

From 1 to 5 nobody confirms anything to the agent, so no release is taken from under a request.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec
import structlog

from vctl_agent.local import InFlight
from vctl_agent.unixpath import within_reach
from vctl_plans.errors import VctlError

LINGER_S = 3.0
"""That clients of the old process have to learn, by an answer, that they are to connect anew."""

TELL_S = 0.2
_WITHIN_S = 30.0
_MAX_LINE_BYTES = 4 * 2**20
_ASK, _CLIENTS, _SERVING, _AGENT = b"take over\n", b"clients admin\n", b"serving\n", b"agent\n"

_log = structlog.get_logger()


class Counts(msgspec.Struct, frozen=True):
    """What the old process still has in flight."""

    in_flight: tuple[InFlight, ...]


class Estate:
    """The old process's side of one handover, on a connection of the new one."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def offer(self, clients: int, admin: int) -> bool:
        """Hand on the sockets of these descriptors; return whether the new process serves."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_WITHIN_S):
                socket.send_fds(self._connection, [_CLIENTS], [clients, admin])
                return await loop.sock_recv(self._connection, len(_SERVING)) == _SERVING
        except (OSError, TimeoutError) as cause:
            _log.warning("nobody took over", error=str(cause) or type(cause).__name__)
            return False

    def hand_on(self, agent: int) -> None:
        """Hand on the agent's socket."""
        socket.send_fds(self._connection, [_AGENT], [agent])

    async def tell(self, in_flight: tuple[InFlight, ...]) -> None:
        """Tell what is in flight here."""
        line = msgspec.json.encode(Counts(in_flight)) + b"\n"
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._connection, line)


class Inheritance:
    """The new process's side."""

    def __init__(
        self, connection: socket.socket, clients: socket.socket, admin: socket.socket
    ) -> None:
        self.clients = clients
        self.admin = admin
        self._connection = connection

    async def agents_socket(self) -> socket.socket:
        """Say that we serve; return the agent's socket once the old process is done with it.

        Raises:
            VctlError: The old process ended before.
        """
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._connection, _SERVING)
        readable = asyncio.Event()
        loop.add_reader(self._connection, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._connection)
        said, (descriptor,) = _received(self._connection, _AGENT, 1)
        del said
        return _adopted(descriptor)

    async def counts(self) -> AsyncIterator[tuple[InFlight, ...]]:
        """Yield what the old process has in flight, until that is nothing, or it is gone."""
        reader, writer = await asyncio.open_unix_connection(
            sock=self._connection, limit=_MAX_LINE_BYTES
        )
        try:
            while line := await reader.readline():
                yield msgspec.json.decode(line, type=Counts).in_flight
        except (OSError, ValueError) as cause:
            _log.warning("the former gateway cannot be heard", error=str(cause))
        finally:
            writer.close()
        yield ()


def control_path(state: Path) -> Path:
    """Return where a gateway can be asked to hand over."""
    return state / "control.sock"


def take_over(state: Path) -> Inheritance | None:
    """Ask the gateway that runs on *state* for its sockets; None: none runs.

    Raises:
        VctlError: One runs, and does not hand over.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_WITHIN_S)
    try:
        with within_reach(control_path(state)) as near:
            connection.connect(near)
    except OSError:
        connection.close()
        return None
    try:
        connection.sendall(_ASK)
        _, (clients, admin) = _received(connection, _CLIENTS, 2)
    except OSError as cause:
        connection.close()
        raise VctlError(f"the gateway that runs does not hand over: {cause}") from cause
    connection.setblocking(False)
    return Inheritance(connection, _adopted(clients), _adopted(admin))


def merged(*lists: Iterable[InFlight]) -> tuple[InFlight, ...]:
    """Return the sums by release, in order."""
    sums: dict[tuple[str, int], int] = {}
    for each in (each for listed in lists for each in listed):
        key = (each.service, each.number)
        sums[key] = sums.get(key, 0) + each.count
    return tuple(
        InFlight(service=service, number=number, count=count)
        for (service, number), count in sorted(sums.items())
    )


def _received(connection: socket.socket, word: bytes, count: int) -> tuple[bytes, list[int]]:
    said, descriptors, _, _ = socket.recv_fds(connection, len(word), count)
    if said != word or len(descriptors) != count:
        for descriptor in descriptors:
            os.close(descriptor)
        raise VctlError(
            "the gateway that runs does not hand over", hint="see its log, or stop it first"
        )
    return said, descriptors


def _adopted(descriptor: int) -> socket.socket:
    found = socket.socket(fileno=descriptor)
    found.setblocking(False)
    return found
