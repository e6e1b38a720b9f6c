"""One release on one node: what is there, what is wanted, and so the one next thing to do.

`assess` compares what the fleet wants with what engine and disk really hold, read anew each time.
It remembers nothing, so an agent killed at any point goes on from what it finds. All phases that a
release may pass are in `MOVES`; the docs' diagram is made of it.

The order that a change must keep: an engine is given a release only when every byte of the copy
that it will read was verified; the gateway is told only after the probe; an unload waits until the
gateway has confirmed that it hands out no more references, and then for those that are out.
"""

from enum import StrEnum

import msgspec

from vctl_plans.phase import NodePhase as N


class Action(StrEnum):
    """The next thing to do for a release."""

    NONE = "none"
    STAGE = "stage"  # fetch and verify
    LOAD = "load"
    PROBE = "probe"
    UNLOAD = "unload"
    REPLACE = "replace"  # in direct mode: see `direct`
    SWAP_BASE = "swap_base"  # of the node, and of no release: `assess` never asks for it


class Failure(msgspec.Struct, frozen=True):
    """The last try that did not succeed, for the present rollout."""

    phase: N  # FAILED or QUARANTINED
    reason: str
    is_permanent: bool
    retry_in_s: float = 0.0  # of a temporary one: how long to wait still
    is_of_probe: bool = False  # what it answered was judged, and was not right
    was_serving: bool = False  # the release was the stable one when it was tried
    since_s: float = 0.0  # how long ago that was


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one release on this node, just now."""

    is_wanted: bool
    may_unload: bool = False  # the rollout's unload list names it, and nothing else needs its root
    is_staged: bool = False  # all of its components are verified, each in its own directory
    is_resident: bool = False  # engine and application hold all of it; or, not wanted, any of it
    is_on_base: bool = True  # it runs on the base that the engine holds, and no other is wanted
    is_apart: bool = False  # another release has its place on this node while they are exchanged
    no_place: str = ""  # why the engine has no place for it now; it waits for one
    is_probed: bool = False  # all of it since it was loaded into this incarnation of the engine
    is_due: bool = False  # that, and the engine's caches were dropped since: it is probed again
    is_offered: bool = False  # the gateway's last word still has it as ready
    in_flight: int | None = None  # None: the gateway is away, so it is not known
    draining_s: float = 0.0  # how long ago the drain began
    drain_limit_s: float = 30.0
    failure: Failure | None = None
    spared_in_s: float | None = None  # it may not be quarantined, and serves then: see `fuse`
    suspect: str = ""  # why the engine must serve nothing, and be asked nothing, until its restart


class Verdict(msgspec.Struct, frozen=True):
    """The phase that the facts amount to, and what to do."""

    phase: N
    action: Action = Action.NONE
    reason: str = ""
    is_permanent: bool = False
    wake_s: float | None = None  # look again after this time though nothing happens
    fails_probe: bool = False  # what it answers was judged, and was not right


SPARED = "serves though it fails its probe, for too many nodes would not"


def assess(facts: Facts) -> Verdict:
    """Return where the release is and the next thing to do for it."""
    if facts.suspect and (facts.is_resident or (facts.is_wanted and facts.is_staged)):
        return Verdict(N.QUARANTINED, reason=facts.suspect)
    if facts.is_apart and facts.is_resident:
        return _drained(facts)
    return _towards_ready(facts) if facts.is_wanted else _towards_gone(facts)


def _towards_ready(facts: Facts) -> Verdict:
    is_loaded = facts.is_resident and facts.is_on_base
    if facts.failure and is_loaded and facts.spared_in_s is not None:
        return _spared(facts.failure.reason, facts.spared_in_s)
    if facts.failure and (facts.failure.is_permanent or facts.failure.retry_in_s > 0):
        is_serving = is_loaded and facts.is_probed and facts.is_due
        return probed_again(facts.failure) if is_serving else failed(facts.failure)
    if facts.is_apart or not facts.is_on_base:
        return _apart(facts)
    if facts.is_resident:
        return _resident(facts)
    return _towards_resident(facts)


def _resident(facts: Facts) -> Verdict:
    """Judge what is loaded: it serves while it is probed again, for its weights are the same."""
    if not facts.is_probed:
        return Verdict(N.PROBING, Action.PROBE)
    return Verdict(N.READY, Action.PROBE if facts.is_due else Action.NONE)


def probed_again(failure: Failure) -> Verdict:
    """Judge what was probed, and was tried in vain to be probed again after a flush.

    It serves on as long as nothing speaks against it: that an engine was busy is no such thing.
    """
    return failed(failure) if failure.is_permanent else Verdict(N.READY, wake_s=failure.retry_in_s)


def _towards_resident(facts: Facts) -> Verdict:
    if facts.is_staged and facts.no_place:
        return Verdict(N.STAGED, reason=facts.no_place, wake_s=_LOOK_S)
    if facts.is_staged:
        return Verdict(N.LOADING, Action.LOAD)
    return Verdict(N.FETCHING, Action.STAGE)


def failed(failure: Failure) -> Verdict:
    """Judge a release by its last try, which was in vain."""
    return Verdict(
        failure.phase,
        reason=failure.reason,
        is_permanent=failure.is_permanent,
        wake_s=None if failure.is_permanent else failure.retry_in_s,
        fails_probe=failure.is_of_probe,
    )


def _spared(reason: str, in_s: float) -> Verdict:
    """Judge what fails its probe, and serves unless the conductor has it quarantined before."""
    if in_s > 0:
        return Verdict(N.PROBING, reason=reason, wake_s=in_s, fails_probe=True)
    return Verdict(N.READY, reason=f"{SPARED}: {reason}", fails_probe=True)


def _apart(facts: Facts) -> Verdict:
    """Judge what has no place here: of another base than the node is to hold, or exchanged.

    No new request may reach it, and it is loaded with no base but its own; it can be fetched. Its
    requests in flight are waited for before the base changes, which is done for all of the node.
    """
    if facts.is_resident:
        return Verdict(N.DRAINING)
    return Verdict(N.STAGED) if facts.is_staged else Verdict(N.FETCHING, Action.STAGE)


def _towards_gone(facts: Facts) -> Verdict:
    if not facts.is_resident:
        tried = facts.failure  # kept for people to read after the rollout that it ended
        return Verdict(N.FAILED, reason=tried.reason) if tried else Verdict(N.UNLOADED)
    if not facts.may_unload:
        return _kept(facts) if facts.is_on_base else Verdict(N.DRAINING)
    return _drained(facts)


def _drained(facts: Facts) -> Verdict:
    """Unload once no request is on it, or at the drain deadline."""
    if facts.failure and facts.failure.retry_in_s > 0:
        return Verdict(N.DRAINING, reason=facts.failure.reason, wake_s=facts.failure.retry_in_s)
    left_s = facts.drain_limit_s - facts.draining_s
    if left_s <= 0:
        count = "an unknown number of" if facts.in_flight is None else str(facts.in_flight)
        return Verdict(N.DRAINING, Action.UNLOAD, f"drain deadline: {count} requests cut off")
    if facts.in_flight == 0 and not facts.is_offered:
        return Verdict(N.DRAINING, Action.UNLOAD)
    return Verdict(N.DRAINING, wake_s=left_s)


def _kept(facts: Facts) -> Verdict:
    """Judge what is loaded, is not wanted, and may not be unloaded yet."""
    tried = facts.failure
    if facts.is_probed or not tried:
        return Verdict(N.READY if facts.is_probed else N.PROBING)
    return Verdict(tried.phase, reason=tried.reason, is_permanent=tried.is_permanent)


_LOOK_S = 1.0
"""Until another look at an engine without a place: a place that others leave wakes sooner."""

_TRIED = {N.FAILED, N.UNLOADED}

MOVES: dict[N, frozenset[N]] = {
    N.ABSENT: frozenset(
        {N.FETCHING, N.STAGED, N.LOADING, N.PROBING, N.READY, N.UNLOADED, N.QUARANTINED}
    ),
    N.FETCHING: frozenset({N.VERIFYING, N.QUARANTINED, *_TRIED}),
    N.VERIFYING: frozenset({N.STAGED, N.QUARANTINED, *_TRIED}),
    N.STAGED: frozenset({N.LOADING, N.PROBING, N.READY, N.QUARANTINED, *_TRIED}),
    N.LOADING: frozenset({N.PROBING, N.STAGED, N.DRAINING, N.QUARANTINED, *_TRIED}),
    N.PROBING: frozenset({N.READY, N.QUARANTINED, N.DRAINING, N.LOADING, *_TRIED}),
    N.READY: frozenset({N.DRAINING, N.LOADING, N.STAGED, N.FETCHING, N.UNLOADED, N.QUARANTINED}),
    N.DRAINING: frozenset({N.UNLOADED, N.READY, N.STAGED, N.FETCHING, N.QUARANTINED}),
    N.UNLOADED: frozenset({N.LOADING, N.STAGED, N.FETCHING}),
    N.FAILED: frozenset(
        {N.FETCHING, N.STAGED, N.LOADING, N.PROBING, N.DRAINING, N.UNLOADED, N.QUARANTINED}
    ),
    N.QUARANTINED: frozenset(
        {N.PROBING, N.DRAINING, N.UNLOADED, N.LOADING, N.FETCHING, N.STAGED, N.READY}
    ),
}
"""From each phase, those that may follow. READY -> LOADING: the engine was restarted. Wherever it
stands, a release is quarantined when the engine is found unfit, and goes on after its restart."""
