"""What a rollout would take: bytes at most, time at least, and what nobody knows is not counted."""

import msgspec
import pytest

from tests.builders import SERVICE, a_report, a_route, a_service, a_weighted_plan, some_releases
from vctl_plans import forecast
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.phase import Component, NodePhase
from vctl_plans.plan import Plan
from vctl_plans.release import Actor, Artifact, Release, compose
from vctl_plans.snapshot import Fleet


def sized(release: Release, size_bytes: int) -> Release:
    components = {
        name: msgspec.structs.replace(made, size_bytes=size_bytes)
        for name, made in release.components.items()
    }
    return msgspec.structs.replace(release, components=components)


ONE, TWO = (sized(release, 1000) for release in some_releases(2).values())


def a_fleet(**reports: NodeReport) -> Fleet:
    service = msgspec.structs.replace(a_service(route=a_route()), releases={1: ONE, 2: TWO})
    records = {n: NodeRecord(node=n, boot_id=r.boot_id) for n, r in reports.items()}
    return Fleet(services={SERVICE: service}, records=records, reports=reports)


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (NodePhase.STAGED, 0),
        (NodePhase.READY, 0),
        (NodePhase.DRAINING, 0),
        (NodePhase.FETCHING, 1000),
        (NodePhase.VERIFYING, 1000),  # it may turn out to be other bytes
        (NodePhase.FAILED, 1000),
        (NodePhase.QUARANTINED, 1000),
        (NodePhase.UNLOADED, 1000),  # it may be gone by then
    ],
)
def test_only_what_is_whole_and_verified_is_had(phase: NodePhase, expected: int):
    report = a_report("a", r2=phase)
    assert expected == forecast.fetch_bytes(a_fleet(a=report), report, TWO)


def test_bytes_of_another_release_with_the_same_root_are_had():
    brought = {Component.PROMPT: Artifact(root="b3:p", source="file:///p", size_bytes=10)}
    three = compose(SERVICE, brought, known=[ONE, TWO], stable=TWO, by=Actor())
    report = a_report("a", r2=NodePhase.READY)
    assert 10 == forecast.fetch_bytes(a_fleet(a=report), report, three)


def test_report_of_another_release_by_that_number_is_not_believed():
    said = msgspec.structs.replace(a_report("a", r2=NodePhase.READY).releases[0], digest="b3:x")
    report = msgspec.structs.replace(a_report("a"), releases=(said,))
    assert 1000 == forecast.fetch_bytes(a_fleet(a=report), report, TWO)


def test_word_of_an_agent_that_died_is_not_counted():
    fleet = a_fleet(a=a_report("a", r2=NodePhase.READY))
    records = {"a": NodeRecord(node="a", boot_id="another")}
    (node,) = forecast.nodes(msgspec.structs.replace(fleet, records=records), TWO)
    assert (1000, "starting") == (node.fetch_bytes, node.problem)


def test_changes_tell_what_stays():
    brought = {Component.PROMPT: Artifact(root="b3:p", source="file:///p", size_bytes=10)}
    after = compose(SERVICE, brought, known=[ONE], stable=ONE, by=Actor())
    adapter, prompt = forecast.changes(ONE, after)
    assert (False, True) == (adapter.is_changed, prompt.is_changed)
    assert ("", 0, 1) == (prompt.before, prompt.counter_before, prompt.counter)


@pytest.mark.parametrize(
    ("plan", "stable", "weights", "least_s"),
    [
        (a_weighted_plan(10, 50, 100), 1, (10, 50, 100), 180.0),
        (a_weighted_plan(10, 50, 100), 0, (100,), 60.0),  # nothing to split traffic with
        (a_weighted_plan(10, 50, 100), 2, (100,), 60.0),  # it serves already
        (a_weighted_plan(10, 50, 100, groups="b3:g"), 2, (10, 50, 100), 180.0),
        (Plan(service=SERVICE, strategy="rollback"), 1, (100,), 0.0),
    ],
)
def test_steps_are_those_that_would_be_taken(
    plan: Plan, stable: int, weights: tuple[float, ...], least_s: float
):
    steps = forecast.steps_taken(plan, a_route(stable=stable), 2)
    assert weights == tuple(step.weight for step in steps)
    assert least_s == forecast.least_s(steps)


def test_sizes_that_nobody_knows_are_named():
    unknown = Artifact(root="b3:p", source="s3://b/p")
    assert ("s3://b/p",) == forecast.unknown_sizes([unknown, *TWO.components.values()])
