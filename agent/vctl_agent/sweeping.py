"""Removes, now and then, what an unfinished fetch left that nobody wants any more."""

import asyncio
from collections.abc import Callable

import structlog

from vctl_agent.artifacts.stage import ArtifactStore

_EVERY_S = 600.0

_log = structlog.get_logger(__name__)


async def sweep(artifacts: ArtifactStore, wanted: Callable[[], set[str] | None]) -> None:
    """Sweep for ever.

    Args:
        artifacts: The node's artifacts.
        wanted: Tells the roots whose unfinished copies stay; None: it is not known yet.
    """
    while True:
        await asyncio.sleep(_EVERY_S)
        roots = wanted()
        if roots is None:
            continue
        try:
            await asyncio.to_thread(artifacts.sweep, roots)
        except OSError as cause:
            _log.warning("unfinished copies not swept", cause=cause.strerror)
