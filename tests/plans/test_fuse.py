"""How many nodes may be taken from what serves, whoever fails and was named before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import some_releases
from vctl_plans.alert import Severity
from vctl_plans.fuse import (
    MOST_NAMED,
    PATIENCE_S,
    Fuse,
    blown,
    failing,
    limit,
    permitted,
    spared_in_s,
)
from vctl_plans.node import NodeReport, ReleaseReport
from vctl_plans.node_machine import Failure
from vctl_plans.phase import NodePhase

STABLE = some_releases(2)[2]
SERVICE = STABLE.service
NODES = [f"n{i:03}" for i in range(1000)]
NOBODY = Fuse(service=SERVICE)


def reports(
    count: int, failing: set[str], quarantined: frozenset[str] = frozenset()
) -> dict[str, NodeReport]:
    """Return what *count* nodes say, of which some fail the probe."""
    return {
        node: NodeReport(
            node=node,
            boot_id="b",
            releases=(
                ReleaseReport(
                    service=SERVICE,
                    number=STABLE.number,
                    digest=STABLE.digest,
                    phase=NodePhase.QUARANTINED if node in quarantined else NodePhase.READY,
                    reason="golden prompt 1: expected 'a', got 'b'" if node in failing else "",
                    fails_probe=node in failing,
                ),
            ),
        )
        for node in NODES[:count]
    }


def after(before: Fuse, said: dict[str, NodeReport], known: frozenset[str] = frozenset()) -> Fuse:
    found = failing(STABLE, said, before, nodes=len(said.keys() | known))
    return permitted(SERVICE, found, before, known)


@pytest.mark.parametrize(
    ("nodes", "allowed"), [(0, 0), (1, 0), (2, 1), (19, 1), (20, 2), (640, 64), (10_000, 64)]
)
def test_tenth_may_go_one_at_least_and_never_the_last(nodes: int, allowed: int) -> None:
    """And no more than one small key names."""
    assert allowed == limit(nodes)
    assert limit(nodes) <= MOST_NAMED


@given(st.data(), st.integers(1, 60))
def test_no_more_than_the_limit_are_ever_quarantined(data: st.DataObject, count: int) -> None:
    """Through any history of nodes that begin and cease to fail."""
    names = st.sets(st.sampled_from(NODES[:count]))
    fuse, before_it_served = NOBODY, frozenset(data.draw(names) if count > 1 else ())
    before_it_served = frozenset(sorted(before_it_served)[: limit(count)])
    for failing_now in data.draw(st.lists(names, max_size=6)):
        fails = failing_now | before_it_served
        quarantined = before_it_served | frozenset(fuse.nodes)
        fuse = after(fuse, reports(count, fails, quarantined))

        assert len(set(fuse.nodes) | before_it_served) <= limit(count)
        assert set(fuse.nodes) <= fails
        assert not set(fuse.nodes) & before_it_served
        assert fuse == after(fuse, reports(count, fails, before_it_served | frozenset(fuse.nodes)))


def test_who_is_named_stays_named_while_it_fails() -> None:
    """Others do not take its place, though their names come before."""
    named = after(NOBODY, reports(10, {"n005"}))
    both = after(named, reports(10, {"n001", "n005"}, frozenset(named.nodes)))
    recovered = after(both, reports(10, {"n001"}))

    assert (("n005",), ("n005",), ("n001",)) == (named.nodes, both.nodes, recovered.nodes)


def test_agent_that_begins_anew_keeps_its_quarantine_until_it_is_heard() -> None:
    """It would serve for a moment otherwise what it failed."""
    named = after(NOBODY, reports(10, {"n005"}))
    rest = {node: said for node, said in reports(10, set()).items() if node != "n005"}

    assert named == after(named, rest, known=frozenset({"n005"}))
    assert NOBODY == after(named, rest)


def test_fewer_have_the_permission_when_nodes_vanish() -> None:
    """A tenth is a tenth of those that are present."""
    named = after(NOBODY, reports(20, {"n001", "n002"}))
    fewer = after(named, reports(10, {"n001", "n002"}, frozenset(named.nodes)))

    assert (("n001", "n002"), ("n001",)) == (named.nodes, fewer.nodes)


def test_permission_ends_with_the_release() -> None:
    """It was for that one."""
    named = Fuse(service=SERVICE, release="another", nodes=("n005",))

    assert ("n006",) == after(named, reports(10, {"n006"})).nodes
    assert NOBODY == after(named, reports(10, set()))


def test_more_failures_than_may_go_are_an_alert_that_names_who_serves_on() -> None:
    """With the first one's reason; not while all that fail are quarantined."""
    one, many = reports(10, {"n005"}), reports(10, {"n002", "n005", "n007"})
    fuse = after(NOBODY, one)

    assert blown(STABLE, failing(STABLE, one, fuse, nodes=10), fuse) is None
    alert = blown(STABLE, failing(STABLE, many, fuse, nodes=10), fuse)
    assert alert is not None
    assert Severity.P0 is alert.severity
    assert (
        f"3 of 10 nodes fail the probe of release {STABLE.number}, which serves, and no more than 1"
        " are quarantined for that: these serve on: n002, n007; the first says: golden prompt 1:"
        " expected 'a', got 'b'" == alert.sentence
    )
    assert blown(STABLE, failing(STABLE, many, fuse, nodes=10), fuse) == alert


FAILED = Failure(NodePhase.QUARANTINED, "no", is_permanent=True, is_of_probe=True, was_serving=True)


@pytest.mark.parametrize(
    ("fuse", "failure", "stable", "spared"),
    [
        (None, FAILED, 2, PATIENCE_S),
        (NOBODY, FAILED, 2, PATIENCE_S),
        (Fuse(service=SERVICE, release=STABLE.digest, nodes=("n1",)), FAILED, 2, None),
        (Fuse(service=SERVICE, release=STABLE.digest, nodes=("n2",)), FAILED, 2, PATIENCE_S),
        (Fuse(service=SERVICE, release="another", nodes=("n1",)), FAILED, 2, PATIENCE_S),
        (None, FAILED, 1, None),
        (None, None, 2, None),
        (None, Failure(NodePhase.QUARANTINED, "no", is_permanent=True, is_of_probe=True), 2, None),
        (None, Failure(NodePhase.FAILED, "no", is_permanent=True, was_serving=True), 2, None),
    ],
)
def test_node_is_spared_unless_it_is_named_or_never_served(
    fuse: Fuse | None, failure: Failure | None, stable: int, spared: float | None
) -> None:
    """What failed before it served is quarantined, whoever is named."""
    assert spared == spared_in_s(fuse, STABLE, failure, stable=stable, node="n1")
