"""`vctl status` of a large fleet: counted by the conductor, read in two keys."""

import asyncio
import json

import msgspec
import yaml

from tests.builders import SERVICE, a_rollout
from tests.cli.support import CONVERGES, KEYS, MemoryReader, Vctl, a_fleet, conductor, running
from vctl_cli import summing
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.snapshot import Service, read_nodes, read_services
from vctl_plans.store.gateway import GatewayUnsuitable
from vctl_plans.store.memory import MemoryStore
from vctl_plans.summary import ServiceSummary, Summary, WorstNode, summary


async def summed(store: MemoryStore) -> Summary:
    """Return what the conductor would write now."""
    services, nodes, reports = [
        (await store.list(prefix)).entries for prefix in (KEYS.services, KEYS.nodes, KEYS.reports)
    ]
    fleet = read_nodes(KEYS, nodes, reports)
    found = read_services(KEYS, services)
    return summary(msgspec.structs.replace(fleet, services=found.services))


def large(vctl: Vctl, *, present: int = 9999, **more) -> Vctl:
    """Write a summary that tells of many more nodes than there are keys."""
    service: Service = vctl.service()
    said = ServiceSummary(
        service=SERVICE,
        rollout_revision=service.rollout_revision,
        route_revision=service.route_revision,
        ready=9950,
        acting=9980,
        phases={"failed": 2, "loading": 47, "ready": 9950},
        worst=(
            WorstNode(node="n7", phase="failed", reason="root mismatch"),
            WorstNode(node="n9", phase="failed", reason="no room"),
        ),
        unnamed=47,
    )
    services = (msgspec.structs.replace(said, **more),)
    vctl.put(KEYS.summary, Summary(present=present, known=10_001, services=services))
    return vctl


class Counting(MemoryReader):
    """A reader that says what it listed."""

    listed: list[str] = []

    def list(self, prefix):
        self.listed.append(prefix)
        return super().list(prefix)


def test_large_fleet_is_shown_counted_with_the_worst_named():
    said = large(a_fleet(rollout=a_rollout(P.PREPARING, sentence="is prepared")))("status")
    assert (0, "") == (said.code, said.err)
    assert (
        """\
SERVICE  RELEASE  VECTOR     PHASE      TRAFFIC     READY      ROUTE
support  1 -> 2   adapter=1  preparing  100 % on 1  9950/9999  9980/9999
  is prepared

9999 nodes present, 10001 known
support: 9950 ready, 47 loading, 2 failed

SERVICE  NODE  PHASE   REASON
support  n7    failed  root mismatch
support  n9    failed  no room
support: and 47 more that are not ready
"""
        == said.out
    )


def test_large_fleet_s_reports_are_not_read(monkeypatch):
    """Ten thousand of them would be read for nothing."""
    monkeypatch.setattr("tests.cli.support.MemoryReader", Counting)
    Counting.listed = []
    assert 0 == large(a_fleet())("status").code
    assert [KEYS.services] == Counting.listed


def test_small_fleet_is_shown_node_by_node():
    vctl = large(a_fleet(), present=summing.LARGE)
    assert "NODE  PHASE  ENGINE" in vctl("status").out


def test_summary_of_a_small_fleet_is_shown_when_asked():
    vctl = a_fleet()
    vctl.put(KEYS.summary, asyncio.run(summed(vctl.store)))
    said = vctl("status", "--summary")
    assert "3 nodes present, 3 known\nsupport: 3 ready\n" in said.out
    assert "older" not in said.out


def test_summary_that_is_not_there_is_said_and_nothing_is_counted():
    said = a_fleet()("status", "--summary")
    assert 0 == said.code
    assert "no summary: nodes are not counted until a conductor writes one" in said.out
    assert "present" not in said.out


def test_summary_that_is_older_than_the_last_decision_is_said():
    vctl = large(a_fleet(rollout=a_rollout(P.PREPARING)))
    assert "older" not in vctl("status").out
    vctl.put(KEYS.rollout(SERVICE), a_rollout(P.SHIFTING, sentence="traffic moves", seq=1))
    said = vctl("status")
    assert "the summary is older than the last decision of support: its counts may lag" in said.out
    assert "traffic moves" in said.out


def test_summary_that_cannot_be_read_is_said():
    vctl = a_fleet()
    asyncio.run(vctl.store.put(KEYS.summary, b"[]"))
    said = vctl("status", "--summary")
    assert 0 == said.code
    assert f"unreadable: unreadable Summary at {KEYS.summary}" in said.out
    assert "NODE  PHASE" in vctl("status").out


def test_summary_as_json_and_yaml_hold_the_same():
    vctl = large(a_fleet())
    found = json.loads(vctl("status", "-o", "json").out)
    assert ("summary", "test", 9999, True) == (
        found["kind"], found["fleet"], found["present"], found["is_there"]
    )  # fmt: skip
    assert {"failed": 2, "loading": 47, "ready": 9950} == found["counts"][0]["phases"]
    assert [9950] == [service["ready"] for service in found["services"]]
    assert found == yaml.safe_load(vctl("status", "-o", "yaml").out)


def test_summary_of_a_service_that_does_not_exist_is_2():
    said = large(a_fleet())("status", "-s", "suport")
    assert (2, "") == (said.code, said.out)
    assert "did you mean 'support'?" in said.err


def test_summary_is_read_over_grpc_where_the_gateway_is_unsuitable():
    vctl = large(a_fleet())
    failures = iter((GatewayUnsuitable("no JSON gateway"), None))

    class Once(Vctl):
        def _peer(self):
            self.failure = next(failures)
            return super()._peer()

    said = Once(store=vctl.store)("status")
    assert 0 == said.code
    assert "9999 nodes present" in said.out


def test_watch_of_a_large_fleet_writes_changes_and_ends_with_the_rollout():
    vctl = large(a_fleet(releases=2, rollout=running(P.PREPARING, sentence="is prepared")))
    vctl.conduct = conductor(*CONVERGES)
    said = vctl("status", "--watch", "-s", SERVICE)
    assert 0 == said.code
    assert "support: 9950 ready, 47 loading, 2 failed" in said.out
    assert "n7: support: failed: root mismatch" in said.out
    assert "converged (3/3) on release 2" in said.out
    assert "the summary is older than the last decision of support" in said.out


def test_watch_of_a_large_fleet_as_json_says_its_kind():
    said = large(a_fleet())("status", "--watch", "--timeout", "0.2", "-o", "json")
    assert 0 == said.code
    assert "summary" == json.loads(said.out.splitlines()[0])["kind"]
