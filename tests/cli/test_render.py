"""Lines and pictures of a rollout, without a store."""

import io

import msgspec
import pytest
from rich.console import Console

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route, a_service
from tests.cli.support import NOON, Terminal
from vctl_cli.follow import Scene
from vctl_cli.render.changes import Changes, change_text
from vctl_cli.render.live import Picture, picture
from vctl_cli.render.screen import Screen
from vctl_cli.render.table import table
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.phase import NodePhase as N
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Entry
from vctl_plans.snapshot import Fleet
from vctl_plans.status import node_status


def a_scene(
    *reports: NodeReport, phase: P = P.PREPARING, sentences: tuple[str, ...] = (), **more
) -> Scene:
    rollout = a_rollout(phase, seq=len(sentences) - 1)
    service = a_service(route=a_route(), rollout=rollout)
    records = {n: NodeRecord(node=n, boot_id=f"boot-{n}") for n in NODES}
    fleet = Fleet(
        services={SERVICE: service}, records=records, reports={r.node: r for r in reports}
    )
    entries = (Entry(rollout="r2", seq=n, phase=phase, sentence=s) for n, s in enumerate(sentences))
    return Scene(
        service=service,
        rollout=rollout,
        entries=tuple(entries),
        nodes=tuple(node_status(node, fleet) for node in NODES),
        **more,
    )


def lines(changes: Changes, scene: Scene) -> list[str]:
    return [change_text(change, NOON) for change in changes.next(scene)]


def test_every_decision_is_told_once_and_in_order():
    changes = Changes()
    assert lines(changes, a_scene(sentences=("one",)))[:1] == ["12:00:00  preparing: one"]
    told = lines(changes, a_scene(phase=P.SHIFTING, sentences=("one", "two", "three")))
    assert told == ["12:00:00  shifting: two", "12:00:00  shifting: three"]


def test_decision_from_before_is_told_without_a_time_that_would_be_wrong():
    changes = Changes(since=1)
    told = lines(changes, a_scene(phase=P.SHIFTING, sentences=("one", "two")))
    assert told[:2] == ["earlier   shifting: one", "12:00:00  shifting: two"]


def test_nodes_that_change_alike_share_a_line():
    changes = Changes()
    reports = [a_report(node, r1=N.READY, r2=N.ABSENT) for node in NODES]
    assert lines(changes, a_scene(*reports)) == []
    loading = [a_report(node, r1=N.READY, r2=N.LOADING) for node in "ab"]
    told = lines(changes, a_scene(*loading, reports[2]))
    assert told == ["12:00:00  a, b: release 2 loading"]
    assert lines(changes, a_scene(*loading, reports[2])) == []


def test_ready_is_told_once_the_gateway_confirms_it():
    changes = Changes()
    ready = a_report("a", r1=N.READY, r2=N.READY)
    others = [a_report(node, r1=N.READY, r2=N.ABSENT) for node in "bc"]
    waiting = msgspec.structs.replace(ready, gateway_ok=False)
    assert lines(changes, a_scene(waiting, *others)) == []
    assert lines(changes, a_scene(ready, *others)) == ["12:00:00  a: release 2 ready"]
    assert lines(changes, a_scene(waiting, *others)) == []
    assert lines(changes, a_scene(ready, *others)) == []


def test_node_that_can_hold_nothing_is_told_of_itself_and_not_of_a_release():
    changes = Changes()
    away = msgspec.structs.replace(a_report("a"), incarnation="")
    others = [a_report(node, r1=N.READY, r2=N.ABSENT) for node in "bc"]
    assert lines(changes, a_scene(away, *others)) == ["12:00:00  a: no engine"]


def test_cursor_stands_on_an_empty_line_where_a_terminal_echoes_keys(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    with Picture(Screen(out, io.StringIO())) as drawn:
        drawn.draw("x" * 80)
        assert out.getvalue().rstrip(" ").endswith("x\n")


def test_store_that_goes_and_comes_is_told():
    changes = Changes()
    lines(changes, a_scene())
    assert "etcd is away" in lines(changes, a_scene(is_live=False))[0]
    assert "etcd answers again" in lines(changes, a_scene())[0]


@pytest.mark.parametrize("width", [80, 200])
def test_picture_fits_and_says_the_same_without_colour(width: int):
    failed = a_report("b", r1=N.READY, r2=N.FAILED)
    reason = "root mismatch: " + "x" * 300
    releases = [
        msgspec.structs.replace(r, reason=reason) if r.number == 2 else r for r in failed.releases
    ]
    failed = msgspec.structs.replace(failed, releases=tuple(releases))
    scene = a_scene(a_report("a", r1=N.READY, r2=N.READY), failed, sentences=("is prepared",))
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(picture(scene))
    shown = out.getvalue()
    assert all(len(line) <= width for line in shown.splitlines())
    assert "\x1b" not in shown
    for text in ("support: release 1 -> 2", "phase    preparing", "1 failed", "b: root mismatch",
                 "1 ready", "is prepared", "100 % on release 1"):  # fmt: skip
        assert text in shown


def test_table_aligns_and_leaves_no_spaces_at_the_end():
    assert table(("A", "BB"), [("xx", "y"), ("x", "")]) == "A   BB\nxx  y\nx"
