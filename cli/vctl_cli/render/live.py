"""The tail on a terminal: one calm picture, drawn anew when something changed or time passed."""

import time
from collections.abc import Callable
from typing import Self

from vctl_cli.ending import has_ended
from vctl_cli.follow import Scene
from vctl_cli.render.picture import Frame, rollout_picture
from vctl_cli.render.screen import Screen
from vctl_cli.render.terminal import Picture, glyphs
from vctl_plans.verdict import Figure

_REDRAWN_EVERY_S = 1.0


class LiveView:
    """A rollout's scenes, each in the place of the last.

    Between two scenes the time goes on by this machine's clock: the conductor writes down how long
    a phase has lasted every few seconds only, and a phase is at least as old as was seen before.
    """

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._picture = Picture(screen)
        self._glyphs = glyphs(screen)
        self._clock = clock
        self._scene: Scene | None = None
        self._phase: tuple[str, int] = ("", -1)
        self._began = self._elapsed_s = 0.0
        self._step: tuple[str, int] = ("", -1)
        self._figures: tuple[Figure, ...] = ()
        self._drawn = 0.0

    def __enter__(self) -> Self:
        self._picture.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._picture.__exit__(*error)

    def show(self, scene: Scene) -> None:
        """Draw *scene*."""
        rollout, now = scene.rollout, self._clock()
        phase, step = (rollout.id, rollout.seq), (rollout.id, rollout.step)
        began = now - scene.elapsed_s
        self._began = min(self._began, began) if phase == self._phase else began
        if scene.is_live or phase != self._phase:  # else time stands where it was seen last
            self._elapsed_s = now - self._began
        if step != self._step:
            self._figures = ()
        self._figures = scene.figures or self._figures
        self._phase, self._step, self._scene = phase, step, scene
        self._draw()

    def tick(self) -> None:
        """Draw again if a second has passed in a phase that goes on, or the terminal changed."""
        scene = self._scene
        if scene is None:
            return
        is_going = scene.is_live and not has_ended(scene.rollout)
        is_due = is_going and self._clock() - self._drawn >= _REDRAWN_EVERY_S
        if is_due or self._picture.is_stale:
            self._draw()

    def _draw(self) -> None:
        assert self._scene is not None  # noqa: S101  both callers have one
        self._drawn = self._clock()
        if self._scene.is_live:
            self._elapsed_s = self._drawn - self._began
        columns, lines = self._picture.space
        frame = Frame(
            columns=columns,
            lines=lines,
            glyphs=self._glyphs,
            elapsed_s=self._elapsed_s,
            figures=self._figures,
        )
        self._picture.draw(rollout_picture(self._scene, frame))
