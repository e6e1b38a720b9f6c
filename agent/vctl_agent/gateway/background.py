"""What runs beside requests for as long as the gateway does."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

_RESTART_S = 1.0
_log = structlog.get_logger()


def begun(name: str, run: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
    """Start a background task, and keep it running."""
    return asyncio.create_task(_kept_running(name, run))


async def cancelled(task: "asyncio.Task[None]") -> None:
    """End a background task."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _kept_running(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a background task; one that dies of a bug is started again, and requests never notice."""
    while True:
        try:
            return await run()
        except Exception:  # noqa: BLE001  the top of a cycle
            _log.exception("background task failed, starting it again", task=name)
            await asyncio.sleep(_RESTART_S)
