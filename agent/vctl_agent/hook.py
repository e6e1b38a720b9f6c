"""The operator's command or address that is told of something on this node, or asked for it.

A command gets one JSON document on stdin and says by its exit code how it went. What is read and
written goes through files, not pipes, so that a child that it leaves running holds nothing up. An
address gets the same document by POST and says it by the status.

Either may be called again for what it was told of: after a restart of the engine or of the agent,
and while an earlier call of an agent that was killed still runs.
"""

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

from vctl_plans.errors import PermanentEngineError, TemporaryEngineError

TEMPORARY = os.EX_TEMPFAIL
"""The exit code (75, sysexits.h) that asks to be tried again."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""What is read of an answer at most: a list of adapters is far smaller."""

_TAIL_BYTES = 4096
_REASON_CHARS = 300
_CREDENTIALS = ("ETCDCTL_", "VCTL_USER", "VCTL_PASSWORD", "VCTL_TOKEN")


class AnyHook(Protocol):
    """Whoever is told."""

    async def run(self, event: str, document: bytes) -> bytes:
        """Tell, and wait to the end of it; cancelled, end it.

        Args:
            event: What it is about, for messages.
            document: One JSON object, which has the event in it.

        Returns:
            What it answered; empty if nothing.

        Raises:
            TemporaryEngineError: It said so, did not end in time, or could not be reached now.
            PermanentEngineError: It failed otherwise, or there is no such program.
        """
        ...


def open_hook(
    target: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str],
    token_file: Path | None = None,
    named: str = "the hook",
) -> AnyHook:
    """Return the hook of a setting.

    Args:
        target: A program and its arguments, or one address.
        timeout_s: After this time a call is given up.
        environment: What a command inherits.
        token_file: A bearer token for an address; read at each call.
        named: What it is, for messages.
    """
    if is_address(target):
        from vctl_agent.hookurl import UrlHook  # noqa: PLC0415  httpx loads only where it is used

        return UrlHook(target[0], timeout_s=timeout_s, token_file=token_file, named=named)
    return Hook(target, timeout_s=timeout_s, environment=environment, named=named)


def is_address(target: Sequence[str]) -> bool:
    """Whether a setting names an address and no program."""
    return len(target) == 1 and target[0].startswith(("http://", "https://"))


class Hook:
    """A command, and how long it may take.

    Args:
        command: The program and its arguments; no shell reads them.
        timeout_s: After this time it is killed, with all of its process group.
        environment: What it inherits; credentials of etcd are left out.
        named: What it is, for messages.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str],
        named: str = "the hook",
    ) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith(_CREDENTIALS)
        }
        self._named = named

    async def run(self, event: str, document: bytes) -> bytes:
        """Run the command to its end; cancelled, it ends the command."""
        with (
            tempfile.TemporaryFile() as said,
            tempfile.TemporaryFile() as answered,
            tempfile.TemporaryFile() as asked,
        ):
            asked.write(document)
            asked.seek(0)
            code = await self._ended(event, asked, answered, said)
            if code == 0:
                return _answer(answered)
            problem = f"{self._named} failed on {event} ({_end(code)})"
            reason = _last_line(said)
        problem = f"{problem}: {reason}" if reason else problem
        raise (TemporaryEngineError if code == TEMPORARY else PermanentEngineError)(problem)

    async def _ended(
        self, event: str, asked: IO[bytes], answered: IO[bytes], said: IO[bytes]
    ) -> int:
        process = await self._start(asked, answered, said)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await process.wait()
        except TimeoutError as cause:
            raise TemporaryEngineError(
                f"{self._named} did not end on {event} within {self._timeout_s:g} s, and was killed"
            ) from cause
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def _start(
        self, asked: IO[bytes], answered: IO[bytes], said: IO[bytes]
    ) -> asyncio.subprocess.Process:
        program = f"{self._named} {self._command[0]}"
        try:
            return await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asked,
                stdout=answered,
                stderr=said,
                env=self._environment,
                start_new_session=True,  # a process group of its own, to be killed as one
            )
        except (FileNotFoundError, PermissionError) as cause:
            problem = f"{program} cannot be run: {cause.strerror}"
            raise PermanentEngineError(problem) from cause
        except OSError as cause:
            problem = f"{program} cannot be started now: {cause.strerror}"
            raise TemporaryEngineError(problem) from cause


def printable(text: str) -> str:
    """Return the last line of *text* that says something, fit for a report."""
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    return "".join(char for char in last if char.isprintable())[-_REASON_CHARS:]


def _end(code: int) -> str:
    """Say how a process ended; a negative code is the number of a signal."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _answer(answered: IO[bytes]) -> bytes:
    answered.seek(0)
    return answered.read(MAX_ANSWER_BYTES)


def _last_line(said: IO[bytes]) -> str:
    said.seek(max(0, said.seek(0, os.SEEK_END) - _TAIL_BYTES))
    return printable(said.read().decode(errors="replace"))
