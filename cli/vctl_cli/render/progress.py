"""A bar while bytes are hashed: only where a person waits, and only if it takes long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vctl_cli.render.screen import Screen

LONG_S = 0.5
"""Who waits less than this needs no bar."""


@contextmanager
def hashing(screen: Screen, name: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield what to call with (bytes hashed, bytes in all), or None where nobody looks."""
    if not screen.can_animate:
        yield None
        return
    from rich.console import Console  # noqa: PLC0415  costs time, and most have no use for it
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn  # noqa: PLC0415

    console = Console(file=screen.err, no_color=not screen.has_color)
    columns = ("hashing {task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(name)
    begun = time.monotonic()

    def report(done: int, total: int) -> None:
        if not bar.live.is_started and time.monotonic() - begun > LONG_S and done < total:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        bar.stop()
