"""A rollout at one moment as a picture: what a person who waits for it wants to see, in that order.

It says the same without colour (colour only repeats words) and without Unicode, and fits: what the
rollout does comes whole, what nodes say and the decision log take the lines that are left.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from rich.text import Text

from vctl_cli.follow import Scene
from vctl_cli.render.changes import word
from vctl_cli.render.fitting import bar, cut, wrapped
from vctl_cli.render.nodegrid import BAD, BUSY, GOOD, Group, counted, grid, grouped, well
from vctl_cli.render.terminal import Glyphs
from vctl_cli.render.traffic import phase_words, soak_left_s
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Watch
from vctl_plans.rollout import Entry, Rollout
from vctl_plans.route import Route
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.units import duration_text
from vctl_plans.verdict import Figure, Outcome

_STYLES = {
    P.CONVERGED: GOOD, P.ROLLED_BACK: GOOD, P.FAILED: BAD, P.ROLLING_BACK: BAD, P.PAUSED: BUSY,
    P.SUPERSEDED: BUSY,
}  # fmt: skip
_OUTCOMES = {Outcome.PASSED: GOOD, Outcome.FAILED: BAD, Outcome.INCONCLUSIVE: BUSY}
_LABEL = 10  # columns
_BAR_CELLS = 20
_LEAST_LOG = 4  # lines that the decision log has at least
_MOST_LOG = 16
_LINES_OF_ONE = 3  # of a decision; of the last one more
_LINES_OF_LAST = 5


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What a picture is made for."""

    columns: int
    lines: int
    glyphs: Glyphs
    elapsed_s: float = 0.0  # of the rollout's phase, by now
    figures: tuple[Figure, ...] = ()  # the last that are known of the present step


def rollout_picture(scene: Scene, frame: Frame) -> list[Text]:
    """Return the picture's lines, of which each fits and which fit together."""
    head = [*_head(scene, frame), *_guardrails(scene, frame)]
    groups = groups_of(scene)
    nodes = _labelled("nodes", Text(well(groups)), frame)
    left = max(0, frame.lines - len(head) - 2)  # this one's and the empty line before the log
    shown = grid(groups, frame.columns, lines=max(2, left - _LEAST_LOG), glyphs=frame.glyphs)
    left -= len(shown)
    log = _log(scene.entries, frame, lines=min(left, _MOST_LOG)) if left > 0 else []
    return [*head, nodes, *shown, *([Text()] if log else []), *log][: frame.lines]


def groups_of(scene: Scene) -> tuple[Group, ...]:
    """Return the nodes by what they say of the release that matters now, worst first."""
    if scene.counted:
        return counted(scene.counted)
    target = scene.rollout.back_to or scene.rollout.to_release
    said = ((node.node, word(node, target)) for node in scene.nodes)
    return grouped((node, each.phase, each.text) for node, each in said)


def _labelled(label: str, content: Text, frame: Frame) -> Text:
    line = Text().append(label.ljust(_LABEL), style="dim").append_text(content)
    return cut(line, frame.columns, frame.glyphs)


def _head(scene: Scene, frame: Frame) -> list[Text]:
    rollout, route = scene.rollout, scene.service.current_route
    glyphs = frame.glyphs
    releases = f"{rollout.from_release or 'none'} {glyphs.arrow} {rollout.to_release}"
    back = f", back to {rollout.back_to}" if rollout.back_to not in {0, rollout.to_release} else ""
    title = Text().append(f"{rollout.service}  release {releases}{back}", style="bold")
    title.append(f"  {rollout.strategy}, rollout {rollout.id}", style="dim")
    style = f"bold {_STYLES.get(rollout.phase, BUSY)}"
    phase = Text().append(phase_words(rollout), style=style)
    lasted = _lasted(scene, frame)
    phase.append(f", {lasted}" * bool(lasted))
    lines = [cut(title, frame.columns, glyphs), _labelled("phase", phase, frame)]
    if not scene.is_live:
        away = "etcd is away: this is the last known state"
        lines.append(_labelled("", Text(away, style=f"bold {BAD}"), frame))
    lines.append(_labelled("traffic", _traffic(route, glyphs), frame))
    if rollout.steps > 1 and scene.plan and not rollout.back_to:
        lines.append(_labelled("steps", _steps(scene, glyphs), frame))
    if rollout.phase is P.SOAKING:
        lines.append(_labelled("soak", _soak(rollout, frame), frame))
    return lines


def _lasted(scene: Scene, frame: Frame) -> str:
    """Return how long a phase that has a deadline lasts, and may."""
    plan = scene.plan
    if not plan or not frame.elapsed_s:
        return ""
    most_s = {P.PREPARING: plan.prepare_s, P.SHIFTING: plan.converge_s}.get(scene.rollout.phase)
    if most_s is None:
        return ""
    return f"for {duration_text(int(frame.elapsed_s))} of at most {duration_text(most_s)}"


def _traffic(route: Route, glyphs: Glyphs) -> Text:
    share = route.weight if route.candidate else FULL_WEIGHT
    serving = route.candidate or route.stable
    if not serving:
        return Text("none: no release serves")
    text = Text().append(bar(share / FULL_WEIGHT, _BAR_CELLS, glyphs), style="cyan")
    text.append(f"  {share:g} % on release {serving}")
    if route.candidate and share < FULL_WEIGHT and route.stable:
        text.append(f", {FULL_WEIGHT - share:g} % on release {route.stable}")
    apart = ", ".join(str(n) for n in sorted({o.release for o in route.overrides}))
    text.append(f", groups on {apart}" * bool(apart))
    return text.append(", requests wait" * (route.hold is not None))


def _steps(scene: Scene, glyphs: Glyphs) -> Text:
    """Return the weights of all steps, the present one marked."""
    rollout = scene.rollout
    at = rollout.step if rollout.has_moved else -1
    is_over = rollout.phase is P.CONVERGED
    text = Text()
    for n, step in enumerate(scene.plan.steps if scene.plan else ()):
        text.append(f" {glyphs.arrow} " if n else "")
        shown = f"{step.weight:g} %" + (" manual" if step.manual else "")
        if n == at and not is_over:
            text.append(f"[{shown}]", style="bold")
        else:
            text.append(shown, style="" if n <= at else "dim")
    return text


def _soak(rollout: Rollout, frame: Frame) -> Text:
    left_s = soak_left_s(rollout, frame.elapsed_s)
    whole = duration_text(rollout.soak_s)
    if rollout.promoted or not rollout.soak_s:
        return Text("promoted" if rollout.promoted else "none")
    done = bar(1 - left_s / rollout.soak_s, _BAR_CELLS, frame.glyphs)
    left = f"{duration_text(float(-(-left_s // 1)))} left of {whole}"
    return Text(f"{done}  {left if left_s else f'{whole} have passed'}")


def _guardrails(scene: Scene, frame: Frame) -> list[Text]:
    watch = scene.plan.watch if scene.plan else None
    if watch is None:
        return []
    if not frame.figures and (scene.rollout.phase.is_terminal or scene.rollout.back_to):
        return []
    if not frame.figures:
        return [_labelled("guarded", Text(_limits(watch)), frame)]
    rows = [_figure(figure, frame) for figure in frame.figures]
    return [_labelled("guarded", row, frame) if not n else _labelled("", row, frame)
            for n, row in enumerate(rows)]  # fmt: skip


def _limits(watch: Watch) -> str:
    rails = [f"error ratio <= {watch.error_ratio:g}", f"p99 latency <= {watch.p99_ratio:g}"]
    rails += ["drift"] * (watch.drift is not None)
    rails += ["free memory"] * (watch.free_memory is not None) + list(watch.queries)
    return f"{', '.join(rails)}; from {watch.min_requests} requests on"


def _figure(figure: Figure, frame: Frame) -> Text:
    width = max(len(each.judge) for each in frame.figures)
    value = max(len(each.value) for each in frame.figures)
    limit = max(len(each.limit) for each in frame.figures)
    outcome = {Outcome.PASSED: "ok", Outcome.FAILED: "breach", Outcome.INCONCLUSIVE: "open"}
    row = Text(f"{figure.judge[:24].ljust(min(width, 24))}  ")
    row.append(outcome[figure.outcome].ljust(6), style=_OUTCOMES[figure.outcome])
    row.append(f"  {(figure.value or '-').rjust(max(1, value))} {figure.limit.ljust(limit)}")
    return row.append(f"  {figure.counts}", style="dim")


def _log(entries: Sequence[Entry], frame: Frame, *, lines: int) -> list[Text]:
    """Return the last decisions that fit; the newest is last, and has the most place."""
    found: list[Text] = []
    for n, entry in enumerate(reversed(entries)):
        most = _LINES_OF_ONE if n else _LINES_OF_LAST
        left = lines - len(found)
        if left <= 0:
            break
        made = wrapped(
            Text(entry.sentence, style="" if n else "bold"),
            frame.columns,
            lines=min(most, left),
            glyphs=frame.glyphs,
            lead=Text().append(f"{_clock(entry.at)}  ", style="dim"),
        )
        found = [*made, *found]
    return found


def _clock(at: str) -> str:
    """Return the local time of a decision, by its writer's clock."""
    try:
        return f"{datetime.fromisoformat(at).astimezone():%H:%M:%S}"
    except ValueError:
        return "--:--:--"
