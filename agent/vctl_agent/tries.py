"""What was tried on this node in vain, and how long that word counts.

It counts within the operator's last request: asked again, the node tries again. What an engine
refused, it refused as the process that it was: its next run is asked again. And a failed unload is
no word against a release that is wanted, or gone.
"""

from collections.abc import Callable

import msgspec
import structlog

from vctl_plans.errors import (
    MalformedPrompt,
    MalformedWeights,
    NotAllowed,
    PermanentEngineError,
    RootMismatch,
    SourceMissing,
    SourceRefused,
    VctlError,
)
from vctl_plans.node_machine import Action, Failure
from vctl_plans.phase import NodePhase

_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0

_PERMANENT = (
    RootMismatch,
    MalformedWeights,
    MalformedPrompt,
    NotAllowed,
    SourceMissing,
    SourceRefused,
    PermanentEngineError,
)

_log = structlog.get_logger(__name__)

Key = tuple[str, int]
"""A service and a release's number."""


class Occasion(msgspec.Struct, frozen=True):
    """When something is tried: at whose request, on which run of the engine, and for what."""

    attempt: str
    incarnation: str  # empty while the engine does not answer
    is_serving: bool = False  # the release is the stable one
    golden: str = ""  # digest of the golden prompts that it must pass


class _Tried(msgspec.Struct, frozen=True):
    """The last try of a release, which failed."""

    action: Action
    occasion: Occasion
    reason: str
    is_permanent: bool
    at: float  # monotonic
    retry_at: float  # likewise
    count: int  # tries in a row within one attempt


class Tries:
    """The failures of one node's releases.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tried: dict[Key, _Tried] = {}

    def failure(
        self, key: Key, now: Occasion, *, is_wanted: bool, is_resident: bool
    ) -> Failure | None:
        """Return the failure that still counts, if there is one."""
        tried = self._tried.get(key)
        if not tried or tried.occasion.attempt != now.attempt:
            return None
        if tried.action is Action.UNLOAD and (is_wanted or not is_resident):
            return None
        is_of_engine = tried.action in {Action.LOAD, Action.PROBE, Action.REPLACE}
        was_restarted = now.incarnation not in {"", tried.occasion.incarnation}
        if tried.is_permanent and is_of_engine and was_restarted:
            return None
        is_of_node = tried.action in {Action.PROBE, Action.SWAP_BASE} and tried.is_permanent
        return Failure(
            phase=NodePhase.QUARANTINED if is_of_node else NodePhase.FAILED,
            reason=tried.reason,
            is_permanent=tried.is_permanent,
            retry_in_s=max(0.0, tried.retry_at - self._clock()),
            is_of_probe=tried.action is Action.PROBE and tried.is_permanent,
            was_serving=tried.occasion.is_serving,
            since_s=self._clock() - tried.at,
        )

    def note(self, key: Key, action: Action, error: VctlError, *, on: Occasion) -> None:
        """Note a failure; the wait until the next try doubles within one attempt."""
        before = self._tried.get(key)
        count = 1 + (before.count if before and before.occasion.attempt == on.attempt else 0)
        wait_s = min(_FIRST_RETRY_S * 2.0 ** min(count - 1, 16), _LONGEST_RETRY_S)
        self._tried[key] = _Tried(
            action=action,
            occasion=on,
            reason=error.message,
            is_permanent=is_permanent(error),
            at=self._clock(),
            retry_at=self._clock() + wait_s,
            count=count,
        )
        _log.warning(
            "failed",
            action=action.value,
            service=key[0],
            release=key[1],
            reason=error.message,
            is_permanent=is_permanent(error),
        )

    def forget(self, key: Key) -> None:
        """Forget what failed before something worked."""
        self._tried.pop(key, None)


def is_permanent(error: VctlError) -> bool:
    """Whether trying again is vain, by the error's type."""
    return isinstance(error, _PERMANENT)
