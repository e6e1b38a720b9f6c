"""The token that a user and password buy, bought once for all tasks.

Authenticate costs the server 74 ms of CPU (bcrypt), so a thousand tasks that are refused with one
old token ask for one new one. Certificates need no token at all: fleets should use them.
"""

import asyncio

import grpc
import grpc.aio

from vctl_plans.errors import Rejected
from vctl_plans.store import messages
from vctl_plans.store.channels import Channels, Lane, finish
from vctl_plans.store.verdicts import BrokenAttemptError, TokenRefusedError, translate


class Tokens:
    """Hands out the present token; "" where none is needed."""

    def __init__(self, channels: Channels, user: str, password: str) -> None:
        self._channels = channels
        self._user = user
        self._password = password
        self._token: str | None = None if user else ""
        self._lock = asyncio.Lock()

    async def token(self, timeout_s: float) -> str:
        """Return the token, after authenticating if there is none.

        Raises:
            BrokenAttemptError: No server answered in time, this task's or another's request.
            Rejected: User or password is wrong.
        """
        if self._token is not None:
            return self._token
        try:
            async with asyncio.timeout(timeout_s), self._lock:
                if self._token is None:
                    self._token = await self._authenticate(timeout_s)
                return self._token
        except TimeoutError as cause:
            raise BrokenAttemptError("no token in time", may_be_applied=False) from cause
        except BrokenAttemptError as cause:  # what the token was wanted for was never sent
            raise BrokenAttemptError(str(cause), may_be_applied=False) from cause

    def refuse(self, token: str, error: TokenRefusedError) -> None:
        """Forget *token*, unless another task already got a newer one.

        Raises:
            Rejected: There is no user to authenticate as.
        """
        if not self._user:
            raise Rejected(
                f"etcd wants to know who asks ({error})",
                code=grpc.StatusCode.UNAUTHENTICATED.name,
                hint="set ETCDCTL_USER=user:password, or a client certificate",
            ) from error
        if self._token == token:
            self._token = None

    async def _authenticate(self, timeout_s: float) -> str:
        request = messages.authenticate_request(self._user, self._password)
        async with self._channels.use(Lane.CALLS) as conduit:
            await conduit.connect(timeout_s)
            method = messages.AUTHENTICATE.bind(conduit.channel)
            try:
                reply = await finish(method(request), timeout_s)
            except grpc.aio.AioRpcError as error:
                if "authentication is not enabled" in (error.details() or ""):
                    return ""
                raise translate(error) from error
        return str(reply.token)
