"""Writes to a file from a thread of its own, so that who writes never waits for who reads."""

import contextlib
import os
import select
import threading
from collections import deque
from typing import TextIO

MOST_BYTES = 4 * 2**20
"""That wait to be written; what is more is refused."""

CLOSE_S = 1.0


class Writer:
    """Writes in order.

    A daemon, so that a file that nobody reads does not keep the process from ending.

    Args:
        file: Where to; it is never set not to block, since other processes may share it.
        most_bytes: That may wait.
    """

    def __init__(self, file: TextIO, *, most_bytes: int = MOST_BYTES) -> None:
        self._file = file
        self._most_bytes = most_bytes
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0  # those that are being written included
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def write(self, text: bytes) -> bool:
        """Have *text* written; False: too much waits, and it is not."""
        with self._changed:
            if self._waiting_bytes + len(text) > self._most_bytes:
                return False
            self._waiting.append(text)
            self._waiting_bytes += len(text)
            self._changed.notify()
        return True

    @property
    def is_alive(self) -> bool:
        """Whether it still writes, or waits to."""
        return self._thread.is_alive()

    def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """Wait until all is written, or the time has passed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._is_closed:
                        return
                    self._changed.wait()
                text = self._waiting.popleft()
            self._put(text)
            with self._changed:
                self._waiting_bytes -= len(text)

    def _put(self, text: bytes) -> None:
        descriptor = self._file.fileno()
        left = memoryview(text)
        with contextlib.suppress(OSError):  # nobody is there to read it: nothing can be said of it
            while left:
                try:
                    left = left[os.write(descriptor, left) :]
                except BlockingIOError:  # somebody else has set it so
                    poll = select.poll()
                    poll.register(descriptor, select.POLLOUT)
                    poll.poll()
