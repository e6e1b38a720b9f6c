"""The fleet on a terminal: one calm picture, drawn anew when something changed."""

from typing import Self

from vctl_cli.render.fleetpicture import fleet_picture
from vctl_cli.render.picture import Frame
from vctl_cli.render.screen import Screen
from vctl_cli.render.terminal import Picture, glyphs
from vctl_cli.summing import SummaryView
from vctl_plans.status import StatusView


class LiveFleet:
    """Views of the fleet, each in the place of the last."""

    def __init__(self, screen: Screen) -> None:
        self._picture = Picture(screen)
        self._glyphs = glyphs(screen)
        self._view: StatusView | SummaryView | None = None

    def __enter__(self) -> Self:
        self._picture.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._picture.__exit__(*error)

    def show(self, view: StatusView | SummaryView) -> None:
        """Draw *view*."""
        self._view = view
        columns, lines = self._picture.space
        frame = Frame(columns=columns, lines=lines, glyphs=self._glyphs)
        self._picture.draw(fleet_picture(view, frame))

    def tick(self) -> None:
        """Draw again if the terminal has changed."""
        if self._view is not None and self._picture.is_stale:
            self.show(self._view)
