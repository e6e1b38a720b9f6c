"""The tail where no terminal is: one line a change, or a document, and no control codes."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, Self

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

    def tick(self) -> None:
        """Do what only time demands."""
        ...


Write = Callable[[Change, datetime], None]
"""Writes one change, with the time at which it was seen."""


class Lines:
    """Writes what changed from scene to scene; of a quiet tail only the last decision."""

    def __init__(
        self,
        write: Write,
        now: Callable[[], datetime],
        *,
        is_quiet: bool,
        since: int = 0,
        close: Callable[[datetime], None] | None = None,
    ) -> None:
        self._write = write
        self._now = now
        self._close = close
        self._is_quiet = is_quiet
        self._changes = Changes(since)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._close:
            self._close(self._now())

    def show(self, scene: Scene) -> None:
        """Write what was not written yet."""
        found = self._changes.next(scene)
        if self._is_quiet:
            found = found[-1:] if has_ended(scene.rollout) else []
        for change in found:
            self._write(change, self._now())

    def tick(self) -> None:
        """Write nothing: only changes are lines."""


def plain(screen: Screen) -> Write:
    """Return what writes a change as a line for people."""
    return lambda change, now: screen.data(change_text(change, now))


def as_json(screen: Screen) -> Write:
    """Return what writes a change as an object on a line."""
    from vctl_cli.render.document import json_text  # noqa: PLC0415  people want lines

    return lambda change, now: screen.exact(json_text(_content(change, now)))


def as_yaml(screen: Screen) -> Write:
    """Return what writes a change as a document of a YAML stream."""
    from vctl_cli.render.document import yaml_document  # noqa: PLC0415  few want it

    return lambda change, now: screen.exact(yaml_document(_content(change, now)))


def _content(change: Change, now: datetime) -> dict[str, Any]:
    content: dict[str, Any] = {
        "kind": change.kind,
        "time": now.isoformat(timespec="milliseconds"),
    }
    content.update(msgspec.to_builtins(change))
    return content
