"""The plots of a rollout's report. Each says in a sentence what it has nothing of."""

from collections.abc import Callable, Iterable, Sequence

from vctl_cli.recounting import RolloutRecord
from vctl_cli.render import svg, timeline
from vctl_cli.render.svg import Frame
from vctl_cli.render.timeline import Arrivals, Counted, Level, Span
from vctl_plans.chronicle import NAMED
from vctl_plans.rollout import Rollout
from vctl_plans.seen import Rate
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.units import duration_text

_BANDS = {
    "preparing": "calm",
    "shifting": "move",
    "soaking": "calm",
    "settling": "calm",
    "paused": "stop",
    "rolling_back": "back",
}
_BAND = 16
_CHAR = 7
"""About the width of a letter, to tell what fits."""
_ROW = 13
_LINE = 16
_WHOLE = 100
_SLOWEST = 3
_BESIDE = 2.5
"""How far a line is drawn from one that has the same values."""
_STYLES = ("third", "old", "new")


def style(rollout: Rollout, number: int) -> str:
    """Return a release's colour: what came is one, what was there before another."""
    if number == rollout.to_release:
        return "new"
    return "old" if number == rollout.from_release else "third"


def traffic(record: RolloutRecord) -> str:
    """Return the share of traffic by release, with the phases above."""
    levels = timeline.shares(record)
    if not levels:
        return _nothing("how traffic was split was not kept by the version that carried it out")
    frame = Frame(timeline.end_s(record), FULL_WEIGHT, 210)
    parts = [svg.axes(frame, [(0, "0 %"), (50, "50 %"), (100, "100 %")])]
    below = [0.0] * len(levels)
    for number in _releases(levels, record.rollout):
        points = [
            (level.at_s, low, low + level.values.get(number, 0.0))
            for level, low in zip(levels, below, strict=True)
        ]
        color, is_lowest = style(record.rollout, number), not any(below)
        below = [high for _, _, high in points]
        parts.append(svg.area(frame, points, color))
        if is_lowest:
            parts.append(svg.steps(frame, [(at, high) for at, _, high in points], color))
        parts.append(_inside(frame, points, f"release {number}", color))
    parts += [
        svg.mark(frame, moment.at_s, moment.entry.sentence) for moment in record.decisions[1:]
    ]
    picture = svg.plot(frame, parts, label="percent of traffic by release over time")
    groups = levels_of_groups(record)
    note = f'<p class="note">{svg.text(groups)}</p>' if groups else ""
    return _phases(timeline.spans(record), frame.end_s) + picture + note


def _inside(
    frame: Frame, points: Sequence[tuple[float, float, float]], name: str, color: str
) -> str:
    """Return a name in the largest part of an area; nothing where no part has room for it."""
    ends = [*(at for at, _, _ in points[1:]), frame.end_s]
    parts = [
        (frame.x(at), frame.x(end), frame.y(low), frame.y(high))
        for (at, low, high), end in zip(points, ends, strict=True)
    ]
    roomy = [
        each
        for each in parts
        if each[1] - each[0] > _CHAR * len(name) and each[2] - each[3] > _LINE
    ]
    if not roomy:
        return ""
    left, right, low, high = max(roomy, key=lambda each: (each[1] - each[0]) * (each[2] - each[3]))
    x, y = round((left + right) / 2, 2), round((low + high) / 2 + 4, 2)
    return (
        f'<text class="name {color}" x="{x}" y="{y}" text-anchor="middle">{svg.text(name)}</text>'
    )


def levels_of_groups(record: RolloutRecord) -> str:
    """Return what groups had of their own, in words; empty: nothing."""
    found = {n for m in record.decisions if m.entry.seen for n in m.entry.seen.traffic.groups}
    numbers = ", ".join(map(str, sorted(found)))
    return f"Groups had release {numbers} of their own, which is not in this plot." if found else ""


def _phases(spans: Sequence[Span], end_s: float) -> str:
    """Return the phases as a band above the first plot."""
    frame = Frame(end_s, 1, _BAND + 4)
    parts = []
    for span in spans:
        x, width = frame.x(span.since_s), frame.x(span.until_s) - frame.x(span.since_s)
        name = span.phase.replace("_", " ")
        title = f"{name}: {duration_text(span.until_s - span.since_s)}"
        parts.append(
            f'<rect class="band {_BANDS.get(span.phase, "end")}" x="{x}" y="0"'
            f' width="{max(width, 1.5):.2f}" height="{_BAND}">'
            f"<title>{svg.text(title)}</title></rect>"
        )
        if width > _CHAR * len(name):
            parts.append(f'<text x="{x + 4}" y="{_BAND - 4}">{svg.text(name)}</text>')
    return svg.plot(frame, parts, label="phases over time")


def holders(record: RolloutRecord) -> str:
    """Return how many nodes held each release ready."""
    levels = timeline.holders(record)
    if not levels:
        return _nothing("no conductor has decided anything on it yet")
    most = max([record.rollout.roster_size, *(n for x in levels for n in x.values.values())])
    frame = Frame(timeline.end_s(record), most, 130)
    parts = [svg.axes(frame, [(0, "0"), (most, f"{most:g}")])]
    last: dict[int, float] = {}
    for n, number in enumerate(_releases(levels, record.rollout)):
        points = [(level.at_s, level.values.get(number, 0.0)) for level in levels]
        if number == record.rollout.to_release:
            points = [*timeline.growing(record), *points]
        parts.append(svg.steps(frame, points, style(record.rollout, number), down=n * _BESIDE))
        last[number] = points[-1][1]
    parts.append(_names(frame, last, record.rollout))
    return svg.plot(frame, parts, label="nodes that hold each release ready, over time")


def errors(record: RolloutRecord) -> str:
    """Return the share of requests that failed, by release."""

    def value(rate: Rate) -> float | None:
        return None if rate.error_rate is None else rate.error_rate * 100

    return _rates(record, value, unit="%", least_top=1.0, label="percent of requests that failed")


def latency(record: RolloutRecord) -> str:
    """Return the 99th percentile of latency, by release."""

    def value(rate: Rate) -> float | None:
        return None if rate.p99_s is None else rate.p99_s * 1000

    return _rates(record, value, unit="ms", least_top=1.0, label="99th percentile of latency")


def _rates(
    record: RolloutRecord,
    value: Callable[[Rate], float | None],
    *,
    unit: str,
    least_top: float,
    label: str,
) -> str:
    counted = timeline.counted(record)
    lines = {number: list(_measured(windows, value)) for number, windows in counted.items()}
    lines = {number: points for number, points in lines.items() if points}
    if not lines:
        is_watched = record.plan and record.plan.watch
        why = "no window of a step was counted" if is_watched else "its plan has no guardrails"
        return _nothing(why if is_watched else f"{why}, and gateways count for those")
    top = max(least_top, *(y for points in lines.values() for _, y, _ in points)) * 1.1
    frame = Frame(timeline.end_s(record), top, 140)
    parts = [svg.axes(frame, [(0, f"0 {unit}"), (top / 1.1, f"{_number(top / 1.1)} {unit}")])]
    for number, points in sorted(lines.items()):
        color = style(record.rollout, number)
        parts.append(svg.line(frame, [(at, y) for at, y, _ in points], color))
        parts += [
            svg.dot(
                frame.x(at), frame.y(y), color, f"release {number}: {_number(y)} {unit}, {said}"
            )
            for at, y, said in points
        ]
    ends = {number: points[-1][1] for number, points in lines.items()}
    parts.append(_names(frame, ends, record.rollout))
    return svg.plot(frame, parts, label=f"{label} by release over time")


def _number(value: float) -> str:
    """Return a number in three digits, and never as a power of ten."""
    return f"{value:.0f}" if value >= _WHOLE else f"{value:.3g}"


def _measured(
    windows: Iterable[Counted], value: Callable[[Rate], float | None]
) -> Iterable[tuple[float, float, str]]:
    for each in windows:
        found = value(each.rate)
        if found is not None:
            yield each.until_s, found, f"{each.rate.requests} requests"


def convergence(record: RolloutRecord) -> str:
    """Return when each node had done what a phase waited for; of a large fleet how many had."""
    found = timeline.arrivals(record)
    if not found:
        return _nothing("no phase that waits for nodes has ended yet")
    size = record.rollout.roster_size
    return _by_count(record, found, size) if size > NAMED else _by_node(record, found)


def _by_node(record: RolloutRecord, found: Sequence[Arrivals]) -> str:
    """Return a row for each node, with a dot for each phase."""
    nodes = record.nodes or tuple(sorted({node for each in found for node in each.nodes}))
    frame = Frame(timeline.end_s(record), 1, _ROW * len(nodes) + svg.TOP + svg.BOTTOM + 6)
    parts = [svg.axes(frame, ())]
    longest = max(len(node) for node in nodes)
    for row, node in enumerate(nodes):
        y = svg.TOP + row * _ROW + _ROW / 2
        shown = node if longest * _CHAR < svg.LEFT else node[-(svg.LEFT // _CHAR - 1) :]
        parts.append(
            f'<line class="grid" x1="{svg.LEFT}" x2="{frame.right}" y1="{y}" y2="{y}"/>'
            f'<text class="axis" x="{svg.LEFT - 8}" y="{y + 4}" text-anchor="end">'
            f"{svg.text(shown)}<title>{svg.text(node)}</title></text>"
        )
        for n, each in enumerate(found):
            if node in each.nodes:
                took = duration_text(each.nodes[node] - each.began_s)
                title = f"{node}: {each.what} after {took}"
                parts.append(svg.dot(frame.x(each.nodes[node]), y, _color(each, n), title))
        missing = [each.what for each in found if node not in each.nodes]
        if missing:
            note = f"not: {', '.join(missing)}"
            parts.append(
                f'<text class="axis" x="{frame.right + 8}" y="{y + 4}">{svg.text(note)}</text>'
            )
    return svg.plot(frame, parts, label="when each node had followed") + _legend(found)


def _by_count(record: RolloutRecord, found: Sequence[Arrivals], size: int) -> str:
    frame = Frame(timeline.end_s(record), size, 160)
    parts = [svg.axes(frame, [(0, "0"), (size, str(size))])]
    for n, each in enumerate(found):
        points = [(each.began_s, 0.0), *((at, float(count)) for at, count in each.curve)]
        parts.append(svg.line(frame, points, _color(each, n)))
    slowest = "".join(f"<li>{svg.text(said)}</li>" for said in _slowest(found))
    picture = svg.plot(frame, parts, label="how many nodes had followed")
    return (
        f'{picture}{_legend(found)}<p class="note">The slowest:</p><ul class="note">{slowest}</ul>'
    )


def _slowest(found: Sequence[Arrivals]) -> list[str]:
    said = []
    for each in found:
        named = sorted(each.nodes.items(), key=lambda one: -one[1])[:_SLOWEST]
        nodes = ", ".join(f"{node} {duration_text(at - each.began_s)}" for node, at in named)
        said.append(f"{each.what}: {nodes}")
    return said


def _color(each: Arrivals, place: int) -> str:
    return "old" if each.what == "ready" else _STYLES[2 if place % 2 else 0]


def _legend(found: Sequence[Arrivals]) -> str:
    """Return what each phase's dots mean, and how long the last of its nodes took."""
    said = [
        f'<tspan class="name {_color(each, n)}">● </tspan><tspan>'
        f"{svg.text(each.what)}: {each.curve[-1][1]} nodes within"
        f" {svg.text(duration_text(each.curve[-1][0] - each.began_s))}   </tspan>"
        for n, each in enumerate(found)
    ]
    lines = [said[n : n + 4] for n in range(0, len(said), 4)]
    frame = Frame(1, 1, 18 * len(lines))
    parts = [
        f'<text x="{svg.LEFT}" y="{14 + 18 * n}" xml:space="preserve">{"".join(row)}</text>'
        for n, row in enumerate(lines)
    ]
    return svg.plot(frame, parts, label="what the dots mean")


def _releases(levels: Sequence[Level], rollout: Rollout) -> list[int]:
    """Return the releases that occur, what was there before first."""
    numbers = {number for level in levels for number in level.values}
    return sorted(numbers, key=lambda n: (n == rollout.to_release, n != rollout.from_release, n))


def _names(frame: Frame, values: dict[int, float], rollout: Rollout) -> str:
    said = [(value, f"release {n}", style(rollout, n)) for n, value in values.items()]
    return svg.names(frame, said)


def _nothing(why: str) -> str:
    return f'<p class="note">Nothing to show: {svg.text(why)}.</p>'
