"""The token by which etcd knows us: bought once for all tasks by user and password, or given.

Authenticate costs the server 74 ms of CPU (bcrypt), so a thousand tasks that are refused with one
old token ask for one new one. Certificates need no token at all: fleets should use them.
"""

import asyncio

import grpc
import grpc.aio

from vctl_plans.errors import Rejected
from vctl_plans.store import messages
from vctl_plans.store.channels import Channels, Lane, finish
from vctl_plans.store.settings import StoreSettings, refused_token
from vctl_plans.store.verdicts import BrokenAttemptError, TokenRefusedError, translate


class Tokens:
    """Hands out the present token; "" where none is needed."""

    def __init__(self, channels: Channels, settings: StoreSettings) -> None:
        self._channels = channels
        self._settings = settings
        self._token: str | None = None if settings.user or settings.has_token else ""
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
            Rejected: There is no user to authenticate as, and no newer token at hand.
        """
        if self._settings.has_token and self._settings.present_token() == token:
            raise refused_token(str(error)) from error
        if not (self._settings.user or self._settings.has_token):
            raise Rejected(
                f"etcd wants to know who asks ({error})",
                code=grpc.StatusCode.UNAUTHENTICATED.name,
                hint="set ETCDCTL_USER=user:password, VCTL_TOKEN_FILE, or a client certificate",
            ) from error
        if self._token == token:
            self._token = None

    async def _authenticate(self, timeout_s: float) -> str:
        settings = self._settings
        if settings.has_token:
            return settings.present_token()
        request = messages.authenticate_request(settings.user, settings.password)
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
