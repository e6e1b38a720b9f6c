"""Whether the engine will take an adapter: asked of the verified copy, before the engine is.

Engines refuse a bad adapter late, in their own words, or not at all. What is certain is refused
here, for that release alone and until the engine is another; what is unsure is logged, and the
probe after the load has the last word.
"""

import asyncio
from typing import Protocol

import structlog

from vctl_agent.engines.port import Description
from vctl_plans import weights
from vctl_plans.admission import doubt, refusal
from vctl_plans.errors import NotAllowed
from vctl_plans.release import Release

_log = structlog.get_logger(__name__)


class Copies(Protocol):
    """The verified copies; `artifacts.stage.ArtifactStore` is them."""

    def adapter_facts(self, root: str) -> weights.AdapterFacts:
        """Read what a staged adapter says of itself."""
        ...


async def check(copies: Copies, release: Release, engine: Description) -> None:
    """Refuse an adapter that *engine* certainly does not take.

    Args:
        copies: Where its verified copy is.
        release: Whose adapter it is.
        engine: The engine as it is now.

    Raises:
        NotAllowed: It would not take it.
        ArtifactError: The copy cannot be read any more.
    """
    root = release.adapter.root if release.adapter else ""
    adapter = await asyncio.to_thread(copies.adapter_facts, root)
    is_own_base = not engine.base_path
    problem = refusal(adapter, engine.facts, is_own_base=is_own_base)
    if problem:
        raise NotAllowed(problem)
    unsure = doubt(adapter.base, engine.facts) if is_own_base else ""
    if unsure:
        _log.info("not sure of an adapter", adapter=release.engine_name, reason=unsure)
