"""Time that passes while nothing else happens: a picture is looked after all the while."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

TICK_S = 0.1
"""How soon a terminal that was resized shows the whole picture again."""


@asynccontextmanager
async def ticking(tick: Callable[[], None]) -> AsyncIterator[None]:
    """Call *tick* now and then until the block is left; what it raised is raised then."""

    async def run() -> None:
        while True:
            await asyncio.sleep(TICK_S)
            tick()

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()):
            raise error
