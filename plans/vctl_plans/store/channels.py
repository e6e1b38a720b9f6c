"""gRPC channels to the cluster's endpoints: which one is used now, and when to close an old one.

A channel is never closed while anybody uses it: grpc.aio would raise `CancelledError` in the
readers of its streams, which looks like their own cancellation. So whoever turns away from an
endpoint only *retires* its channels; the last user closes them.

Calls and streams have TCP connections of their own, else a large range read starves the watches
(etcd#15402). A retired endpoint is later met with a new channel, never one in gRPC's reconnect
backoff.
"""

import asyncio
import enum
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from vctl_plans.store.settings import Endpoint
from vctl_plans.store.verdicts import BrokenAttemptError

_MAX_RECEIVE_BYTES = 64 * 1024 * 1024
_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),  # etcd tolerates 5 s and more while a stream is open
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", _MAX_RECEIVE_BYTES),
    ("grpc.enable_http_proxy", 0),  # endpoints are addressed directly, as by `gateway`
    ("grpc.enable_retries", 0),  # gRPC must not repeat a write behind our back
    # In spite of its name the time limit of a connection attempt; `Conduit.connect` has its own.
    ("grpc.min_reconnect_backoff_ms", 20_000),
    ("grpc.use_local_subchannel_pool", 1),  # else all channels share one connection
)


async def finish(call: Awaitable[Any], timeout_s: float) -> Any:
    """Return what a unary *call* returns, within *timeout_s*.

    gRPC's own ``timeout=`` is not used: grpc.aio adds it to the wall clock.

    Raises:
        BrokenAttemptError: It took too long, or its channel was closed.
        AioRpcError: As gRPC says.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await call
    except TimeoutError as cause:
        raise BrokenAttemptError(f"no answer in {timeout_s:.1f} s") from cause
    except asyncio.CancelledError as cause:
        task = asyncio.current_task()
        if task is None or task.cancelling() > 0:
            raise
        # Not ours: grpc.aio raises it when the channel is closed.
        raise BrokenAttemptError("the channel was closed") from cause


class Lane(enum.Enum):
    """What a channel carries; each lane has a connection of its own."""

    CALLS = "calls"
    STREAMS = "streams"


class Conduit:
    """A channel to one endpoint, with its users counted."""

    def __init__(self, endpoint: Endpoint, channel: grpc.aio.Channel) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.users = 0
        self.is_retired = False

    async def connect(self, timeout_s: float) -> None:
        """Wait until the channel is connected, or has failed to, so that a call fails with why.

        A call that is sent only after this is known to have reached a server, or not to have.

        Raises:
            BrokenAttemptError: Neither happened in time.
        """
        settled = {
            grpc.ChannelConnectivity.READY,
            grpc.ChannelConnectivity.TRANSIENT_FAILURE,
            grpc.ChannelConnectivity.SHUTDOWN,
        }
        try:
            async with asyncio.timeout(timeout_s):
                while (state := self.channel.get_state(try_to_connect=True)) not in settled:
                    await self.channel.wait_for_state_change(state)
        except TimeoutError as cause:
            raise BrokenAttemptError("no connection in time", may_be_applied=False) from cause


class Channels:
    """The channels of one store.

    Args:
        endpoints: Where the cluster is; tried in a random order, so that a fleet spreads over it.
        credentials: Called for each new TLS channel, so that renewed certificate files are read.
    """

    def __init__(
        self, endpoints: Sequence[Endpoint], credentials: Callable[[], grpc.ChannelCredentials]
    ) -> None:
        self._endpoints = random.sample(endpoints, len(endpoints))
        self._credentials = credentials
        self._current = 0
        self._conduits: dict[Lane, Conduit] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._generation = 0
        self._is_closed = False

    @property
    def generation(self) -> int:
        """Counts the turns away from an endpoint; remember it before an attempt."""
        return self._generation

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that is used now."""
        return self._endpoints[self._current]

    @asynccontextmanager
    async def use(self, lane: Lane) -> AsyncIterator[Conduit]:
        """Lend the channel of the endpoint that is used now.

        Raises:
            BrokenAttemptError: The store is closed, or a certificate file can't be read.
        """
        if self._is_closed:
            raise BrokenAttemptError("the store is closed", may_be_applied=False)
        conduit = self._conduits.get(lane)
        if conduit is None:
            conduit = self._conduits[lane] = self._open(self.endpoint)
        conduit.users += 1
        try:
            yield conduit
        finally:
            conduit.users -= 1
            self._close_if_unused(conduit)

    def rotate(self, seen: int) -> None:
        """Turn to the next endpoint, once for all that failed in the generation *seen*."""
        if seen != self._generation:
            return
        self._generation += 1
        self._current = (self._current + 1) % len(self._endpoints)
        self._retire()

    async def close(self) -> None:
        """Retire everything, lend nothing more, wait until what nobody uses is closed."""
        self._is_closed = True
        self._retire()
        if self._closing:
            await asyncio.wait(self._closing)

    def _retire(self) -> None:
        retired = list(self._conduits.values())
        self._conduits.clear()
        for conduit in retired:
            conduit.is_retired = True
            self._close_if_unused(conduit)

    def _close_if_unused(self, conduit: Conduit) -> None:
        if conduit.is_retired and conduit.users == 0:
            task = asyncio.get_running_loop().create_task(conduit.channel.close(None))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _open(self, endpoint: Endpoint) -> Conduit:
        if endpoint.is_tls:
            channel = grpc.aio.secure_channel(
                endpoint.target, self._credentials(), options=_OPTIONS
            )
        else:
            channel = grpc.aio.insecure_channel(endpoint.target, options=_OPTIONS)
        return Conduit(endpoint, channel)
