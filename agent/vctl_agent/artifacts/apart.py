"""Work on bytes in a process of its own: it prints one value, and ends with whoever waits for it.

A process, so that hashing takes neither the agent's time nor its memory.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from vctl_plans.errors import ArtifactError

T = TypeVar("T")


async def said_by(module: str, arguments: Sequence[str], type_: type[T], *, subject: str) -> T:
    """Run a module of ours, and return the value that it printed; cancelled, it ends the process.

    Args:
        module: Its name.
        arguments: Of its command line.
        type_: What it prints, as JSON.
        subject: What it works on, for the error.

    Raises:
        ArtifactError: The process did not say what it found.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return msgspec.json.decode(said, type=type_)
    except msgspec.MsgspecError as cause:
        code = process.returncode
        raise ArtifactError(f"{subject}: could not be checked (code {code})") from cause
