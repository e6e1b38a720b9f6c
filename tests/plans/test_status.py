"""What a reading of the fleet comes to for a person."""

import msgspec

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route, a_service
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.phase import NodePhase as N
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.snapshot import Fleet
from vctl_plans.status import (
    ABSENT,
    HANDING_OVER,
    IDLE,
    NO_ENGINE,
    STARTING,
    node_status,
    service_status,
    status,
)

REPLACE = msgspec.structs.replace


def a_fleet(*reports: NodeReport, rollout=None, route=None) -> Fleet:
    service = a_service(route=route or a_route(), rollout=rollout)
    return Fleet(
        services={SERVICE: service},
        records={n: NodeRecord(node=n, boot_id=f"boot-{n}", engine="torch") for n in NODES},
        reports={report.node: report for report in reports},
    )


def failing(node: str, number: int, reason: str) -> NodeReport:
    report = a_report(node, **{"r1": N.READY, f"r{number}": N.FAILED})
    releases = [REPLACE(r, reason=reason) if r.number == number else r for r in report.releases]
    return REPLACE(report, releases=tuple(releases))


def test_service_counts_ready_and_acting_nodes():
    fleet = a_fleet(
        a_report("a", r1=N.READY),
        a_report("b", r1=N.LOADING),
        a_report("c", r1=N.READY, route_revision=6),
    )
    found = service_status(fleet.services[SERVICE], fleet)
    assert (1, 1, 2, 3, 2) == (
        found.release, found.target, found.ready, found.nodes, found.acting,
    )  # fmt: skip
    assert "adapter=1" == found.vector


def test_service_counts_what_a_rollout_brings():
    rollout = a_rollout(P.PREPARING, sentence="release 2 is prepared on 3 nodes")
    fleet = a_fleet(a_report("a", r1=N.READY, r2=N.READY), rollout=rollout)
    found = service_status(fleet.services[SERVICE], fleet)
    assert (2, 1, "preparing") == (found.target, found.ready, found.phase)
    assert "release 2 is prepared on 3 nodes" == found.sentence


def test_word_of_an_earlier_agent_counts_for_nothing():
    report = REPLACE(a_report("a", r1=N.READY), boot_id="earlier")
    fleet = a_fleet(report)
    assert 0 == service_status(fleet.services[SERVICE], fleet).ready
    assert STARTING == node_status("a", fleet).phase


def test_node_s_phase_is_the_worst_of_what_is_wanted():
    rollout = a_rollout(P.PREPARING)
    fleet = a_fleet(a_report("a", r1=N.READY, r2=N.VERIFYING), rollout=rollout)
    assert N.VERIFYING == node_status("a", fleet).phase
    assert N.ABSENT == node_status("b", a_fleet(a_report("b"), rollout=rollout)).phase


def test_node_that_failed_says_why():
    rollout = a_rollout(P.PREPARING)
    fleet = a_fleet(failing("a", 2, "root mismatch"), rollout=rollout)
    found = node_status("a", fleet)
    assert (N.FAILED, "root mismatch") == (found.phase, found.reason)


def test_reason_is_still_shown_when_the_release_is_no_longer_wanted():
    fleet = a_fleet(failing("a", 2, "root mismatch"), rollout=a_rollout(P.FAILED))
    found = node_status("a", fleet)
    assert (N.READY, "release 2 of support: root mismatch") == (found.phase, found.reason)


def test_dead_node_is_absent_and_its_last_word_is_kept():
    fleet = a_fleet(failing("a", 1, "out of memory"))
    gone = Fleet(services=fleet.services, reports=fleet.reports)
    found = node_status("a", gone)
    assert (ABSENT, False) == (found.phase, found.is_present)
    assert "last said: failed: out of memory" == found.reason


def test_node_without_engine_or_confirmation_says_so():
    ready = a_report("a", r1=N.READY)
    assert NO_ENGINE == node_status("a", a_fleet(REPLACE(ready, incarnation=""))).phase
    assert HANDING_OVER == node_status("a", a_fleet(REPLACE(ready, gateway_ok=False))).phase


def test_node_of_which_nothing_is_wanted_is_idle():
    fleet = a_fleet(a_report("a"))
    assert IDLE == node_status("a", Fleet(records=fleet.records, reports=fleet.reports)).phase


def test_view_is_ordered_by_name_and_keeps_problems():
    fleet = a_fleet(a_report("c"), a_report("a"))
    fleet = REPLACE(fleet, problems=("unreadable Route",))
    view = status(fleet, name="eu")
    assert ("eu", ["a", "b", "c"]) == (view.fleet, [node.node for node in view.nodes])
    assert ("unreadable Route",) == view.problems
