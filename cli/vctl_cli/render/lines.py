"""The tail where no terminal is: one line a change, plain or JSON, no control codes."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, Self

import msgspec

from vctl_cli.ending import has_ended
from vctl_cli.follow import Scene
from vctl_cli.render.changes import Change, Changes, change_text
from vctl_cli.render.screen import Screen


class View(Protocol):
    """Shows scenes, one after the other."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """Leave what was shown last in its place."""
        ...

    def show(self, scene: Scene) -> None:
        """Show *scene*, after those before it."""
        ...


class Lines:
    """Writes what changed from scene to scene; of a quiet tail only the last decision."""

    def __init__(
        self, screen: Screen, now: Callable[[], datetime], *, is_json: bool, since: int = 0
    ) -> None:
        self._screen = screen
        self._now = now
        self._is_json = is_json
        self._changes = Changes(since)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, scene: Scene) -> None:
        """Write what was not written yet."""
        found = self._changes.next(scene)
        if self._screen.is_quiet:
            found = found[-1:] if has_ended(scene.rollout) else []
        for change in found:
            self._write(change)

    def _write(self, change: Change) -> None:
        now = self._now()
        if self._is_json:
            content = {"kind": change.kind, "time": now.isoformat(timespec="milliseconds")}
            content |= msgspec.to_builtins(change)
            self._screen.data(msgspec.json.encode(content).decode())
        else:
            self._screen.data(change_text(change, now))
