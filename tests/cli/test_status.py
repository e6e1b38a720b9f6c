"""`vctl status`, `rollout status | watch | history` and `release list | show`."""

import asyncio
import json
import os
import pwd
import socket
from datetime import UTC, datetime

import msgspec
import pytest
import yaml

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_root, a_route
from tests.cli.support import (
    CONVERGES,
    KEYS,
    Terminal,
    Vctl,
    a_fleet,
    conductor,
    running,
    write_decision,
)
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Cause
from vctl_plans.store.gateway import GatewayUnsuitable

TABLE = """\
SERVICE  RELEASE  VECTOR     PHASE      TRAFFIC     READY  ROUTE
support  1        adapter=1  converged  100 % on 1  3/3    3/3
  converged (3/3) on release 1

NODE  PHASE  ENGINE  EPOCH  ROUTE       REASON
a     ready  torch   7      support@99
b     ready  torch   7      support@99
c     ready  torch   7      support@99
"""


def test_status_shows_services_and_nodes():
    said = a_fleet(rollout=a_rollout(P.CONVERGED, sentence="converged (3/3) on release 1"))(
        "status"
    )
    assert (said.code, said.out, said.err) == (0, TABLE, "")


def test_status_of_an_empty_fleet_says_so():
    said = Vctl()("status")
    assert (said.code, said.out) == (0, "fleet test: no service\n\nno node has ever reported\n")


def test_status_as_json_and_yaml_hold_the_same():
    vctl = a_fleet()
    as_json = json.loads(vctl("status", "-o", "json").out)
    assert (as_json["kind"], as_json["fleet"]) == ("status", "test")
    assert list(NODES) == [node["node"] for node in as_json["nodes"]]
    assert {("engine-1", 7)} == {(n["incarnation"], n["cache_epoch"]) for n in as_json["nodes"]}
    assert as_json == yaml.safe_load(vctl("status", "-o", "yaml").out)


def test_status_falls_back_to_grpc_where_the_gateway_is_unsuitable():
    vctl = a_fleet()
    vctl.failure = GatewayUnsuitable("no JSON gateway")
    readers = iter((vctl.failure, None))

    class Once(Vctl):
        def _peer(self):
            self.failure = next(readers)
            return super()._peer()

    said = Once(store=vctl.store)("status")
    assert said.code == 0
    assert "support" in said.out


def test_status_of_a_service_that_does_not_exist_is_2():
    said = a_fleet()("status", "-s", "suport")
    assert (said.code, said.out) == (2, "")
    assert "did you mean 'support'?" in said.err


def test_watch_writes_changes_and_ends_with_the_rollout():
    vctl = a_fleet(releases=2, rollout=a_rollout(P.PREPARING, sentence="is prepared"))
    vctl.conduct = conductor(*CONVERGES)
    said = vctl("status", "--watch", "-s", SERVICE)
    lines = said.out.splitlines()
    assert said.code == 0
    assert "converged (3/3) on release 2" in said.out
    assert sum(line.endswith("  a: ready") for line in lines) == 1


def test_watch_of_the_fleet_ends_at_its_timeout():
    said = a_fleet()("status", "--watch", "--timeout", "0.2", "-o", "json")
    assert said.code == 0
    assert json.loads(said.out.splitlines()[0])["kind"] == "status"


def test_watch_of_a_rollout_that_goes_on_is_5():
    assert a_fleet(rollout=running())("status", "-w", "-s", SERVICE, "--timeout", "0.2").code == 5


def test_watch_never_succeeds_for_a_rollout_that_was_taken_back():
    taken_back = a_rollout(P.ROLLED_BACK, cause=Cause.ASKED, sentence="rolled back (3/3)")
    assert a_fleet(rollout=taken_back)("status", "--watch", "-s", SERVICE).code == 3


def followed(vctl: Vctl) -> Vctl:
    """Write the history that belongs to the fleet's rollout."""

    async def write() -> None:
        store = vctl.store.peer()
        await write_decision(store, P.SHIFTING, "release 2 is ready: traffic moves to it")
        await write_decision(store, P.PAUSED, "these nodes do not report the route: c")

    asyncio.run(write())
    return vctl


def test_rollout_watch_tells_all_decisions_and_ends_at_paused():
    said = followed(a_fleet(releases=2, rollout=a_rollout()))("rollout", "watch")
    assert said.code == 4
    assert said.out.splitlines()[-2:] == [
        "earlier   shifting: release 2 is ready: traffic moves to it",
        "earlier   paused: these nodes do not report the route: c",
    ]


def test_rollout_watch_on_a_terminal_leaves_the_last_picture():
    vctl = followed(a_fleet(releases=2, rollout=a_rollout()))
    vctl.env = {"NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}
    vctl.out = Terminal()
    said = vctl("rollout", "watch")
    assert said.code == 4
    assert "support  release 1 -> 2" in said.out
    assert "paused" in said.out
    assert "vctl rollout resume -s support  go on from here" in said.err


def test_rollout_watch_without_any_rollout_is_7():
    said = a_fleet()("rollout", "watch")
    assert (said.code, said.out) == (7, "")
    assert "never had a rollout" in said.err


def test_rollout_status_exits_as_the_rollout_stands():
    said = a_fleet(rollout=running())("rollout", "status")
    assert said.code == 0
    assert "phase     shifting" in said.out
    failed = a_fleet(rollout=a_rollout(P.FAILED, sentence="refused by a"))("rollout", "status")
    assert failed.code == 1
    assert "refused by a" in failed.out


def test_history_tells_who_and_why():
    vctl = a_fleet(releases=2, route=a_route(stable=2, good=(1, 2), instant=(1,)))
    vctl("rollback", "--now", "--no-watch", "--reason", "INC-1")
    said = vctl("rollout", "history")
    assert said.code == 0
    assert "traffic returns to release 1; release 2 is revoked" in said.out
    assert "INC-1" in said.out
    assert "ann@" in said.out


def test_history_names_who_asked_once_and_who_steered_where_they_did():
    vctl = a_fleet(releases=2)
    vctl("rollout", "start", "--release", "2", "--no-watch", "--reason", "INC-1")
    vctl.env = {"USER": "bo"}
    vctl("rollout", "pause", "--reason", "lunch")
    vctl.env = {}
    vctl("rollout", "resume", "--no-watch")
    head, *decisions = vctl("rollout", "history").out.splitlines()
    host = socket.gethostname()
    assert head.endswith(f", by ann@{host}: INC-1")
    times = [datetime.fromisoformat(line.split()[0]) for line in decisions]
    assert times == sorted(times)
    assert abs((datetime.now(UTC) - times[0]).total_seconds()) < 60
    assert [line.replace(line.split()[0] + "  ", "") for line in decisions] == [
        "  preparing    release 2 is prepared on 3 nodes",
        f"  paused       paused by an operator while preparing  [by bo@{host}: lunch]",
        f"  preparing    resumed: preparing  [by ann@{host}]",
    ]


@pytest.mark.parametrize(
    "arguments",
    [("status",), ("rollout", "status"), ("rollout", "history"), ("route", "show"),
     ("release", "list"), ("rollback", "--now")],
)  # fmt: skip
def test_unknown_service_is_refused_alike_with_what_to_try(arguments: tuple[str, ...]):
    said = a_fleet()(*arguments, "-s", "suport")
    assert (2, "") == (said.code, said.out)
    assert said.err.splitlines() == [
        "vctl: service: fleet test has no service 'suport'",
        "  did you mean 'support'?",
    ]
    nothing = Vctl()(*arguments, "-s", "support")
    assert nothing.err.splitlines() == [
        "vctl: service: fleet test has no service 'support'",
        "  it has none at all: is it the right --fleet?",
    ]


def test_who_asks_is_known_where_no_login_named_them():
    vctl = a_fleet(releases=2, route=a_route(stable=2, good=(1, 2), instant=(1,)))
    vctl.env = {"USER": ""}
    vctl("rollback", "--now", "--no-watch")
    me = pwd.getpwuid(os.getuid()).pw_name
    assert me == vctl.service().rollout.by.user  # type: ignore[union-attr]


def test_releases_are_listed_with_what_they_are_now():
    route = a_route(stable=2, good=(1, 2), instant=(1,), revoked=(3,))
    said = a_fleet(releases=4, route=route)("release", "list")
    states = {line.split()[0]: line.split()[2] for line in said.out.splitlines()[1:]}
    assert states == {"1": "instant", "2": "serves", "3": "revoked", "4": "-"}


def test_release_is_shown_in_full_and_a_missing_one_is_2():
    vctl = a_fleet(releases=2)
    said = vctl("release", "show", "2")
    assert said.code == 0
    assert "release   2 of support" in said.out
    assert a_root(2) in said.out
    missing = vctl("release", "show", "9")
    assert (missing.code, missing.out) == (2, "")
    assert "support has no release 9; known: 1, 2" in missing.err


def test_node_that_is_gone_stays_in_sight():
    vctl = a_fleet(nodes=2)
    vctl.put(KEYS.report("c"), a_report("c", r1=NodePhase.READY))
    assert "c     absent  -" in vctl("status").out


def test_rollout_status_keeps_a_node_that_is_gone_in_sight():
    vctl = a_fleet(nodes=2, rollout=a_rollout(P.PAUSED, sentence="1 of 3 nodes have vanished: c"))
    vctl.put(KEYS.report("c"), a_report("c", r1=NodePhase.READY))
    said = vctl("rollout", "status")
    assert "c     absent  -" in said.out
    assert "it waits for a person:\n  vctl rollout resume -s support" in said.err
    assert "vctl rollout status" not in said.err


def test_watch_says_when_etcd_is_away():
    vctl = a_fleet()

    async def cut(store):
        await asyncio.sleep(0.1)
        vctl.opened.disconnect()

    vctl.conduct = cut
    said = vctl("status", "--watch", "--timeout", "0.6")
    assert "etcd is away: the last known state" in said.out


def test_status_says_how_many_nodes_hold_the_base():
    rollout = a_rollout(P.SHIFTING, wave_size=1, wave=50.0)
    said = a_fleet(releases=2, rollout=rollout)("status")
    assert "shifting, base 3/3" in said.out


NASTY = "\x1b[2J\x9b1A boom\r\nz     ready\x07"


@pytest.mark.parametrize("command", [("status",), ("status", "-s", SERVICE), ("nodes",)])
def test_what_an_engine_says_moves_no_cursor_and_forges_no_line(command):
    """In a table each node stays one line; in JSON it reads back as it was said."""
    vctl = a_fleet()
    report = a_report("b", r1=NodePhase.FAILED)
    failed = msgspec.structs.replace(report.releases[0], reason=NASTY)
    vctl.put(KEYS.report("b"), msgspec.structs.replace(report, releases=(failed,)))
    said = vctl(*command).out
    assert not [c for c in said if c != "\n" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0)]
    assert not [line for line in said.splitlines() if line.startswith("z")]

    as_json = vctl(*command, "-o", "json").out
    assert not [c for c in as_json if c != "\n" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0)]
    (node,) = (n for n in json.loads(as_json)["nodes"] if n["node"] == "b")
    assert NASTY in node["reason"]


def test_refusal_shows_no_control_characters():
    said = a_fleet()("status", "-s", "sup\x1b[2Jport")
    assert (said.code, said.out) == (2, "")
    assert "\x1b" not in said.err


def test_watch_of_one_service_writes_the_same_report_as_its_tail(tmp_path):
    vctl = a_fleet(releases=2, rollout=a_rollout(P.PREPARING, sentence="is prepared"))
    vctl.conduct = conductor(*CONVERGES)
    of_status, of_tail = tmp_path / "a.xml", tmp_path / "b.xml"
    said = vctl("status", "-w", "-s", SERVICE, "--junit", str(of_status))
    assert 0 == said.code, said
    vctl.conduct = None
    assert 0 == vctl("rollout", "watch", "-s", SERVICE, "--junit", str(of_tail)).code
    assert "converged" in of_status.read_text()
    assert of_tail.read_text() == of_status.read_text()


def test_watch_that_runs_out_of_time_reports_that(tmp_path):
    path = tmp_path / "x.xml"
    vctl = a_fleet(releases=2, rollout=a_rollout(P.PREPARING, sentence="is prepared"))
    vctl.conduct = conductor(CONVERGES[0])
    said = vctl("status", "-w", "-s", SERVICE, "--junit", str(path), "--timeout", "0.5")
    assert 5 == said.code
    assert 'failures="0"' not in path.read_text() or 'errors="0"' not in path.read_text()


def test_report_of_no_rollout_is_refused(tmp_path):
    for given in (("status",), ("status", "-w"), ("status", "-s", SERVICE)):
        said = a_fleet()(*given, "--junit", str(tmp_path / "x.xml"))
        assert (said.code, said.out) == (2, "")
        assert "add --watch and --service" in said.err
