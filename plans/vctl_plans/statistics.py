"""What gateways count per release, merged over nodes and cut into windows.

The rule to keep: a request is counted once. A gateway's counts only grow, from its start, under
one route revision; hence a snapshot is named by (boot id, route revision), of two with one name
the larger is the later, and a restarted gateway begins another name instead of a lower count.
"""

from bisect import bisect_left
from collections.abc import Iterable
from enum import StrEnum
from typing import Self

import msgspec

from vctl_plans.codec import Value
from vctl_plans.sketch import Counts, Sketch, SketchRecorder


class ErrorClass(StrEnum):
    """How a request failed. Order is the number of its bin: append only."""

    SERVER = "server"  # the engine answered 5xx
    TIMEOUT = "timeout"
    BROKEN = "broken"  # no connection, or a stream that ended early
    CLIENT = "client"  # 4xx: says nothing of the release
    CANCELLED = "cancelled"  # the client went away


class FinishReason(StrEnum):
    """Why an answer ended, in OpenAI's words. Order is the number of its bin: append only."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    ERROR = "error"
    OTHER = "other"


_ERRORS = tuple(ErrorClass)
_FINISHES = tuple(FinishReason)
_AGAINST_RELEASE = (ErrorClass.SERVER, ErrorClass.TIMEOUT, ErrorClass.BROKEN)
_LONGEST_BIN = 20  # answers of 2**19 tokens and more

LOGPROB_EDGES = (0.001, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0)
"""Upper edges of the bins of minus a token's log-probability; one more bin lies above."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One request that has ended."""

    latency_s: float
    first_token_s: float | None = None  # None: no token was sent
    error: ErrorClass | None = None
    answer_tokens: int | None = None
    finish: FinishReason | None = None
    logprobs: tuple[float, ...] = ()  # of the answer's tokens, where the engine gave them


class Statistics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of many requests; a monoid under `merge`, `Statistics()` its identity."""

    requests: int = 0
    errors: Counts = Counts()  # by `ErrorClass`
    latency: Sketch = Sketch()  # of requests that did not fail
    first_token: Sketch = Sketch()
    answer_tokens: Counts = Counts()  # bin i: 2**(i-1) to 2**i - 1 tokens; bin 0: none
    logprobs: Counts = Counts()  # by `LOGPROB_EDGES`
    finish: Counts = Counts()  # by `FinishReason`

    @property
    def failures(self) -> int:
        """How many requests failed in a way that speaks against the release."""
        return sum(self.error_count(kind) for kind in _AGAINST_RELEASE)

    def error_count(self, kind: ErrorClass) -> int:
        """Return how many requests failed in this way."""
        return self.errors.at(_ERRORS.index(kind))

    def finish_count(self, reason: FinishReason) -> int:
        """Return how many answers ended for this reason."""
        return self.finish.at(_FINISHES.index(reason))

    @classmethod
    def merge(cls, parts: Iterable["Statistics"]) -> Self:
        """Return the sum: commutative, associative, with the empty statistics as identity."""
        every = list(parts)
        return cls(
            requests=sum(part.requests for part in every),
            errors=Counts.merge(part.errors for part in every),
            latency=Sketch.merge(part.latency for part in every),
            first_token=Sketch.merge(part.first_token for part in every),
            answer_tokens=Counts.merge(part.answer_tokens for part in every),
            logprobs=Counts.merge(part.logprobs for part in every),
            finish=Counts.merge(part.finish for part in every),
        )

    def since(self, earlier: "Statistics") -> "Statistics | None":
        """Return what was counted after *earlier*; None when a count went back.

        That is then no earlier snapshot of the same gateway, and no difference has a meaning.
        """
        requests = self.requests - earlier.requests
        errors = self.errors.since(earlier.errors)
        latency = self.latency.since(earlier.latency)
        first_token = self.first_token.since(earlier.first_token)
        answer_tokens = self.answer_tokens.since(earlier.answer_tokens)
        logprobs = self.logprobs.since(earlier.logprobs)
        finish = self.finish.since(earlier.finish)
        if requests < 0 or errors is None or latency is None or first_token is None:
            return None
        if answer_tokens is None or logprobs is None or finish is None:
            return None
        return Statistics(
            requests=requests,
            errors=errors,
            latency=latency,
            first_token=first_token,
            answer_tokens=answer_tokens,
            logprobs=logprobs,
            finish=finish,
        )


class Origin(msgspec.Struct, frozen=True, order=True):
    """Who counted, and under which route: two counts of one origin are never added."""

    boot_id: str  # of the gateway
    route_revision: int


class Snapshot(Value, frozen=True, kw_only=True):
    """One release on one gateway, counted since `origin` began. Bounded: see `sketch`."""

    service: str
    number: int
    digest: str
    origin: Origin
    statistics: Statistics = Statistics()


class NodeStatistics(Value, frozen=True, kw_only=True):
    """What one node's gateway counted of the services that a rollout watches."""

    node: str
    boot_id: str  # of the agent that wrote it
    snapshots: tuple[Snapshot, ...] = ()


class Window(msgspec.Struct, frozen=True):
    """What a fleet counted between two looks at it."""

    statistics: Statistics
    refused: tuple[Origin, ...] = ()  # whose counts went back: left out, to be named


def latest(snapshots: Iterable[Snapshot]) -> dict[Origin, Snapshot]:
    """Return one snapshot an origin: the one with most requests, however often it was read."""
    found: dict[Origin, Snapshot] = {}
    for snapshot in snapshots:
        known = found.get(snapshot.origin)
        if known is None or snapshot.statistics.requests > known.statistics.requests:
            found[snapshot.origin] = snapshot
    return found


def window(before: Iterable[Snapshot], after: Iterable[Snapshot]) -> Window:
    """Return what was counted between two looks at one release's snapshots.

    An origin that is new in *after* counts in full, for it began in between (or was silent at
    *before*); one that has gone adds nothing, for what it counted last is not known.
    """
    start = latest(before)
    parts: list[Statistics] = []
    refused: list[Origin] = []
    for origin, snapshot in latest(after).items():
        known = start.get(origin)
        added = snapshot.statistics.since(known.statistics if known else Statistics())
        if added is None:
            refused.append(origin)
        else:
            parts.append(added)
    return Window(Statistics.merge(parts), tuple(sorted(refused)))


class Recorder:
    """Counts one release's requests in a gateway; `snapshot` is cumulative."""

    def __init__(self) -> None:
        self._requests = 0
        self._latency = SketchRecorder()
        self._first_token = SketchRecorder()
        self._errors = [0] * len(_ERRORS)
        self._finishes = [0] * len(_FINISHES)
        self._answer_tokens = [0] * (_LONGEST_BIN + 1)
        self._logprobs = [0] * (len(LOGPROB_EDGES) + 1)

    def add(self, sample: Sample) -> None:
        """Count one request; what has failed has no latency, else failing fast looks like speed."""
        self._requests += 1
        if sample.error is not None:
            self._errors[_ERRORS.index(sample.error)] += 1
        else:
            self._latency.add(sample.latency_s)
        if sample.first_token_s is not None:
            self._first_token.add(sample.first_token_s)
        if sample.answer_tokens is not None:
            self._answer_tokens[length_bin(sample.answer_tokens)] += 1
        if sample.finish is not None:
            self._finishes[_FINISHES.index(sample.finish)] += 1
        for logprob in sample.logprobs:
            self._logprobs[logprob_bin(logprob)] += 1

    def snapshot(self) -> Statistics:
        """Return all that was counted."""
        return Statistics(
            requests=self._requests,
            errors=Counts.of(self._errors),
            latency=self._latency.snapshot(),
            first_token=self._first_token.snapshot(),
            answer_tokens=Counts.of(self._answer_tokens),
            logprobs=Counts.of(self._logprobs),
            finish=Counts.of(self._finishes),
        )


def length_bin(tokens: int) -> int:
    """Return the bin of an answer's length."""
    return min(tokens.bit_length(), _LONGEST_BIN)


def logprob_bin(logprob: float) -> int:
    """Return the bin of a token's log-probability."""
    return bisect_left(LOGPROB_EDGES, -logprob)
