"""The operator's command that is told when a release comes to this node or leaves it.

It is for what the application keeps outside the engine: a sidecar that opens an index, a server
that renders prompts. It gets one JSON document on stdin and says by its exit code how it went. What
is read and written goes through files, not pipes, so that a child that it leaves running holds
nothing up.

It may be called again for a release that it was told of: after a restart of the engine or of the
agent, and while an earlier call of an agent that was killed still runs.
"""

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

import structlog

from vctl_plans.errors import PermanentEngineError, TemporaryEngineError

TEMPORARY = os.EX_TEMPFAIL
"""The exit code (75, sysexits.h) that asks to be tried again."""

_TAIL_BYTES = 4096
_REASON_CHARS = 300
_CREDENTIALS = ("ETCDCTL_", "VCTL_USER", "VCTL_PASSWORD")

_log = structlog.get_logger(__name__)


class Hook:
    """A command, and how long it may take.

    Args:
        command: The program and its arguments; no shell reads them.
        timeout_s: After this time it is killed, with all of its process group.
        environment: What it inherits; credentials of etcd are left out.
    """

    def __init__(
        self, command: Sequence[str], *, timeout_s: float, environment: Mapping[str, str]
    ) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith(_CREDENTIALS)
        }

    async def run(self, event: str, document: bytes) -> None:
        """Run the command to its end; cancelled, it ends the command.

        Args:
            event: ``load`` or ``unload``, for messages.
            document: What it reads from stdin.

        Raises:
            TemporaryEngineError: It said so, did not end in time, or could not be started now.
            PermanentEngineError: It failed otherwise, or there is no such program.
        """
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as asked:
            asked.write(document)
            asked.seek(0)
            code = await self._ended(event, asked, said)
            if code == 0:
                _log.info("hook done", hook_event=event)
                return
            problem = f"the hook failed on {event} ({_end(code)})"
            reason = _last_line(said)
        problem = f"{problem}: {reason}" if reason else problem
        raise (TemporaryEngineError if code == TEMPORARY else PermanentEngineError)(problem)

    async def _ended(self, event: str, asked: IO[bytes], said: IO[bytes]) -> int:
        process = await self._start(asked, said)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await process.wait()
        except TimeoutError as cause:
            raise TemporaryEngineError(
                f"the hook did not end on {event} within {self._timeout_s:g} s, and was killed"
            ) from cause
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def _start(self, asked: IO[bytes], said: IO[bytes]) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asked,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=said,
                env=self._environment,
                start_new_session=True,  # a process group of its own, to be killed as one
            )
        except (FileNotFoundError, PermissionError) as cause:
            problem = f"the hook {self._command[0]} cannot be run: {cause.strerror}"
            raise PermanentEngineError(problem) from cause
        except OSError as cause:
            problem = f"the hook {self._command[0]} cannot be started now: {cause.strerror}"
            raise TemporaryEngineError(problem) from cause


def _end(code: int) -> str:
    """Say how a process ended; a negative code is the number of a signal."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _last_line(said: IO[bytes]) -> str:
    """Return the last line that says something, fit for a report."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - _TAIL_BYTES))
    lines = said.read().decode(errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(char for char in last if char.isprintable())[-_REASON_CHARS:]
