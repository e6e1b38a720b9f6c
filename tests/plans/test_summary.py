"""The fleet in one value: what it counts, whom it names, and that it stays small."""

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route, a_service
from tests.plans.test_status import failing
from vctl_plans.codec import decode, encode
from vctl_plans.node import NodeRecord, NodeReport, ReleaseReport
from vctl_plans.phase import NodePhase as N
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import NAMED
from vctl_plans.snapshot import Fleet
from vctl_plans.status import UNCONFIRMED, node_status, service_phase
from vctl_plans.summary import (
    REASON_CHARS,
    ServiceSummary,
    Summary,
    WorstNode,
    is_older,
    summary,
)

REPLACE = msgspec.structs.replace


def a_fleet(*reports: NodeReport, rollout=None, services: int = 1) -> Fleet:
    service = a_service(route=a_route(), rollout=rollout)
    names = [SERVICE, *(f"s{n}" for n in range(1, services))]
    nodes = {report.node for report in reports} | set(NODES)
    return Fleet(
        services={name: REPLACE(service, name=name) for name in names},
        records={n: NodeRecord(node=n, boot_id=f"boot-{n}", engine="torch") for n in nodes},
        reports={report.node: report for report in reports},
    )


def test_summary_counts_nodes_by_phase_and_names_those_that_are_not_well():
    rollout = a_rollout(P.SHIFTING, sentence="traffic moves", has_moved=True, steps=3)
    fleet = a_fleet(
        a_report("a", r1=N.READY, r2=N.READY),
        failing("b", 2, "root mismatch"),
        rollout=rollout,
    )
    assert Summary(
        present=3,
        known=3,
        services=(
            ServiceSummary(
                service=SERVICE,
                release=1,
                phase="shifting",
                step=1,
                steps=3,
                rollout="r2",
                rollout_revision=7,
                route_revision=7,
                sentence="traffic moves",
                target=2,
                ready=1,
                acting=2,
                phases={"failed": 1, "ready": 1, "starting": 1},
                worst=(
                    WorstNode(node="b", phase="failed", reason="root mismatch"),
                    WorstNode(node="c", phase="starting"),
                ),
            ),
        ),
    ) == summary(fleet)


def test_worst_comes_first_and_nodes_that_are_well_are_not_named():
    rollout = a_rollout(P.PREPARING)
    phases = {
        "e": N.PROBING, "d": N.LOADING, "f": N.QUARANTINED, "a": N.READY, "b": N.FAILED,
        "c": N.FETCHING,
    }  # fmt: skip
    fleet = a_fleet(
        *(a_report(node, r1=N.READY, r2=phase) for node, phase in phases.items()),
        rollout=rollout,
    )
    (found,) = summary(fleet).services
    assert ["f", "b", "c", "d", "e"] == [each.node for each in found.worst]


def test_node_is_judged_for_each_service_by_what_that_service_wants():
    """What one service cannot load says nothing of another."""
    fleet = a_fleet(*(a_report(n, r1=N.READY) for n in NODES), services=2)
    one, two = summary(fleet).services
    assert ({"absent": 3}, {"ready": 3}) == (one.phases, two.phases)
    assert () == two.worst


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (a_report("a", r1=N.READY), ("ready", "")),
        (REPLACE(a_report("a", r1=N.READY), gateway_ok=False), ("handing over", UNCONFIRMED)),
        (REPLACE(a_report("a", r1=N.READY), incarnation=""), ("no engine", "")),
        (REPLACE(a_report("a", r1=N.READY), boot_id="earlier"), ("starting", "")),
    ],
)
def test_phase_for_a_service_is_the_node_s_where_it_has_one_service(report, expected):
    fleet = a_fleet(report)
    line = node_status("a", fleet)
    assert expected == service_phase(line, SERVICE, fleet)
    assert expected[0] == line.phase


def test_node_that_is_gone_is_counted_and_not_present():
    fleet = a_fleet(a_report("z", r1=N.READY))
    gone = {n: record for n, record in fleet.records.items() if n != "z"}
    found = summary(REPLACE(fleet, records=gone))
    assert (3, 4) == (found.present, found.known)
    assert 1 == found.services[0].phases["absent"]
    assert WorstNode(node="z", phase="absent", reason="last said: ready") in found.services[0].worst


def test_service_of_which_nothing_is_wanted_names_nobody():
    fleet = REPLACE(a_fleet(), services={SERVICE: a_service()})
    quiet = REPLACE(fleet, reports={n: a_report(n) for n in NODES})
    (found,) = summary(quiet).services
    assert ({"idle": 3}, ()) == (found.phases, found.worst)


def many(count: int, services: int) -> Fleet:
    """Return the worst fleet: every node fails every service, with a long reason."""
    names = [SERVICE, *(f"s{n}" for n in range(1, services))]
    releases = tuple(
        ReleaseReport(service=s, number=1, digest="", phase=N.FAILED, reason="r" * 2000)
        for s in names
    )
    reports = [
        NodeReport(
            node=f"gpu-node-with-a-long-name-{n:05}.some-zone.example",
            boot_id="b",
            incarnation="i",
            releases=releases,
        )
        for n in range(count)
    ]
    made = a_fleet(*reports, services=services, rollout=a_rollout(sentence="s" * 2000))
    records = {r.node: NodeRecord(node=r.node, boot_id="b") for r in reports}
    return REPLACE(made, records=records, problems=("p" * 200,) * 5000)


@pytest.mark.parametrize(("nodes", "services", "limit"), [(10_000, 1, 10_000), (20, 500, 800_000)])
def test_summary_is_small_however_large_the_fleet_and_whatever_ails_it(nodes, services, limit):
    """Far below what one request of etcd takes, 1.5 MiB."""
    found = summary(many(nodes, services))
    assert limit > len(encode(found))
    assert {"failed": nodes} == found.services[0].phases


def test_summary_says_how_many_it_does_not_name():
    (found,) = summary(many(30, 1)).services
    assert (NAMED, 10) == (len(found.worst), found.unnamed)
    assert REASON_CHARS == len(found.worst[0].reason)


def test_summary_is_read_as_it_was_written_and_by_who_knows_less():
    found = summary(a_fleet(a_report("a", r1=N.READY)))
    assert found == decode(encode(found), Summary)
    assert ServiceSummary(service="x") == msgspec.json.decode(
        b'{"service":"x","pace":"slow"}', type=ServiceSummary
    )


@pytest.mark.parametrize(
    ("rollout", "route", "expected"), [(7, 7, False), (8, 7, True), (7, 8, True), (6, 6, False)]
)
def test_summary_is_older_than_a_later_write_of_rollout_or_route(rollout, route, expected):
    found = ServiceSummary(service=SERVICE, rollout_revision=7, route_revision=7)
    now = REPLACE(a_service(), rollout_revision=rollout, route_revision=route)
    assert expected == is_older(found, now)
    assert is_older(None, now)
