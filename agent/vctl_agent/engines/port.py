"""What the agent asks of an engine, whatever its kind.

A call's answer is never the last word: after each, the caller reads `describe` again. Names of
adapters are identities (service and digest), so nothing here replaces a name in place.
"""

from typing import Protocol

import msgspec


class Resident(msgspec.Struct, frozen=True):
    """An adapter that the engine lists."""

    name: str
    path: str  # the directory that it was loaded from


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """An engine as it is now."""

    kind: str
    version: str
    incarnation: str  # changes with every start of the engine's process
    base: str  # the base model's name
    base_path: str = ""  # the directory of its base; empty: the one that it was started with
    cached: int | None = None  # entries of its caches; None: not told
    max_adapters: int
    adapters: tuple[Resident, ...] = ()
    free_memory: float | None = None  # share of the memory that it loads into; None: not told

    def has(self, name: str, path: str) -> bool:
        """Whether *name* is listed and was loaded from *path*."""
        return Resident(name, path) in self.adapters


class Engine(Protocol):
    """An engine that loads adapters. Every call has a deadline.

    Raises, in all of its methods: `TemporaryEngineError` when trying again may help (it is away,
    busy or full), `PermanentEngineError` when it may not (it refuses the adapter).
    """

    capabilities: tuple[str, ...]  # what it can do beside adapters, as `base.SWAP_BASE`

    async def describe(self) -> Description:
        """Read what the engine holds now."""
        ...

    async def load(self, name: str, path: str) -> None:
        """Load an adapter under a name that it has not had; one already there is no error."""
        ...

    async def unload(self, name: str) -> None:
        """Forget an adapter; one that is not there is no error. Running requests finish."""
        ...

    async def probe(self, name: str) -> None:
        """Prove that the adapter answers, from its own cache only, and otherwise than the base.

        Raises:
            PermanentEngineError: It does not, with what was seen.
        """
        ...

    async def swap_base(self, path: str) -> None:
        """Put the base model at *path* in the place of the present one; "": the first one again.

        New requests are refused meanwhile, running ones finish first. Adapters and whatever is
        cached go with the base that they were of, and the incarnation changes. A base that is
        there already is no error.
        """
        ...

    async def close(self) -> None:
        """Drop connections."""
        ...
