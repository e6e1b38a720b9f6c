"""The tail on a terminal: one calm picture that is drawn anew when something changed.

It fits 80 columns and says the same without colour: colour only repeats what the words say. Nodes
are grouped by phase, the worst first, so that thousands fit.
"""

from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vctl_cli.follow import Scene
from vctl_cli.render.changes import Said, word
from vctl_cli.render.screen import Screen
from vctl_cli.render.traffic import phase_text, traffic_text
from vctl_plans.rollout import listed

SHOWN_DECISIONS = 5

_GOOD, _BAD, _BUSY = "green", "red", "yellow"
_STYLES = {
    "ready": _GOOD, "converged": _GOOD, "rolled_back": _GOOD,
    "failed": _BAD, "quarantined": _BAD, "absent": _BAD, "no engine": _BAD, "handing over": _BUSY,
    "paused": _BUSY, "superseded": _BUSY,
}  # fmt: skip


class Picture:
    """A place on the terminal that is drawn anew; what it showed last stays there."""

    def __init__(self, screen: Screen) -> None:
        console = Console(file=screen.out, no_color=not screen.has_color, highlight=False)
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self, content: RenderableType) -> None:
        """Put *content* in the place of what was there."""
        shown = Text(content) if isinstance(content, str) else content
        # The empty line is where a terminal echoes ^C: on a full last line it would wrap, and the
        # next picture would be drawn one line too low.
        self._live.update(Group(shown, Text()), refresh=True)


class LiveView(Picture):
    """A rollout's scenes, each in the place of the last."""

    def show(self, scene: Scene) -> None:
        """Draw *scene*."""
        self.draw(picture(scene))


def picture(scene: Scene) -> RenderableType:
    """Return the whole picture of one scene."""
    return Group(_head(scene), _nodes(scene), Text(), _decisions(scene))


def _head(scene: Scene) -> Text:
    rollout, route = scene.rollout, scene.service.current_route
    first = f"{rollout.service}: release {rollout.from_release or 'none'} -> {rollout.to_release}"
    head = Text().append(f"{first} ({rollout.strategy}, rollout {rollout.id})", style="bold")
    phase = phase_text(rollout, scene.elapsed_s)
    head.append("\nphase    ").append(phase, style=_STYLES.get(rollout.phase, _BUSY))
    if not scene.is_live:
        head.append("   etcd is away: this is the last known state", style=_BAD)
    head.append(f"\ntraffic  {traffic_text(route)}\n")
    head.append(f"judged   {scene.judged}\n" if scene.judged else "")
    return head


def _nodes(scene: Scene) -> Table:
    """Return a line for each phase that nodes are in, ready ones last."""
    target = scene.rollout.back_to or scene.rollout.to_release
    groups: dict[Said, list[str]] = {}
    for node in scene.nodes:
        groups.setdefault(word(node, target), []).append(node.node)
    grid = _grid(columns=3)
    for said in sorted(groups, key=lambda said: (said.phase == "ready", said)):
        names = listed(tuple(groups[said]))
        what = f"{len(groups[said])} {said.phase}"
        style = _STYLES.get(said.phase, _BUSY)
        grid.add_row(
            "nodes  ", Text(what, style=style), f"{names}{': ' * bool(said.text)}{said.text}"
        )
    return grid


def _decisions(scene: Scene) -> Table:
    grid = _grid(columns=2)
    for entry in scene.entries[-SHOWN_DECISIONS:]:
        grid.add_row("", entry.sentence)
    return grid


def _grid(*, columns: int) -> Table:
    """Return columns without a frame, of which the last takes as many lines as it needs."""
    grid = Table.grid(padding=(0, 2))
    for n in range(columns):
        is_last = n == columns - 1
        grid.add_column(no_wrap=not is_last, overflow="fold" if is_last else "ellipsis")
    return grid
