"""Threads that share one piece of work: run to their end, watched by the caller's thread.

Whatever stops one thread stops the others at their next piece, and is raised by the caller. No
pool, and no object for each piece: a thread takes the next one from the work's own counter.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

_PROGRESS_EVERY_S = 0.1


class Work(ABC):
    """What the threads of one call share; all of it changes under `lock` but for `stopped`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes_done = 0
        self.failure: BaseException | None = None
        self.stopped = False

    @abstractmethod
    def share(self) -> None:
        """Do pieces until there is none, or until `stopped`."""

    def thread(self) -> None:
        """Do one thread's share."""
        try:
            self.share()
        except BaseException as failure:  # noqa: BLE001  raised again by the caller's thread
            with self.lock:
                self.failure = self.failure or failure
            self.stopped = True


def run(work: Work, *, threads: int, name: str, progress: Callable[[int], None] | None) -> None:
    """Do the work with some threads; return when all of it is done.

    Args:
        work: What to do.
        threads: How many.
        name: Of the threads.
        progress: Called in the caller's thread with `Work.bytes_done`, ten times a second and at
            the end. What it raises stops the work.

    Raises:
        BaseException: What the first thread that failed raised.
    """
    workers = [threading.Thread(target=work.thread, name=f"{name}-{i}") for i in range(threads)]
    started = []
    try:
        for worker in workers:
            worker.start()
            started.append(worker)
        for worker in workers:
            while worker.is_alive():
                worker.join(_PROGRESS_EVERY_S)
                if progress and worker.is_alive():
                    progress(work.bytes_done)
    finally:
        work.stopped = True
        for worker in started:
            worker.join()
    if work.failure:
        raise work.failure
    if progress:
        progress(work.bytes_done)
