"""The counts behind every gate: only what present nodes said after the question counts."""

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_report, a_rollout
from vctl_plans.gate import absence, acknowledgement, readiness, residents
from vctl_plans.node import NodeReport
from vctl_plans.phase import NodePhase as N

ROLLOUT = a_rollout()


def ready(node: str, phase: N = N.READY) -> NodeReport:
    """Return a report on release 2, made after the rollout was seen."""
    return a_report(node, rollout=ROLLOUT, r2=phase)


def test_readiness_sorts_the_roster() -> None:
    """Ready, not yet or not there, refused with its reason; others do not count."""
    refusing = ready("b", N.FAILED)
    line = msgspec.structs.replace(refusing.releases[0], reason="bad root", is_permanent=True)
    refusing = msgspec.structs.replace(refusing, releases=(line,))
    reports = {"a": ready("a"), "b": refusing, "z": ready("z")}
    tally = readiness(NODES, reports, rollout=ROLLOUT, number=2)

    assert (("a",), ("c",), (("b", "bad root"),)) == (tally.done, tally.missing, tally.refused)
    assert (False, 3) == (tally.is_complete, tally.size)


@pytest.mark.parametrize("phase", [phase for phase in N if phase is not N.READY])
def test_only_ready_is_ready(phase: N) -> None:
    """Loaded is not enough, nor is probing."""
    assert ("a",) == readiness(("a",), {"a": ready("a", phase)}, rollout=ROLLOUT, number=2).missing


def test_readiness_of_another_attempt_does_not_count() -> None:
    """Neither an earlier rollout's, nor this one's from before a rollback was asked."""
    asked = msgspec.structs.replace(ROLLOUT, request="q9")

    assert ("r2", "q9") == (ROLLOUT.attempt, asked.attempt)
    assert ("a",) == readiness(("a",), {"a": ready("a")}, rollout=asked, number=2).missing


def test_readiness_needs_a_gateway_that_acts_on_the_agents_word() -> None:
    """Ready in the engine is not ready for requests."""
    untold = msgspec.structs.replace(ready("a"), gateway_ok=False)

    assert ("a",) == readiness(("a",), {"a": untold}, rollout=ROLLOUT, number=2).missing


def test_acknowledgement_takes_this_revision_or_a_later_one() -> None:
    """From a gateway that the agent hears."""
    reports = {n: a_report(n, route_revision=r) for n, r in (("a", 6), ("b", 7), ("c", 8))}
    tally = acknowledgement(NODES, reports, service=SERVICE, revision=7)
    mute = {n: msgspec.structs.replace(r, gateway_ok=False) for n, r in reports.items()}

    assert (("b", "c"), ("a",)) == (tally.done, tally.missing)
    assert NODES == acknowledgement(NODES, mute, service=SERVICE, revision=7).missing


def test_absence_is_told_by_who_is_there() -> None:
    """A node that is away may hold anything."""
    reports = {"a": ready("a"), "b": ready("b", N.FETCHING)}
    tally = absence(NODES, reports, service=SERVICE, numbers=frozenset({2}))

    assert (("b",), ("a", "c")) == (tally.done, tally.missing)


def test_residents_are_what_the_engine_may_hold() -> None:
    """A quarantined release is resident; one that failed before it was loaded is not."""
    report = a_report("a", r1=N.READY, r2=N.QUARANTINED, r3=N.DRAINING, r4=N.FAILED, r5=N.STAGED)

    assert frozenset({1, 2, 3}) == residents(report, SERVICE)
    assert frozenset() == residents(report, "other")


def test_empty_roster_is_never_complete() -> None:
    """For no question."""
    assert not readiness((), {}, rollout=ROLLOUT, number=2).is_complete
    assert not acknowledgement((), {}, service=SERVICE, revision=1).is_complete
    assert not absence((), {}, service=SERVICE, numbers=frozenset({1})).is_complete
