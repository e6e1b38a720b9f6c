"""The live views between two scenes, and the fleet's picture, without a store."""

import io

import msgspec
import pytest
import yaml

from tests.builders import SERVICE, a_rollout
from tests.cli.support import CONVERGES, Terminal, a_fleet, conductor
from tests.cli.test_render import a_scene
from tests.cli.test_status_summary import large
from vctl_cli.render.live import LiveView
from vctl_cli.render.screen import Screen, has_unicode, is_drawable
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Plan, Watch
from vctl_plans.verdict import Figure, Outcome


class Clock:
    """A clock that is moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def soaking(**more):
    scene = a_scene(phase=P.SOAKING, sentences=("it soaks",), **more)
    rollout = msgspec.structs.replace(scene.rollout, soak_s=60.0, has_moved=True)
    return msgspec.structs.replace(scene, rollout=rollout)


def last(out: io.StringIO) -> str:
    """Return what was written since the last look."""
    text = out.getvalue()
    out.seek(0)
    out.truncate()
    return text


def test_time_goes_on_between_scenes_and_never_back():
    out, clock = Terminal(), Clock()
    with LiveView(Screen(out, io.StringIO(), has_color=False), clock) as view:
        view.show(soaking(elapsed_s=5.0))
        assert "55s left of 1m" in last(out)
        view.tick()
        assert last(out) == ""
        clock.now += 3.0
        view.tick()
        assert "52s left of 1m" in last(out)
        # Something else changed; the conductor's last word on the time is still the old one.
        view.show(soaking(elapsed_s=5.0, judged="passed"))
        assert "55s" not in last(out)
        clock.now += 1.0
        view.tick()
        assert "51s left of 1m" in last(out)


def test_time_stands_while_etcd_is_away():
    out, clock = Terminal(), Clock()
    with LiveView(Screen(out, io.StringIO(), has_color=False), clock) as view:
        view.show(soaking(elapsed_s=5.0))
        clock.now += 7.0
        view.tick()
        last(out)
        view.show(soaking(elapsed_s=5.0, is_live=False))
        text = last(out)
        assert "etcd is away: this is the last known state" in text
        assert "48s left of 1m" in text
        clock.now += 10.0
        view.tick()
        assert last(out) == ""


def test_figures_of_a_step_stay_when_its_phase_ends():
    figure = Figure("error ratio", Outcome.FAILED, "9.00", "<= 1.5", "90/100 failed, stable 9/90")
    plan = Plan(service=SERVICE, strategy="weighted", watch=Watch())
    out = Terminal()
    with LiveView(Screen(out, io.StringIO(), has_color=False)) as view:
        view.show(soaking(elapsed_s=5.0, figures=(figure,), plan=plan))
        assert "breach" in last(out)
        view.show(a_scene(phase=P.ROLLING_BACK, sentences=("it soaks", "breached"), plan=plan))
        assert "9.00 <= 1.5" in last(out)


@pytest.mark.parametrize(
    ("env", "encoding", "expected"),
    [
        ({"LANG": "C.UTF-8"}, "utf-8", True),
        ({"LANG": "de_DE.UTF-8"}, "utf-8", True),
        ({"LANG": "de_DE.UTF-8"}, "iso-8859-1", False),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, "utf-8", False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8", False),  # as Python itself sets it
        ({}, "utf-8", False),
    ],
)
def test_unicode_is_shown_where_the_locale_says_so(env, encoding: str, expected: bool):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert expected is has_unicode(stream, env)


def test_picture_is_drawn_on_terminals_that_can_move_their_cursor():
    assert is_drawable(Terminal(), {"TERM": "xterm"})
    assert not is_drawable(Terminal(), {"TERM": "dumb"})
    assert not is_drawable(io.StringIO(), {"TERM": "xterm"})


def test_fleet_on_a_terminal_is_a_picture():
    vctl = a_fleet()
    vctl.env, vctl.out = {"NO_COLOR": "1", "TERM": "xterm"}, Terminal()
    said = vctl("status", "--watch", "--timeout", "0.3")
    assert said.code == 0
    assert "fleet test" in said.out
    assert "##########" in said.out
    assert "3 of 3 ready" in said.out
    assert "  ready  3  ###  a, b, c\x1b[K\r\n" in said.out


def test_large_fleet_on_a_terminal_is_counted():
    vctl = large(a_fleet())
    vctl.env, vctl.out = {"NO_COLOR": "1", "TERM": "xterm"}, Terminal()
    said = vctl("status", "--watch", "--timeout", "0.3")
    assert "9950 of 9999 ready" in said.out
    assert "n7: root mismatch" in said.out
    assert "# is 500 nodes" in said.out


def test_yaml_of_a_watch_is_a_stream_of_documents():
    vctl = a_fleet(releases=2)
    vctl.conduct = conductor(*CONVERGES)
    said = vctl("rollout", "start", "--release", "2", "-o", "yaml")
    found = list(yaml.safe_load_all(said.out))
    assert said.out.startswith("---\nkind: ")
    assert "converged (3/3) on release 2" == found[-1]["text"]
    watched = a_fleet(rollout=a_rollout(P.CONVERGED))("status", "-w", "-s", SERVICE, "-o", "yaml")
    assert ["status"] == [each["kind"] for each in yaml.safe_load_all(watched.out)]
