"""One request as it is counted: how it ended, how long it took, what its answer came to.

The rule to keep: a request that a release was chosen for is one sample, on every path out. It is
counted where its block is left, so no path can forget it, and none can count it twice.

Nothing of what is said is kept: numbers and the reason of the end. They are read from what
`rewrite` has split anyway, and only while the service is watched. What is not certain (the tokens
of a stream that does not tell them, the answer of a request that failed) is left out.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from vctl_agent.gateway.answers import Refused
from vctl_agent.gateway.wire.incoming import Late
from vctl_plans.statistics import ErrorClass, FinishReason, Sample

MAX_LOGPROBS = 8192
"""Of one request: what a longer answer says beyond is not counted."""

_FIRST_CLIENT_ERROR, _FIRST_SERVER_ERROR = 400, 500
_GATEWAY_TIMEOUT = 504
_NULL = b"null"
_FINISHES = {reason.value: reason for reason in FinishReason}

T = TypeVar("T")


class Counted(msgspec.Struct, frozen=True):
    """What a request counts for."""

    service: str
    number: int
    digest: str
    route_revision: int


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None
    output_tokens: int | None = None  # the same, of /v1/messages and /v1/responses


class _Token(msgspec.Struct):
    logprob: float | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None  # chat
    token_logprobs: list[float | None] | None = None  # completions


class _Choice(msgspec.Struct):
    index: int = 0
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Failure(msgspec.Struct):
    code: int | str | None = None


_usage = msgspec.json.Decoder(_Usage | None)
_choices = msgspec.json.Decoder(list[_Choice])
_failure = msgspec.json.Decoder(_Failure)

Ended = Callable[["Observation", ErrorClass | None], None]


class Observation(msgspec.Struct, eq=False):
    """One request, from the choice of its release to its end."""

    counted: Counted  # what it counts for
    _ended: Ended  # is told of its end, once
    _clock: Callable[[], float]  # seconds, monotonic
    is_read: bool  # whether its answer is read: tokens, reason of the end, log-probabilities
    _began: float
    first_s: float | None = None  # until the first piece of a streamed answer
    _failed: ErrorClass | None = None  # as the answer itself tells
    _tokens: int | None = None
    _finish: FinishReason | None = None
    _logprobs: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended(self, self._failed if error is None else _class(error))

    def answered(self, status: int) -> None:
        """Note the status with which an engine answers; of several answers the last counts."""
        self._failed = None
        if status >= _FIRST_CLIENT_ERROR:
            is_own = status >= _FIRST_SERVER_ERROR
            self._failed = ErrorClass.SERVER if is_own else ErrorClass.CLIENT

    def streamed(self) -> None:
        """Note that a piece of a streamed answer came."""
        if self.first_s is None and self._failed is None:
            self.first_s = self._clock() - self._began

    def stopped(self, *, is_whole: bool) -> None:
        """Note that the engine ended a stream of events; one without its last word broke off."""
        if not is_whole and self._failed is None:
            self._failed = ErrorClass.BROKEN

    def read(self, fields: Mapping[str, msgspec.Raw]) -> None:
        """Note what an answer, or an event of a stream, says of itself; *fields* are its own."""
        failure = fields.get("error")
        if failure is not None and bytes(failure) != _NULL:
            self._failed = _told(failure)
        if not self.is_read:
            return
        # A stream may tell its usage with each event: the last word counts.
        usage = _decoded(_usage, fields.get("usage"))
        for tokens in (usage.completion_tokens, usage.output_tokens) if usage else ():
            if tokens is not None:
                self._tokens = max(tokens, 0)
        for choice in _decoded(_choices, fields.get("choices")) or ():
            self._read_choice(choice)

    def _read_choice(self, choice: _Choice) -> None:
        if choice.finish_reason is not None and not choice.index:
            self._finish = _FINISHES.get(choice.finish_reason, FinishReason.OTHER)
        told = choice.logprobs
        if told is None or len(self._logprobs) >= MAX_LOGPROBS:
            return
        values = [token.logprob for token in told.content or ()]
        values += told.token_logprobs or ()
        self._logprobs += [value for value in values if value is not None]

    def sample(self, error: ErrorClass | None) -> Sample:
        """Return the request as it is counted, which has ended with *error*."""
        is_whole = error is None
        return Sample(
            latency_s=self._clock() - self._began,
            first_token_s=self.first_s,
            error=error,
            answer_tokens=self._tokens if is_whole else None,
            finish=self._finish if is_whole else None,
            logprobs=tuple(self._logprobs[:MAX_LOGPROBS]) if is_whole else (),
        )


def _class(cause: BaseException) -> ErrorClass:
    """Return how a request failed that ended with *cause*."""
    if isinstance(cause, Refused):
        if cause.status == _GATEWAY_TIMEOUT:
            return ErrorClass.TIMEOUT
        is_clients = cause.status < _FIRST_SERVER_ERROR
        return ErrorClass.CLIENT if is_clients else ErrorClass.BROKEN
    if isinstance(cause, ConnectionError | asyncio.CancelledError):
        return ErrorClass.CANCELLED
    is_late = isinstance(cause.__cause__, Late)
    return ErrorClass.TIMEOUT if is_late else ErrorClass.BROKEN


def _told(failure: msgspec.Raw) -> ErrorClass:
    """Return the class of an error that stands in an answer whose status is good."""
    told = _decoded(_failure, failure)
    code = told.code if told else None
    is_clients = isinstance(code, int) and _FIRST_CLIENT_ERROR <= code < _FIRST_SERVER_ERROR
    return ErrorClass.CLIENT if is_clients else ErrorClass.SERVER


def _decoded(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | None) -> T | None:
    """Return a value of an engine's answer; None when it is missing or of another shape."""
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None
