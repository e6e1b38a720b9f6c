"""One program of the fleet: a process group of its own, and a log file.

Rule to keep: nothing is left behind. A program gets a session of its own, so that a terminal's
Ctrl-C reaches only us and the fleet ends in order; what does not end in time is killed with
everything that it started.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vctl_plans.errors import VctlError

_POLL_S = 0.02
SHOWN_LOG_LINES = 15


class Program:
    """A program that can be started, ended and started again.

    Args:
        name: As it is told, for example ``n2/agent``.
        arguments: The command; the first is a path.
        env: Its whole environment.
        log: The file that gets all that it says, of every run.
        niceness: How far it stands back when processors are short.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        niceness: int = 0,
    ) -> None:
        self.name = name
        self.arguments = tuple(arguments)
        self.log = log
        self._env = dict(env)
        self._niceness = niceness
        self._process: subprocess.Popen[bytes] | None = None
        self._is_wanted = False

    def start(self, *, more_env: Mapping[str, str] | None = None) -> None:
        """Start it.

        Args:
            more_env: Variables for this run only.

        Raises:
            VctlError: It runs already, or cannot be started.
        """
        if self.is_running:
            raise VctlError(f"{self.name} runs already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603  our own programs
                    self.arguments,
                    env=self._env | dict(more_env or {}),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as cause:
            raise VctlError(f"{self.name} cannot be started: {cause}") from cause
        if self._niceness:
            _stand_back(self._process.pid, self._niceness)
        self._is_wanted = True

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process's number; 0 when it was never started."""
        return self._process.pid if self._process else 0

    @property
    def has_died(self) -> bool:
        """Whether it ended though nobody asked it to."""
        return self._is_wanted and not self.is_running

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and all that it started; one that has ended is no error."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._is_wanted = False
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def ask_to_end(self) -> None:
        """Ask it to end; `ended` waits for it."""
        self._is_wanted = False
        if self.is_running:
            self.signal(signal.SIGTERM)

    def death(self) -> VctlError:
        """Return what to say of a program that ended by itself."""
        code = self._process.returncode if self._process else None
        return VctlError(f"{self.name} ended with code {code}", hint=self.log_tail())

    def log_tail(self) -> str:
        """Return the last lines of its log, and where the rest is."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-SHOWN_LOG_LINES:]
        except OSError:
            lines = []
        return "\n  ".join([f"its log, {self.log}, ends:", *lines])


def _stand_back(pid: int, niceness: int) -> None:
    """Lower a process's priority, and its session's: Linux may weigh sessions (sched(7))."""
    os.setpriority(os.PRIO_PROCESS, pid, niceness)
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def ended(programs: Iterable[Program], *, within_s: float) -> bool:
    """Wait until all *programs* have ended; return whether they have."""
    deadline = time.monotonic() + within_s
    waiting = list(programs)
    while waiting and time.monotonic() < deadline:
        waiting = [program for program in waiting if program.is_running]
        time.sleep(_POLL_S if waiting else 0)
    return not waiting
