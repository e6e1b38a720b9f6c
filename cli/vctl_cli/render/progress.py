"""Progress while bytes are read: a bar where a person waits, else now and then a line.

Little work shows none. Much work shows at once that it has begun, how much it is, and then how fast
it goes and how long it takes.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vctl_cli.render.screen import Screen
from vctl_plans.units import bytes_text, duration_text

MUCH_BYTES = 64 * 1024 * 1024
"""More than this takes long enough that a person should see it begin."""
LONG_S = 0.25
"""Who waits less than this needs no bar."""
EVERY_S = 5.0
"""How often a line is written where no bar can move."""

Report = Callable[[int, int], None]


@contextmanager
def hashing(screen: Screen, name: str, *, doing: str = "hashing") -> Iterator[Report | None]:
    """Yield what to call with (bytes read, bytes in all), or None where nobody wants to know."""
    subject = f"{doing} {name}"
    if screen.is_quiet:
        yield None
    elif screen.can_animate:
        with _bar(screen, subject) as report:
            yield report
    else:
        yield _Lines(screen, subject).report


@contextmanager
def counting(screen: Screen, subject: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yield what to call with the line of each answer; how many of *total* came is shown meanwhile.

    Args:
        screen: Where to.
        subject: What is waited for.
        total: How many answers will come.
    """
    if not screen.can_animate:
        screen.say(f"{subject}: nodes asked: {total}")
        yield screen.say
        return
    from rich.console import Console  # noqa: PLC0415  costs time, and most have no use for it

    console = Console(file=screen.err, no_color=not screen.has_color)
    came = 0

    def tell(line: str) -> None:
        nonlocal came
        came += 1
        console.out(line, highlight=False)
        status.update(f"{subject}: {came} of {total} answered")

    with console.status(f"{subject}: 0 of {total} answered") as status:
        yield tell


@contextmanager
def _bar(screen: Screen, subject: str) -> Iterator[Report]:
    from rich.console import Console  # noqa: PLC0415  costs time, and most have no use for it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(file=screen.err, no_color=not screen.has_color)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bar = Progress("{task.description}", *columns, console=console, transient=True)
    task = bar.add_task(subject)
    begun = time.monotonic()

    def report(done: int, total: int) -> None:
        is_long = total >= MUCH_BYTES or time.monotonic() - begun > LONG_S
        bar.update(task, completed=done, total=total)
        if is_long and done < total and not bar.live.is_started:
            bar.start()

    try:
        yield report
    finally:
        bar.stop()


class _Lines:
    """Writes a line when much begins, and one each few seconds."""

    def __init__(self, screen: Screen, subject: str) -> None:
        self._screen = screen
        self._subject = subject
        self._begun = self._told = time.monotonic()
        self._is_begun = False

    def report(self, done: int, total: int) -> None:
        """Write how far it is, if it is time to."""
        now = time.monotonic()
        if not self._is_begun and total >= MUCH_BYTES and done < total:
            self._is_begun = True
            self._screen.say(f"{self._subject}: {bytes_text(total)}")
        if now - self._told >= EVERY_S and 0 < done < total:
            self._told = now
            self._screen.say(f"{self._subject}: {rate_text(done, total, now - self._begun)}")


def rate_text(done: int, total: int, elapsed_s: float) -> str:
    """Return how far it is, how fast, and how long it still takes."""
    rate = done / max(elapsed_s, 1e-9)
    left = duration_text((total - done) / rate) if rate else "unknown time"
    share = f"{100 * done / total:.0f} % of {bytes_text(total)}"
    return f"{share}, {rate / 1e9:.2f} GB/s, {left} left"
