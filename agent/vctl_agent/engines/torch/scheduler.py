"""The thread that runs inference: all running requests in turn, one step each a round.

The rule to keep: only this thread runs a generation or touches the prefix cache; others hand in
jobs and receive pieces through a job's own `emit`, or have an errand done between two steps. A
round lasts one step of each running request, so a long answer delays a short one by one step,
never by its length.

Requests take turns instead of sharing a batch, which a big model could not afford: batching would
make an answer's last bits depend on who else is being served (see `model.py`).
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from vctl_agent.engines.torch.generate import Piece

Emit = Callable[[Piece | Exception], None]


class Steps(Protocol):
    """What the scheduler needs of a generation."""

    def step(self) -> Piece | None:
        """Do a little work; the piece that it brought, if it did."""


@dataclass(eq=False, slots=True)
class Job:
    """A generation and where its pieces go; the last piece, or an exception, ends it."""

    generation: Steps
    emit: Emit  # called in the scheduler's thread; must neither block nor raise
    is_cancelled: bool = False  # set by anyone, seen before the next step
    due: float = field(default=0.0, init=False)  # not before this time, by the scheduler's clock


class Scheduler:
    """Runs jobs in a thread of its own, at most `max_running` at a time, the rest in a queue."""

    def __init__(
        self,
        *,
        max_running: int,
        token_delay_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_running = max_running
        self._token_delay_s = token_delay_s
        self._clock = clock
        self._wake = threading.Condition()  # guards _waiting, _errands and _is_closed
        self._waiting: deque[Job] = deque()
        self._errands: deque[Callable[[], None]] = deque()  # guarded by _wake as well
        self._running: deque[Job] = deque()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="inference", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Tell whether the thread still takes work."""
        return self._thread.is_alive() and not self._is_closed

    def submit(self, job: Job) -> None:
        """Queue a job."""
        with self._wake:
            self._waiting.append(job)
            self._wake.notify()

    def between_steps(self, errand: Callable[[], None]) -> None:
        """Have the thread do something soon, while no generation is in the middle of a step.

        Args:
            errand: Must neither block nor raise. It is not done if the thread ends first.
        """
        with self._wake:
            self._errands.append(errand)
            self._wake.notify()

    def cancel(self, job: Job) -> None:
        """Drop a job before its next step; nothing happens if it has ended."""
        with self._wake:
            job.is_cancelled = True
            self._wake.notify()

    def close(self) -> None:
        """End the thread after its present step; jobs that have not ended get nothing more."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def round(self) -> float | None:
        """Give each running job that is due one step.

        Returns:
            Seconds until the next job is due, 0 if one is; None when there is no job at all.
        """
        self._admit()
        self._run_errands()
        for _ in range(len(self._running)):
            job = self._running.popleft()
            if not job.is_cancelled and (job.due > self._clock() or self._advance(job)):
                self._running.append(job)
        if not self._running:
            return None
        return max(0.0, min(job.due for job in self._running) - self._clock())

    def _admit(self) -> None:
        with self._wake:
            while self._waiting and len(self._running) < self._max_running:
                self._running.append(self._waiting.popleft())

    def _run_errands(self) -> None:
        with self._wake:
            errands, self._errands = self._errands, deque()
        for errand in errands:
            errand()

    def _advance(self, job: Job) -> bool:
        """Run one step and tell whether more are to come."""
        try:
            piece = job.generation.step()
        except Exception as cause:  # noqa: BLE001  top of the cycle: one request's fault stays its own
            job.emit(cause)
            return False
        if piece is None:
            return True
        job.emit(piece)
        job.due = self._clock() + self._token_delay_s
        return piece.finish_reason is None

    def _run(self) -> None:
        while not self._is_closed:
            pause_s = self.round()
            with self._wake:
                # A job that was queued or cancelled since the round shows here: its notify may
                # have come before this wait.
                if pause_s != 0 and not self._has_news():
                    self._wake.wait(pause_s)

    def _has_news(self) -> bool:
        can_admit = bool(self._waiting) and len(self._running) < self._max_running
        has_errand = bool(self._errands)
        return (
            self._is_closed
            or can_admit
            or has_errand
            or any(job.is_cancelled for job in self._running)
        )
