"""One engine process: its parts put together, and the way of a request through them.

The rule to keep: a job is cancelled on every way out of `pieces`: its end, an error, a client that
went away, a shutdown. Cancelling one that has ended does nothing.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from importlib import metadata
from typing import Any

from vctl_agent.engines.torch.cache import CacheCounts
from vctl_agent.engines.torch.checkpoint import load_base
from vctl_agent.engines.torch.device import free_memory, memory_bytes
from vctl_agent.engines.torch.faults import Faults
from vctl_agent.engines.torch.generate import Engine, Generation, Order, Piece
from vctl_agent.engines.torch.lora import Adapter
from vctl_agent.engines.torch.metrics import Metrics
from vctl_agent.engines.torch.registry import Registry
from vctl_agent.engines.torch.scheduler import Job, Scheduler

_FINISH_S = 60.0
"""That running requests have to finish before a base is swapped; less than a client waits."""


_FLUSH_S = 10.0
"""That the inference thread has to come between two steps; it is longer only if it is dead."""


class Service:
    """What the HTTP handlers share; lives in the event loop's thread."""

    def __init__(
        self,
        engine: Engine,
        *,
        registry: Registry,
        scheduler: Scheduler,
        faults: Faults | None = None,
    ) -> None:
        self.engine = engine
        self.registry = registry
        self.scheduler = scheduler
        self.faults = faults or Faults()
        self.metrics = Metrics(registry, self.cache_counts)
        self.incarnation = str(uuid.uuid4())  # another with each start, and with each base
        self._first_base = engine.base.path

    def cache_counts(self) -> CacheCounts:
        """Return the prefix cache's counts; all zero without one."""
        cache = self.engine.cache
        return CacheCounts(0, 0, 0, 0, 0) if cache is None else cache.counts()

    async def swap_base(self, path: str) -> None:
        """Serve another base from now on: no adapter, no cached block of the old one is left.

        Raises:
            ApiError: Requests still run, or there is no base at *path*; nothing changed then.
        """
        path = path or self._first_base
        if path == self.engine.base.path:
            return
        device, blocks = self.engine.base.model.device, self.engine.cache_blocks
        base = await self.registry.swap(lambda: load_base(path, device=device), within_s=_FINISH_S)
        # No await between the registry's change and this: no request meets one without the other.
        self.engine = Engine(base, cache_blocks=blocks)
        self.incarnation = str(uuid.uuid4())

    async def flush(self) -> bool:
        """Empty the prefix cache between two steps; return whether that was done.

        Requests that run go on, and store nothing of what they computed before.
        """
        cache = self.engine.cache
        if cache is None:
            return True
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def errand() -> None:
            cache.clear()
            # The loop is closed when a shutdown has given up on the request.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        self.scheduler.between_steps(errand)
        try:
            async with asyncio.timeout(_FLUSH_S):
                await done.wait()
        except TimeoutError:
            return False
        return True

    async def pieces(self, order: Order, *, adapter: Adapter | None) -> AsyncGenerator[Piece]:
        """Carry out an order and yield its pieces as they come.

        Close it (`contextlib.aclosing`) to cancel what is left.
        """
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[Piece | Exception] = asyncio.Queue()

        def emit(piece: Piece | Exception) -> None:
            # The loop is closed when a shutdown has given up on the request.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(arrived.put_nowait, piece)

        job = Job(Generation(self.engine, order, adapter=adapter), emit)
        self.scheduler.submit(job)
        try:
            while True:
                piece = await arrived.get()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
                if piece.finish_reason is not None:
                    return
        finally:
            self.scheduler.cancel(job)

    def fingerprint(self, adapter: Adapter | None) -> str:
        """Return the beginning of the digest of the files that answer."""
        return (self.engine.base.digest if adapter is None else adapter.digest)[:12]

    def description(self) -> dict[str, Any]:
        """Return what GET /engine tells."""
        counts = self.cache_counts()
        return {
            "kind": "torch",
            "version": version(),
            "incarnation": self.incarnation,
            "device": str(self.engine.base.model.device),
            "base": {
                "name": self.registry.base_name,
                "path": self.engine.base.path,
                "digest": self.engine.base.digest,
                "is_first": self.engine.base.path == self._first_base,
            },
            "context": self.engine.context,
            "free_memory": free_memory(self.engine.base.model.device),
            "memory_bytes": memory_bytes(self.engine.base.model.device),
            "max_loras": self.registry.limits.max_loras,
            "max_lora_rank": self.registry.limits.max_rank,
            "adapters": [
                {"name": a.name, "path": a.path, "digest": a.digest, "resident": True}
                for a in self.registry.adapters
            ],
            "inflight": self.registry.inflight,
            "cache": counts._asdict(),
        }


def version() -> str:
    """Return the installed version; a source tree that was never installed has none."""
    try:
        return metadata.version("vctl-rollout")
    except metadata.PackageNotFoundError:
        return "unknown"
