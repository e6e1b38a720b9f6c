"""A lease of etcd, kept alive in the background, and how long it certainly lives.

The rule to keep: the holder stops before others can see the lease gone. Its time is counted from
the moment at which the last *acknowledged* keepalive was sent, on the local monotonic clock; the
server counts from a later moment. An acknowledgement that comes late buys no time that was not
asked for.
"""

import asyncio
import time

from vctl_plans.errors import LeaseLost, StoreError
from vctl_plans.store.backoff import backoff_s
from vctl_plans.store.connection import Connection
from vctl_plans.store.messages import KEEPALIVE, REVOKE, keepalive_request, revoke_request
from vctl_plans.store.streams import SilentError, Stream
from vctl_plans.store.verdicts import BrokenAttemptError, TokenRefusedError

_KEEPALIVES_PER_TTL = 3


class EtcdLease:
    """A lease that was granted.

    Args:
        sent_at: The monotonic time at which the grant was sent.
    """

    def __init__(
        self, connection: Connection, lease_id: int, *, ttl_s: float, sent_at: float
    ) -> None:
        self._connection = connection
        self._id = lease_id
        self._ttl_s = ttl_s
        self._deadline = sent_at + ttl_s
        self._lost = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def id(self) -> int:
        """The id to put keys under."""
        return self._id

    @property
    def ttl_s(self) -> float:
        """The time to live that the server granted, in seconds."""
        return self._ttl_s

    @property
    def is_over(self) -> bool:
        """Whether nothing keeps it alive any more."""
        return self._task.done()

    def valid_for_s(self) -> float:
        """Seconds that the lease certainly lives on; negative when it may be gone."""
        return self._deadline - time.monotonic()

    async def wait_lost(self) -> None:
        """Return when the lease is gone, or can be gone as far as others can see."""
        await self._lost.wait()

    async def revoke(self) -> None:
        """End the lease now, with every key under it; a lease already gone is no error."""
        await self.stop()
        try:
            await self._connection.call(REVOKE, revoke_request(self._id))
        except LeaseLost:
            return

    async def stop(self) -> None:
        """Keep the lease alive no longer: it runs out."""
        self._task.cancel()
        await asyncio.wait({self._task})
        self._give_up()  # a task cancelled before its first step runs no `finally`

    def _give_up(self) -> None:
        self._deadline = min(self._deadline, time.monotonic())
        self._lost.set()

    async def _run(self) -> None:
        """Renew until the lease is gone or its time has passed without an acknowledgement."""
        failures = 0
        try:
            await self._pause()
            while self.valid_for_s() > 0:
                deadline = self._deadline
                if await self._renew_until_broken():
                    break
                failures = 0 if self._deadline > deadline else failures + 1
                pause_s = backoff_s(failures, longest_s=0.5)
                await asyncio.sleep(min(pause_s, max(self.valid_for_s(), 0)))
        finally:
            self._give_up()

    async def _renew_until_broken(self) -> bool:
        """Renew over one stream; return True when the lease is gone, False when the stream is."""
        try:
            async with (
                asyncio.timeout(self.valid_for_s()) as until_connected,
                self._connection.stream(KEEPALIVE) as stream,
            ):
                until_connected.reschedule(None)
                return await self._renew_over(stream)
        except LeaseLost:
            return True
        except (BrokenAttemptError, TokenRefusedError, TimeoutError, StoreError):
            return False

    async def _renew_over(self, stream: Stream) -> bool:
        """Renew for as long as the lease lives; return True when it is gone."""
        while (left_s := self.valid_for_s()) > 0:
            timeout_s = min(self._connection.settings.timeout_s, left_s)
            sent_at = time.monotonic()
            await stream.write(keepalive_request(self._id), timeout_s)
            try:
                answer = await stream.read(timeout_s)
            except SilentError as error:
                raise BrokenAttemptError("the keepalive is not answered") from error
            if answer.TTL <= 0:
                return True
            self._deadline = sent_at + answer.TTL
            await self._pause()
        return True

    async def _pause(self) -> None:
        await asyncio.sleep(max(0.0, min(self._ttl_s / _KEEPALIVES_PER_TTL, self.valid_for_s())))
