"""SVG by hand: axes, steps, lines and dots on one time axis. Colours are classes, set by the page.

Everything that comes from outside goes through `text`, which escapes it.
"""

from collections.abc import Iterable, Sequence
from html import escape

import msgspec

from vctl_plans.units import duration_text

WIDTH = 960
LEFT = 64
RIGHT = 96
"""Room for a line's name at its end."""
TOP = 10
BOTTOM = 24

_TICKS_S = (
    0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800,
    21600, 43200, 86400, 172800, 604800,
)  # fmt: skip
_MOST_TICKS = 8
_LINE = 14
"""The height of a line of text."""


class Frame(msgspec.Struct, frozen=True):
    """A plot's place: seconds from 0 to *end_s* across, values from 0 to *most* up."""

    end_s: float
    most: float
    height: int = 160

    @property
    def right(self) -> float:
        """Where the time axis ends."""
        return WIDTH - RIGHT

    def x(self, seconds: float) -> float:
        """Return where a time is."""
        share = min(1.0, max(0.0, seconds / self.end_s))
        return round(LEFT + share * (self.right - LEFT), 2)

    def y(self, value: float) -> float:
        """Return where a value is."""
        share = min(1.0, max(0.0, value / self.most)) if self.most else 0.0
        return round(self.height - BOTTOM - share * (self.height - BOTTOM - TOP), 2)


def text(content: object) -> str:
    """Return *content* as it may stand in SVG and HTML."""
    return escape(str(content), quote=True)


def plot(frame: Frame, parts: Iterable[str], *, label: str) -> str:
    """Return a whole picture; *label* says what it shows to who cannot see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {frame.height}" role="img" aria-label="{text(label)}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def axes(frame: Frame, values: Sequence[tuple[float, str]]) -> str:
    """Return the time axis, and a line across for each of *values* with its name."""
    base = frame.y(0)
    parts = [
        f'<line class="grid" x1="{LEFT}" x2="{frame.right}" y1="{y}" y2="{y}"/>'
        f'<text class="axis" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{text(name)}</text>'
        for value, name in values
        for y in (frame.y(value),)
    ]
    parts += [
        f'<line class="tick" x1="{x}" x2="{x}" y1="{base}" y2="{base + 4}"/>'
        f'<text class="axis" x="{x}" y="{base + 17}" text-anchor="middle">{text(name)}</text>'
        for seconds in ticks(frame.end_s)
        for x, name in ((frame.x(seconds), duration_text(seconds) if seconds else "0"),)
    ]
    return "".join(parts)


def ticks(end_s: float) -> list[float]:
    """Return round times, at most eight beside 0."""
    fitting = (each for each in _TICKS_S if end_s / each <= _MOST_TICKS)
    apart = next(fitting, end_s / _MOST_TICKS)
    return [n * apart for n in range(int(end_s / apart) + 1)]


def area(frame: Frame, points: Sequence[tuple[float, float, float]], style: str) -> str:
    """Return a filled area of steps: each point is a time, and the lower and upper value from it.

    The last one holds to the end.
    """
    if not points:
        return ""
    ends = [*(point[0] for point in points[1:]), frame.end_s]
    upper = [
        f"{frame.x(at)},{frame.y(high)} {frame.x(end)},{frame.y(high)}"
        for (at, _, high), end in zip(points, ends, strict=True)
    ]
    lower = [
        f"{frame.x(end)},{frame.y(low)} {frame.x(at)},{frame.y(low)}"
        for (at, low, _), end in reversed(list(zip(points, ends, strict=True)))
    ]
    return f'<polygon class="area {style}" points="{" ".join([*upper, *lower])}"/>'


def steps(
    frame: Frame, points: Sequence[tuple[float, float]], style: str, *, down: float = 0
) -> str:
    """Return a line of steps: each value holds until the next; the last one to the end.

    It is drawn *down* lower, so that a line that has the same values stays seen beside it.
    """
    if not points:
        return ""
    ends = [*(at for at, _ in points[1:]), frame.end_s]
    path = " ".join(
        f"{frame.x(at)},{y} {frame.x(end)},{y}"
        for (at, value), end in zip(points, ends, strict=True)
        for y in (min(frame.y(value) + down, frame.y(0)),)
    )
    return f'<polyline class="line {style}" points="{path}"/>'


def line(frame: Frame, points: Sequence[tuple[float, float]], style: str) -> str:
    """Return a line through *points*."""
    path = " ".join(f"{frame.x(at)},{frame.y(value)}" for at, value in points)
    return f'<polyline class="line {style}" points="{path}"/>' if points else ""


def dot(x: float, y: float, style: str, title: str) -> str:
    """Return a dot that says *title* when it is pointed at."""
    said = f"<title>{text(title)}</title>"
    return f'<circle class="dot {style}" cx="{x}" cy="{y}" r="3.5">{said}</circle>'


def mark(frame: Frame, seconds: float, title: str) -> str:
    """Return a thin line up at a time, which says *title* when it is pointed at."""
    x = frame.x(seconds)
    return (
        f'<line class="mark" x1="{x}" x2="{x}" y1="{TOP}" y2="{frame.y(0)}">'
        f"<title>{text(title)}</title></line>"
    )


def names(frame: Frame, said: Sequence[tuple[float, str, str]]) -> str:
    """Return names beside the ends of lines, each (value, name, style), none over another."""
    parts: list[str] = []
    floor = frame.height - BOTTOM + 4.0
    for value, content, style in sorted(said, key=lambda each: each[0]):
        y = min(frame.y(value) + 4, floor)
        floor = y - _LINE
        parts.append(
            f'<text class="name {style}" x="{frame.right + 8}" y="{y:g}">{text(content)}</text>'
        )
    return "".join(parts)
