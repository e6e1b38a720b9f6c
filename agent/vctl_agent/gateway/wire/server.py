"""The clients' side: who listens, and what all of its connections have in common.

Whatever a client does, what it can hold is bounded: the head in bytes and fields, the body in
bytes, both in time, and how many requests it may send before the first is answered. One sweep over
all connections stands in place of a timer for each request.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from vctl_agent.gateway.wire.connection import Connection
from vctl_agent.gateway.wire.fields import Date
from vctl_agent.gateway.wire.heads import Heads
from vctl_agent.gateway.wire.message import Answer, Limits, Request

_SWEEP_S = 0.5

Handler = Callable[[Request], Awaitable[Answer]]


class Listener:
    """Makes connections; what they have in common.

    Args:
        handler: Answers a request.
        refuse: Makes the answer to what cannot be read, by its status.
        limits: What a client may take.
    """

    def __init__(self, handler: Handler, refuse: Callable[[int], Answer], limits: Limits) -> None:
        self.handler = handler
        self.refuse = refuse
        self.limits = limits
        self.date = Date()
        self.heads = Heads()
        self.connections: set[Connection] = set()

    def __call__(self) -> Connection:
        """Return the protocol of a new connection."""
        return Connection(self)

    async def sweep(self) -> None:
        """End connections that are late, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = time.monotonic()
            for connection in tuple(self.connections):
                connection.close_if_late(now)

    def close_idle(self) -> None:
        """End all connections that no request is on."""
        for connection in tuple(self.connections):
            connection.close_when_idle()

    def abort(self) -> None:
        """Break all connections."""
        for connection in tuple(self.connections):
            connection.abort()
