"""Lines and pictures of a rollout, without a store."""

import io
import os

import msgspec
import pytest
from rich.text import Text

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route, a_service
from tests.cli.support import NOON, Terminal
from vctl_cli.follow import Scene
from vctl_cli.render.changes import Changes, change_text
from vctl_cli.render.nodegrid import counted, grid
from vctl_cli.render.picture import Frame, rollout_picture
from vctl_cli.render.screen import Screen
from vctl_cli.render.table import table
from vctl_cli.render.terminal import ASCII, UNICODE, Picture
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.phase import NodePhase as N
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Plan, PlanStep, Watch
from vctl_plans.rollout import Entry
from vctl_plans.snapshot import Fleet
from vctl_plans.status import node_status
from vctl_plans.summary import ServiceSummary, WorstNode
from vctl_plans.verdict import Figure, Outcome

SIZE = os.terminal_size((80, 24))


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
        nodes=() if "counted" in more else tuple(node_status(node, fleet) for node in NODES),
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


def test_picture_is_overwritten_line_by_line_and_never_blank_in_between():
    out = Terminal()
    with Picture(Screen(out, io.StringIO(), has_color=False), size=lambda _: SIZE) as drawn:
        drawn.draw([Text("one"), Text("two")])
        drawn.draw([Text("one"), Text("two")])
        drawn.draw([Text("three")])
    first = "\rone\x1b[K\r\ntwo\x1b[K\r\n\x1b[J"
    assert out.getvalue() == first + "\r\x1b[2Athree\x1b[K\r\n\x1b[J"


def test_picture_is_drawn_from_the_top_once_the_terminal_has_another_size():
    out, sizes = Terminal(), [SIZE]
    with Picture(Screen(out, io.StringIO(), has_color=False), size=lambda _: sizes[-1]) as drawn:
        drawn.draw([Text("x" * 100)] * 50)
        stale = [drawn.is_stale]
        assert out.getvalue().count("x" * 79 + "\x1b[K\r\n") == 23
        sizes.append(os.terminal_size((40, 10)))
        stale.append(drawn.is_stale)
        out.truncate(0)
        drawn.draw([Text("x" * 100)] * 50)
        stale.append(drawn.is_stale)
    assert stale == [False, True, False]
    shown = out.getvalue().lstrip("\0")
    assert shown.startswith("\x1b[H\x1b[2J")
    assert shown.count("x" * 39 + "\x1b[K\r\n") == 9


def test_nodes_of_a_large_fleet_are_told_by_their_number():
    changes = Changes()
    summary = ServiceSummary(service=SERVICE, phases={"loading": 9000, "ready": 1000})
    assert lines(changes, a_scene(counted=summary)) == ["12:00:00  nodes: 9000 loading, 1000 ready"]
    assert lines(changes, a_scene(counted=summary)) == []


def test_store_that_goes_and_comes_is_told():
    changes = Changes()
    lines(changes, a_scene())
    assert "etcd is away" in lines(changes, a_scene(is_live=False))[0]
    assert "etcd answers again" in lines(changes, a_scene())[0]


def shown(scene: Scene, *, columns: int = 80, lines: int = 24, glyphs=ASCII, **more) -> str:
    frame = Frame(columns=columns, lines=lines, glyphs=glyphs, **more)
    return "\n".join(line.plain for line in rollout_picture(scene, frame))


@pytest.mark.parametrize("glyphs", [ASCII, UNICODE])
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50), (40, 10), (20, 4)])
def test_picture_fits_and_says_the_same_without_unicode(columns: int, lines: int, glyphs):
    failed = a_report("b", r1=N.READY, r2=N.FAILED)
    reason = "root mismatch: " + "x" * 300
    releases = [
        msgspec.structs.replace(r, reason=reason) if r.number == 2 else r for r in failed.releases
    ]
    failed = msgspec.structs.replace(failed, releases=tuple(releases))
    sentences = ("is prepared", "y" * 500, "the end")
    scene = a_scene(a_report("a", r1=N.READY, r2=N.READY), failed, sentences=sentences)
    picture = shown(scene, columns=columns, lines=lines, glyphs=glyphs)
    assert len(picture.splitlines()) <= lines
    assert all(len(line) <= columns for line in picture.splitlines())
    assert glyphs is UNICODE or picture.isascii()
    if columns >= 80:
        for text in ("support  release 1 ", "phase     preparing", "failed    1",
                     "b: root mismatch", "ready     1", "is prepared", "100 % on release 1",
                     "the end"):  # fmt: skip
            assert text in picture


def test_picture_of_a_soak_shows_what_is_left_and_the_guardrails_figures():
    plan = Plan(
        service=SERVICE,
        strategy="weighted",
        steps=(PlanStep(weight=10, soak_s=60), PlanStep(weight=100, soak_s=60, manual=True)),
        watch=Watch(),
    )
    scene = a_scene(phase=P.SOAKING, sentences=("it soaks",))
    rollout = msgspec.structs.replace(scene.rollout, steps=2, has_moved=True, soak_s=60.0)
    scene = msgspec.structs.replace(scene, rollout=rollout, plan=plan)
    before = shown(scene, elapsed_s=15.0).splitlines()
    assert "phase     soaking, step 1/2" in before
    assert "steps     [10 %] -> 100 % manual" in before
    assert "soak      #####...............  45s left of 1m" in before
    assert "guarded   error ratio <= 1.5, p99 latency <= 1.2; from 200 requests on" in before
    figures = (
        Figure("error ratio", Outcome.FAILED, "2.01", "<= 1.5", "20/200 failed, stable 9/180"),
        Figure("p99 latency", Outcome.INCONCLUSIVE, "", "<= 1.2", "none, stable 12 ms"),
    )
    after = shown(scene, elapsed_s=15.0, figures=figures).splitlines()
    assert "guarded   error ratio  breach  2.01 <= 1.5  20/200 failed, stable 9/180" in after
    assert "          p99 latency  open       - <= 1.2  none, stable 12 ms" in after


def test_ten_thousand_nodes_fit_worst_first_and_the_few_are_named():
    groups = counted(
        ServiceSummary(
            service=SERVICE,
            phases={"ready": 9950, "loading": 47, "failed": 3},
            worst=(
                WorstNode(node="n7", phase="failed", reason="root mismatch"),
                WorstNode(node="n9", phase="failed", reason="root mismatch"),
            ),
            unnamed=48,
        )
    )
    lines = [line.plain for line in grid(groups, 80, lines=6, glyphs=ASCII)]
    assert lines == [
        "  failed      3  #                     n7 and 2 more",
        "    n7 and 1 more: root mismatch",
        "  loading    47  #",
        f"  ready    9950  {'#' * 20}",
        "  # is 500 nodes",
    ]
    assert [line.plain for line in grid(groups, 80, lines=2, glyphs=ASCII)] == [
        "  failed      3  #                     n7 and 2 more",
        "  loading    47  #",
    ]


def test_table_aligns_and_leaves_no_spaces_at_the_end():
    assert table(("A", "BB"), [("xx", "y"), ("x", "")]) == "A   BB\nxx  y\nx"


def test_what_is_said_cannot_move_the_cursor():
    changes = Changes()
    told = lines(changes, a_scene(sentences=("one\ntwo \x1b[2J\x9b1A",)))
    assert told[0] == "12:00:00  preparing: one two ?[2J?1A"
    out = Terminal()
    with Picture(Screen(out, io.StringIO(), has_color=False), size=lambda _: SIZE) as drawn:
        drawn.draw([Text("one\ntwo \x1b[2J")])
    assert out.getvalue() == "\rone two ?[2J\x1b[K\r\n\x1b[J"
