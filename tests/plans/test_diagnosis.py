"""Each thing that can be wrong with a fleet is found, with how bad it is and what mends it."""

from typing import Any

import msgspec
import pytest

from tests.builders import SERVICE, a_report, a_root, a_route, a_service
from vctl_plans.capability import Capability, EngineFacts, Lack
from vctl_plans.diagnosis import Finding, Severity, diagnose, ordered, worst
from vctl_plans.etcdhealth import EtcdMember, of_etcd
from vctl_plans.inspection import SCRUB, Checked, Checks
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport, ReleaseReport
from vctl_plans.phase import NodePhase
from vctl_plans.snapshot import Fleet

KEYS = Keys("test")
FACTS = EngineFacts(
    kind="vllm", version="0.32.0", capabilities=tuple(Capability), max_adapters=4, max_resident=8
)
WELL = msgspec.structs.replace(a_report("a"), adapters=2, free_memory=0.5, kv_used=0.1)
OK, WARNING, ERROR = Severity


def found(
    *,
    record: NodeRecord | None = None,
    report: NodeReport | None = WELL,
    conductor: bool = True,
    facts: EngineFacts | None = FACTS,
    **more: Any,
) -> tuple[Finding, ...]:
    """Return what is found of a fleet of one node that is well, but for what is given."""
    own = record or NodeRecord(node="a", boot_id="boot-a", facts=facts)
    plain = Fleet(
        services={SERVICE: a_service(route=a_route())},
        records={"a": own},
        reports={"a": report} if report else {},
    )
    return diagnose(msgspec.structs.replace(plain, **more), KEYS, conductor=conductor)


def only(findings: tuple[Finding, ...]) -> Finding:
    """Return the one finding that somebody should see."""
    (one,) = [finding for finding in findings if finding.severity is not OK]
    return one


def with_report(**changes: Any) -> tuple[Finding, ...]:
    return found(report=msgspec.structs.replace(WELL, **changes))


def test_nothing_is_found_of_a_fleet_that_is_well() -> None:
    """But what its engines are."""
    assert (Finding(severity=OK, where="node a", what="engine vllm 0.32.0"),) == found()


@pytest.mark.parametrize(
    ("changes", "severity", "what", "remedy"),
    [
        ({"incarnation": ""}, ERROR, "its engine does not answer", "--engine-url"),
        ({"problem": "half a base"}, ERROR, "serves nothing: half a base", "restart the engine"),
        ({"exposed": "0.0.0.0:8000"}, ERROR, "listens on 0.0.0.0:8000", "--host 127.0.0.1"),
        ({"exposed": "10.0.0.7:8000"}, WARNING, "is at 10.0.0.7:8000", "127.0.0.1"),
        ({"adapters": 8}, WARNING, "8 of 8 adapter slots", "--max-cpu-loras"),
        ({"free_memory": 0.1}, WARNING, "10% of its engine's memory are free", "retain fewer"),
        ({"kv_used": 0.97}, WARNING, "full to 97%", "larger cache"),
        ({"gateway_ok": False}, ERROR, "its gateway does not act", "--socket"),
        ({"disk_used": 0.95}, WARNING, "95% of the room", "vctl node gc"),
        ({"overrides": {SERVICE: 7}}, WARNING, "serves support by release 7", "--clear"),
    ],
)
def test_what_a_node_reports_is_found(
    changes: dict[str, Any], severity: Severity, what: str, remedy: str
) -> None:
    """Each with what mends it."""
    finding = only(with_report(**changes))

    assert (severity, "node a") == (finding.severity, finding.where)
    assert what in finding.what
    assert remedy in finding.remedy


def test_gateway_that_asks_for_no_key_is_a_way_around_those_that_do() -> None:
    """All or none is well, and of one that is not heard nothing is known."""
    names = ("a", "b", "c")
    records = {n: NodeRecord(node=n, boot_id=f"boot-{n}", facts=FACTS) for n in names}

    def told(*asks: bool | None) -> tuple[Finding, ...]:
        reports = {
            n: msgspec.structs.replace(WELL, node=n, boot_id=f"boot-{n}", checks_keys=does)
            for n, does in zip(names, asks, strict=True)
        }
        return found(records=records, reports=reports)

    finding = only(told(False, True, False))
    assert (ERROR, "fleet") == (finding.severity, finding.where)
    assert "but not those of a, c" in finding.what
    well = told(None, None, None)  # no gateway, or it is not heard
    assert well == told(True, True, None) == told(False, False, None) == told(True, True, True)


def test_memory_that_is_not_told_is_said_as_not_known() -> None:
    """And not as well."""
    said = [finding for finding in with_report(free_memory=None) if "memory" in finding.what]

    assert [(OK, "its engine does not tell how much memory is free")] == [
        (finding.severity, finding.what) for finding in said
    ]


def test_disk_and_slots_that_are_not_full_are_no_finding() -> None:
    """Nor those that are not known."""
    assert found() == with_report(disk_used=0.5, adapters=7)
    assert found() == with_report(disk_used=None, adapters=None)


@pytest.mark.parametrize(
    ("lack", "severity", "remedy"),
    [
        (Lack(capability=Capability.ADAPTERS, remedy="--enable-lora"), ERROR,
         "restart it with --enable-lora"),
        (Lack(capability=Capability.LOAD, remedy="--enable-server-load-tracking"), WARNING,
         "restart it with --enable-server-load-tracking"),
        (Lack(capability=Capability.FLUSH, remedy="VLLM_SERVER_DEV_MODE=1", needs_restart=False),
         WARNING, "set it with VLLM_SERVER_DEV_MODE=1"),
        (Lack(capability=Capability.SWAP_BASE), OK, ""),
    ],
)  # fmt: skip
def test_what_the_engine_lacks_is_named_with_its_setting(
    lack: Lack, severity: Severity, remedy: str
) -> None:
    """And whether that needs a restart; what it never can is no fault."""
    facts = msgspec.structs.replace(FACTS, lacks=(lack,))
    (finding,) = [f for f in found(facts=facts) if f"({lack.capability})" in f.what]

    assert (severity, remedy) == (finding.severity, finding.remedy)


@pytest.mark.parametrize("capability", list(Capability))
def test_every_capability_can_be_said_to_lack(capability: Capability) -> None:
    """In words."""
    facts = msgspec.structs.replace(FACTS, lacks=(Lack(capability=capability, remedy="x"),))

    assert f"({capability})" in only(found(facts=facts)).what


def test_engine_that_was_never_seen_is_not_known() -> None:
    """It may lack anything."""
    assert "is not known" in only(found(facts=None)).what


def test_release_in_trouble_is_an_error_where_it_is_wanted() -> None:
    """What failed and is not wanted is history."""
    for number, severities in ((1, [ERROR]), (2, [])):
        bad = ReleaseReport(
            service=SERVICE, number=number, digest="", phase=NodePhase.QUARANTINED, reason="lies"
        )
        said = [f for f in with_report(releases=(bad,)) if f.severity is not OK]
        assert severities == [finding.severity for finding in said]
        assert all("release 1 of support is quarantined: lies" in f.what for f in said)


def test_engine_in_trouble_is_one_finding() -> None:
    """And not another for each release that it therefore does not serve."""
    bad = ReleaseReport(service=SERVICE, number=1, digest="", phase=NodePhase.FAILED, reason="away")

    assert "does not answer" in only(with_report(incarnation="", releases=(bad,))).what
    assert "half a base" in only(with_report(problem="half a base", releases=(bad,))).what


def test_rot_is_found_by_the_scrub_alone() -> None:
    """What an operator asked for is shown to that operator."""
    rotten = Checked(request=SCRUB, service=SERVICE, number=1, root=a_root(1), problem="tensor w")
    by_scrub = with_report(checks=(Checks(request=SCRUB, found=(rotten,)),))

    assert "rotten on its disk: release 1 of support: tensor w" == only(by_scrub).what
    assert found() == with_report(checks=(Checks(request="q1", found=(rotten,)),))


def test_node_that_vanished_is_named_with_its_key() -> None:
    """Its last word stands until somebody deletes it; the rest of it is not taken for present."""
    finding = only(found(records={"b": NodeRecord(node="b", boot_id="boot-b", facts=FACTS)},
                         reports={"a": msgspec.structs.replace(WELL, problem="old"),
                                  "b": a_report("b")}))  # fmt: skip

    assert (WARNING, "node a") == (finding.severity, finding.where)
    assert "etcdctl del /vctl/v1/test/reports/a" in finding.remedy


@pytest.mark.parametrize("report", [None, msgspec.structs.replace(WELL, boot_id="before")])
def test_agent_that_has_not_reported_is_named(report: NodeReport | None) -> None:
    """Also where the agent before it has."""
    assert "has not reported since it started" in only(found(report=report)).what


def test_fleet_without_nodes_is_an_error() -> None:
    """Nothing can serve."""
    assert (ERROR, "no node is present") == _of(only(found(records={}, reports={})))


def test_fleet_without_a_conductor_is_an_error() -> None:
    """Nobody would advance a rollout, nor roll one back by a guardrail."""
    finding = only(found(conductor=False))

    assert ERROR is finding.severity
    assert "--conduct" in finding.remedy


def test_value_that_cannot_be_read_is_an_error() -> None:
    """As it was said by who tried."""
    assert (ERROR, "unreadable Route at /x") == _of(
        only(found(problems=("unreadable Route at /x",)))
    )


def test_engines_that_are_not_alike_are_named() -> None:
    """With how many of each."""
    other = msgspec.structs.replace(FACTS, version="0.33.0")
    finding = only(
        found(
            records={
                "a": NodeRecord(node="a", boot_id="boot-a", facts=FACTS),
                "b": NodeRecord(node="b", boot_id="boot-b", facts=other),
            },
            reports={"a": WELL, "b": msgspec.structs.replace(WELL, node="b", boot_id="boot-b")},
        )
    )

    assert "its engines are not alike: vllm 0.32.0 (1), vllm 0.33.0 (1)" == finding.what


def test_older_agents_are_named() -> None:
    """An upgrade that stopped half-way."""
    record = NodeRecord(node="a", boot_id="boot-a", facts=FACTS, schema=0)

    assert "older than this vctl: a" in only(found(record=record)).what


def test_the_worst_comes_first() -> None:
    """And decides how bad it is."""
    bad, fair, good = (Finding(severity=s, where="x", what="y") for s in (ERROR, WARNING, OK))

    assert (bad, fair, good) == ordered([good, fair, bad])
    assert (ERROR, WARNING, OK) == (worst([fair, bad, good]), worst([good, fair]), worst([]))


# -- etcd ----------------------------------------------------------------------------------------

MEMBER = EtcdMember(
    endpoint="http://e1:2379", version="3.6.14", size_bytes=2048, quota_bytes=4096, has_leader=True
)


def test_member_that_is_well_is_told() -> None:
    """With its version and its size."""
    (finding,) = of_etcd([MEMBER])

    assert (OK, "version 3.6.14, 2.0 KiB of 4.0 KiB") == _of(finding)


@pytest.mark.parametrize(
    ("changes", "severity", "what", "remedy"),
    [
        ({"has_leader": False}, ERROR, "has no leader", "majority"),
        ({"alarms": ("memberID:1 alarm:NOSPACE",)}, ERROR, "NOSPACE", "etcdctl alarm disarm"),
        ({"alarms": ("memberID:1 alarm:CORRUPT",)}, ERROR, "CORRUPT", "member remove"),
        ({"alarms": ("etcdserver: no leader",)}, ERROR, "no leader", "endpoint status"),
        ({"size_bytes": 3300}, WARNING, "nearly full", "defrag"),
        ({"size_bytes": 1800 * 1024**2, "quota_bytes": 0}, WARNING, "the default quota", "defrag"),
        ({"version": "3.5.1"}, WARNING, "data can come to differ", "3.5.28, 3.6.9 or later"),
        ({"version": "3.4.38"}, WARNING, "a read can be stale", "3.5.28"),
        (
            {"has_compacted": False, "revision": 200_000},
            WARNING,
            "all of its 200000 revisions",
            "--auto-compaction-retention",
        ),
        (
            {"has_users": False, "endpoint": "http://etcd-1:2379"},
            WARNING,
            "asks nobody who they are",
            "init-auth",
        ),
        ({"clock_ahead_s": 90.0}, WARNING, "90 s ahead of", "timedatectl"),
        ({"clock_ahead_s": -7.0}, WARNING, "7 s behind", "timedatectl"),
    ],
)
def test_what_a_member_tells_is_found(
    changes: dict[str, Any], severity: Severity, what: str, remedy: str
) -> None:
    """Each with what mends it."""
    finding = only(tuple(of_etcd([msgspec.structs.replace(MEMBER, **changes)])))

    assert severity is finding.severity
    assert what in finding.what
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {"has_compacted": False, "revision": 100},
        {"has_compacted": True, "revision": 200_000},
        {"has_users": False, "endpoint": "http://127.0.0.1:2379"},
        {"has_users": False, "endpoint": "http://[::1]:2379"},
        {"clock_ahead_s": 2.0},
        {"version": "3.5.28"},
        {"version": "main"},
    ],
)
def test_what_a_member_tells_that_is_well(changes: dict[str, Any]) -> None:
    """Small fleets need no compaction, etcd on loopback no users, and clocks are never equal."""
    (finding,) = of_etcd([msgspec.structs.replace(MEMBER, **changes)])
    assert OK is finding.severity


def test_member_that_is_away_or_silent_is_named() -> None:
    """Away is a warning, for the others serve; one that may not tell is none."""
    away = EtcdMember(endpoint="e1", problem="refused", is_away=True)
    silent = EtcdMember(endpoint="e2", problem="permission denied")

    assert [WARNING, OK] == [finding.severity for finding in of_etcd([away, silent])]


def _of(finding: Finding) -> tuple[Severity, str]:
    return finding.severity, finding.what


def test_superuser_is_warned() -> None:
    """Its mistakes have no bounds."""
    member = EtcdMember(endpoint="http://127.0.0.1:2379", has_leader=True, is_superuser=True)
    (found,) = (f for f in of_etcd([member]) if f.severity is Severity.WARNING)
    assert "role root" in found.what
    assert "init-auth" in found.remedy
