"""What a reading of the fleet comes to for a person."""

from typing import Any

import msgspec

from tests.builders import NODES, SERVICE, a_base_wish, a_report, a_rollout, a_route, a_service
from vctl_plans.base import base_root
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
    phases: dict[str, Any] = {"r1": N.READY, f"r{number}": N.FAILED}
    report = a_report(node, **phases)
    releases = [REPLACE(r, reason=reason) if r.number == number else r for r in report.releases]
    return REPLACE(report, releases=tuple(releases))


def test_service_counts_ready_and_acting_nodes():
    fleet = a_fleet(
        a_report("a", r1=N.READY),
        a_report("b", r1=N.LOADING),
        a_report("c", r1=N.READY, route_revision=6),
    )
    found = service_status(fleet.services[SERVICE], fleet)
    assert (
        found.release, found.target, found.ready, found.nodes, found.acting,
    ) == (1, 1, 2, 3, 2)  # fmt: skip
    assert found.vector == "adapter=1"


def test_service_counts_what_a_rollout_brings():
    rollout = a_rollout(P.PREPARING, sentence="release 2 is prepared on 3 nodes")
    fleet = a_fleet(a_report("a", r1=N.READY, r2=N.READY), rollout=rollout)
    found = service_status(fleet.services[SERVICE], fleet)
    assert (found.target, found.ready, found.phase) == (2, 1, "preparing")
    assert found.sentence == "release 2 is prepared on 3 nodes"


def test_word_of_an_earlier_agent_counts_for_nothing():
    report = REPLACE(a_report("a", r1=N.READY), boot_id="earlier")
    fleet = a_fleet(report)
    assert service_status(fleet.services[SERVICE], fleet).ready == 0
    assert node_status("a", fleet).phase == STARTING


def test_long_fetch_says_how_far_it_is():
    report = a_report("a", r1=N.READY, r2=N.FETCHING)
    half = [REPLACE(r, fetched_percent=50 * (r.number == 2)) for r in report.releases]
    fleet = a_fleet(REPLACE(report, releases=tuple(half)), rollout=a_rollout(P.PREPARING))
    found = node_status("a", fleet)
    assert (found.phase, found.reason) == (N.FETCHING, "50 % are here")


def test_node_s_phase_is_the_worst_of_what_is_wanted():
    rollout = a_rollout(P.PREPARING)
    fleet = a_fleet(a_report("a", r1=N.READY, r2=N.VERIFYING), rollout=rollout)
    assert node_status("a", fleet).phase == N.VERIFYING
    assert node_status("b", a_fleet(a_report("b"), rollout=rollout)).phase == N.ABSENT


def test_node_that_failed_says_why():
    rollout = a_rollout(P.PREPARING)
    fleet = a_fleet(failing("a", 2, "root mismatch"), rollout=rollout)
    found = node_status("a", fleet)
    assert (found.phase, found.reason) == (N.FAILED, "root mismatch")


def test_reason_is_still_shown_when_the_release_is_no_longer_wanted():
    fleet = a_fleet(failing("a", 2, "root mismatch"), rollout=a_rollout(P.FAILED))
    found = node_status("a", fleet)
    assert (found.phase, found.reason) == (N.READY, "release 2 of support: root mismatch")


def test_dead_node_is_absent_and_its_last_word_is_kept():
    fleet = a_fleet(failing("a", 1, "out of memory"))
    gone = Fleet(services=fleet.services, reports=fleet.reports)
    found = node_status("a", gone)
    assert (found.phase, found.is_present) == (ABSENT, False)
    assert found.reason == "last said: failed: out of memory"


def test_node_without_engine_or_confirmation_says_so():
    ready = a_report("a", r1=N.READY)
    assert node_status("a", a_fleet(REPLACE(ready, incarnation=""))).phase == NO_ENGINE
    assert node_status("a", a_fleet(REPLACE(ready, gateway_ok=False))).phase == HANDING_OVER


def test_node_of_which_nothing_is_wanted_is_idle():
    fleet = a_fleet(a_report("a"))
    assert node_status("a", Fleet(records=fleet.records, reports=fleet.reports)).phase == IDLE


def test_view_is_ordered_by_name_and_keeps_problems():
    fleet = a_fleet(a_report("c"), a_report("a"))
    fleet = REPLACE(fleet, problems=("unreadable Route",))
    view = status(fleet, name="eu")
    assert (view.fleet, [node.node for node in view.nodes]) == ("eu", ["a", "b", "c"])
    assert view.problems == ("unreadable Route",)


def a_base_fleet(*reports: NodeReport, wave: float) -> Fleet:
    """Return a fleet in which release 2 brings another base, as far as *wave*."""
    releases = dict(a_service().releases)
    bases = {**releases[2].components, **a_base_wish(2)}
    releases[2] = REPLACE(releases[2], components=bases)
    rollout = a_rollout(P.SHIFTING, wave_size=1, wave=wave)
    service = REPLACE(a_service(route=a_route(), rollout=rollout), releases=releases)
    return REPLACE(a_fleet(*reports), services={SERVICE: service})


def test_service_counts_the_nodes_that_hold_the_base():
    """While a rollout changes it, also before they are ready for anything on it; else nobody."""
    root = base_root(a_base_fleet(wave=50.0).services[SERVICE].releases[2])
    loading = REPLACE(a_report("a", r2=N.LOADING), base=root)
    fleet = a_base_fleet(loading, a_report("b", r1=N.READY), wave=50.0)
    found = service_status(fleet.services[SERVICE], fleet)
    assert (1, 0) == (found.based, found.ready)
    still = a_fleet(rollout=a_rollout(P.SHIFTING))
    assert service_status(still.services[SERVICE], still).based is None


def test_node_is_judged_by_the_base_that_it_is_to_hold():
    """A release of the other base is staged there, and nothing more is wanted of it."""
    for wave, report in (
        (0.0, a_report("a", r1=N.READY, r2=N.STAGED)),
        (100.0, a_report("a", r1=N.STAGED, r2=N.READY)),
    ):
        assert N.READY == node_status("a", a_base_fleet(report, wave=wave)).phase
    assert (
        N.DRAINING == node_status("a", a_base_fleet(a_report("a", r1=N.DRAINING), wave=0.0)).phase
    )


def test_node_that_serves_what_fails_its_probe_says_why():
    """Though what it retains beside it is as ready, and has nothing to say."""
    report = a_report("a", r1=N.READY, r2=N.READY)
    kept, serving = report.releases
    more = {"fails_probe": True, "reason": "serves though", "probe": "0.0000 apart"}
    report = REPLACE(report, releases=(kept, REPLACE(serving, **more)))
    line = node_status("a", a_fleet(report, route=a_route(stable=2, instant=(1,))))
    assert (line.phase, line.reason) == (N.READY, "serves though")
    shown = {each.release: (each.fails_probe, each.probe) for each in line.releases}
    assert shown == {1: (False, ""), 2: (True, "0.0000 apart")}
