"""What an engine can do, as it was probed when the agent found it: declared, never guessed.

Facts hold for one incarnation of the engine. What it cannot do is named with the exact setting that
turns it on, so that a refusal tells the operator which restart is needed.
"""

from collections.abc import Collection
from enum import StrEnum

import msgspec


class Capability(StrEnum):
    """One thing that an engine may be able to do."""

    ADAPTERS = "adapters"  # loads and unloads adapters while it runs
    SWAP_BASE = "swap_base"  # changes its base while it runs
    FLUSH = "flush"  # drops its caches when told, and says whether it did
    REPLACE = "replace"  # gives a name other bytes with nothing stale left: direct mode needs it
    CACHE_SALT = "cache_salt"  # keeps the caches of requests with other salts apart
    CACHED_TOKENS = "cached_tokens"  # tells how much of a prompt came from its cache
    LOGPROBS = "logprobs"  # tells log-probabilities, which probes compare
    LOAD = "load"  # tells how many requests it has


class Lack(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an engine cannot do as it was started, and what would change that."""

    capability: Capability
    remedy: str = ""  # the setting, as `--enable-lora`; empty: this kind of engine never can
    needs_restart: bool = True


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What does not change while an engine's process lives."""

    kind: str = ""
    version: str = ""
    base: str = ""  # the base model's name
    capabilities: tuple[Capability, ...] = ()
    lacks: tuple[Lack, ...] = ()
    max_adapters: int | None = None  # served side by side; None: it does not tell
    max_resident: int | None = None  # held without reading the disk again; None: not told
    max_rank: int | None = None  # of an adapter; None: not told

    def can(self, capability: Capability) -> bool:
        """Whether it has *capability*; what was not probed does not count."""
        return capability in self.capabilities

    def remedy(self, capability: Capability) -> str:
        """Return the setting that would give it *capability*; empty: none is known."""
        return next((lack.remedy for lack in self.lacks if lack.capability is capability), "")


def lacking(facts: EngineFacts | None, needed: Collection[Capability]) -> tuple[Capability, ...]:
    """Return what of *needed* an engine cannot do; one that was never seen can do nothing."""
    return tuple(sorted(set(needed) - set(facts.capabilities if facts else ())))
