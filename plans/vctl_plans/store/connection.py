"""Calls and streams to the cluster: time limits, other endpoints, tokens, and what a failure means.

The rule to keep: every await on the network ends. One attempt has `timeout_s`, one call all its
attempts have a budget, and both are measured on the monotonic clock. A request whose repetition
would show (`Effect.ONCE`) is sent again only if it certainly never reached a server.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio

from vctl_plans.errors import ForkedProcess, Indeterminate, Rejected, StoreError, StoreUnavailable
from vctl_plans.store.backoff import backoff_s
from vctl_plans.store.channels import Channels, Conduit, Lane, finish
from vctl_plans.store.guard import Fingerprint, HeaderGuard, StaleMemberError
from vctl_plans.store.messages import Effect, Message, Method, fingerprint, touched
from vctl_plans.store.refusals import explained, told
from vctl_plans.store.settings import StoreSettings
from vctl_plans.store.streams import Stream
from vctl_plans.store.tokens import Tokens
from vctl_plans.store.verdicts import BrokenAttemptError, TokenRefusedError, translate

_NEW_TOKENS_PER_CALL = 2
# A member without a leader then says so, instead of keeping silent while it is cut off.
_HAS_LEADER = ("hasleader", "true")


class Trial:
    """The attempts of one call, and the time that is left for them."""

    def __init__(self, method: Method, settings: StoreSettings) -> None:
        self._method = method
        self._settings = settings
        self._deadline = time.monotonic() + settings.budget_s
        self._attempts = 0
        self._new_tokens = 0
        self._may_be_applied = False  # by one of the attempts before
        self._last: dict[str, str] = {}  # of each endpoint, why it did not answer

    def timeout_s(self) -> float:
        """Seconds for the next attempt.

        Raises:
            StoreUnavailable: The budget is spent, and nothing can have been written.
            Indeterminate: The budget is spent, and an attempt may have written.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self.spent()
        return min(self._settings.timeout_s, left)

    def note_broken(self, error: BrokenAttemptError, endpoint: str) -> None:
        """Take note of an attempt that got no answer from *endpoint*.

        Raises:
            Indeterminate: It must not be repeated.
        """
        self._last[endpoint] = str(error)
        if self._method.effect is Effect.NONE or not error.may_be_applied:
            return
        self._may_be_applied = True
        if self._method.effect is Effect.ONCE:
            raise self.spent() from error

    def note_refused(self, error: TokenRefusedError) -> None:
        """Take note of a refused token.

        Raises:
            Rejected: A new token was refused as well, repeatedly.
        """
        self._new_tokens += 1
        if self._new_tokens > _NEW_TOKENS_PER_CALL:
            code = grpc.StatusCode.UNAUTHENTICATED.name
            raise Rejected(f"etcd refuses our token: {error}", code=code) from error

    async def pause(self) -> None:
        """Wait before the next attempt."""
        left = max(0.0, self._deadline - time.monotonic())
        await asyncio.sleep(min(backoff_s(self._attempts), left))
        self._attempts += 1

    def spent(self) -> StoreError:
        """Return the error that tells of all attempts."""
        tried = told(self._last, self._settings)
        text = f"etcd did not answer {self._method.name} in {self._settings.budget_s:g} s: {tried}"
        if self._may_be_applied:
            return Indeterminate(f"{text}: it may have been carried out", hint="read again")
        return StoreUnavailable(text, hint="check that etcd runs and that the endpoints are right")


class Connection:
    """What all parts of one `EtcdStore` speak through.

    Args:
        settings: Endpoints, certificates, user, time limit.
        known: The cluster as an earlier process knew it.
    """

    def __init__(self, settings: StoreSettings, known: Fingerprint | None = None) -> None:
        self.settings = settings
        endpoints = settings.parsed_endpoints
        self.guard = HeaderGuard(len(endpoints), known)
        self.channels = Channels(endpoints, self._credentials)
        self._tokens = Tokens(self.channels, settings)
        self._pid = os.getpid()
        self._is_closed = False

    def check_usable(self) -> None:
        """Refuse work that could only hang or harm.

        Raises:
            ForkedProcess: This process is a fork of the one that made the store.
            RestoredBackup: The cluster was found to be another one.
            StoreUnavailable: The store is closed.
        """
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"the store was made in process {self._pid} and is used in its fork {os.getpid()}",
                hint="open the store after the fork, or start processes with spawn",
            )
        self.guard.raise_alarm()
        if self._is_closed:
            raise StoreUnavailable("the store is closed")

    async def call(self, method: Method, request: Message) -> Message:
        """Send a request until it is answered or its budget is spent; see `timed_call`."""
        return (await self.timed_call(method, request))[0]

    async def timed_call(self, method: Method, request: Message) -> tuple[Message, float]:
        """Send a request; return the answer and the monotonic time at which it was sent.

        Raises:
            StoreUnavailable: Nobody answered, and nothing was written.
            Indeterminate: Nobody answered, and it may have been written.
            Rejected: The server said no; `CompactedError` and `TooLargeError` are among them.
        """
        self.check_usable()
        trial = Trial(method, self.settings)
        while True:
            generation, endpoint = self.channels.generation, self.channels.endpoint.url
            try:
                return await self._attempt(method, request, trial.timeout_s())
            except BrokenAttemptError as error:
                self.channels.rotate(generation)
                trial.note_broken(error, endpoint)
            except Rejected as error:
                reads, writes = touched(request)
                raise explained(error, self.settings, reads=reads, writes=writes) from error
            except TokenRefusedError as error:
                trial.note_refused(error)
            await trial.pause()
            if self._is_closed:
                raise trial.spent()

    @asynccontextmanager
    async def stream(self, method: Method) -> AsyncIterator[Stream]:
        """Open a stream; on the way out it is cancelled.

        Raises:
            BrokenAttemptError: It could not be opened, or broke while it was used; the endpoint is
                changed already.
            TokenRefusedError: As the name says; the token is forgotten already.
        """
        self.check_usable()
        generation = self.channels.generation
        token = ""
        try:
            token = await self._tokens.token(self.settings.timeout_s)
            async with self.channels.use(Lane.STREAMS) as conduit:
                await conduit.connect(self.settings.timeout_s)
                call = method.bind(conduit.channel)(metadata=_metadata(token, _HAS_LEADER))
                stream = Stream(call, self.guard)
                try:
                    yield stream
                finally:
                    await stream.close()
        except BrokenAttemptError:
            self.channels.rotate(generation)
            raise
        except TokenRefusedError as error:
            self._tokens.refuse(token, error)
            raise

    async def close(self) -> None:
        """Take no more work; close what nobody uses any more."""
        self._is_closed = True
        await self.channels.close()

    async def _attempt(
        self, method: Method, request: Message, timeout_s: float
    ) -> tuple[Message, float]:
        token = await self._tokens.token(timeout_s)
        async with self.channels.use(Lane.CALLS) as conduit:
            await conduit.connect(timeout_s)
            before = self.guard.fingerprint
            sent_at = time.monotonic()
            call = method.bind(conduit.channel)(request, metadata=_metadata(token))
            try:
                answer = await finish(call, timeout_s)
            except grpc.aio.AioRpcError as error:
                raise self._translated(error, token) from error
            self._check(method, answer, before, conduit)
        return answer, sent_at

    def _translated(self, error: grpc.aio.AioRpcError, token: str) -> Exception:
        translated = translate(error)
        if isinstance(translated, TokenRefusedError):
            self._tokens.refuse(token, translated)
        return translated

    def _check(
        self, method: Method, answer: Message, before: Fingerprint, conduit: Conduit
    ) -> None:
        seen = fingerprint(answer.header)
        try:
            if method.needs_quorum:
                self.guard.check_quorum(seen, before=before, endpoint=conduit.endpoint.target)
            else:
                self.guard.check_member(seen)
        except StaleMemberError as error:
            raise BrokenAttemptError(f"a stale member answered: {error}") from error

    def _credentials(self) -> grpc.ChannelCredentials:
        settings = self.settings
        return grpc.ssl_channel_credentials(
            root_certificates=_bytes_of(settings.ca_file),
            private_key=_bytes_of(settings.key_file),
            certificate_chain=_bytes_of(settings.cert_file),
        )


def _bytes_of(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes() if path else None
    except OSError as error:  # perhaps it is just being renewed
        raise BrokenAttemptError(f"{path}: {error.strerror}", may_be_applied=False) from error


def _metadata(token: str, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return (("token", token), *more) if token else more
