"""What the agent asks of an engine, whatever its kind.

A call's answer is never the last word: after each, the caller reads `describe` again. Names of
adapters are identities (service and digest), so nothing here replaces a name in place.
"""

from typing import Any, Protocol

import msgspec

from vctl_plans.capability import Capability, EngineFacts
from vctl_plans.errors import PermanentEngineError


class Resident(msgspec.Struct, frozen=True):
    """An adapter that the engine lists."""

    name: str
    path: str  # the directory that it was loaded from


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """An engine as it is now."""

    facts: EngineFacts  # what does not change within an incarnation
    incarnation: str  # changes with every start of the engine's process, and with every base
    base_path: str = ""  # the directory of its base; empty: the one that it was started with
    cached: int | None = None  # entries of its caches; None: not told
    adapters: tuple[Resident, ...] = ()
    kv_used: float | None = None  # share of its KV cache, 0 to 1; None: not told
    free_memory: float | None = None  # share of the memory that it loads into; None: not told
    memory_bytes: int | None = None  # of that memory, in all; None: not told
    problem: str = ""  # why it must serve nothing, as far as it can tell
    needs_restart: bool = False  # and nothing else cures that
    cache_epoch: int = 0  # see `epochs`, which alone tells it
    adapter_prefix: str = ""  # what stands before an adapter's name in a request's model

    def has(self, name: str, path: str) -> bool:
        """Whether *name* is listed and was loaded from *path*."""
        return Resident(name, path) in self.adapters

    def model(self, name: str) -> str:
        """Return what a request names as its model for an adapter; without one, for the base."""
        return f"{self.adapter_prefix}{name}" if name else self.facts.base


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is asked: a text to go on from or, where there are messages, a chat."""

    prompt: str = ""
    messages: tuple[dict[str, Any], ...] = ()  # as OpenAI writes them
    chat: dict[str, Any] = {}  # what else the chat's body says, as `chat_template_kwargs`
    max_tokens: int = 8
    ignore_eos: bool = False  # exactly so many tokens


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A greedy answer. Nobody judged it yet: `probe` does."""

    tokens: tuple[str, ...]
    logprobs: tuple[float, ...] = ()  # natural logarithm, one a token; empty: it tells none
    text: str = ""
    prompt_tokens: int = 0
    cached_tokens: int | None = None  # of the prompt, from the cache; None: not told


class Engine(Protocol):
    """An engine that loads adapters. Every call has a deadline.

    Raises, in all of its methods: `TemporaryEngineError` when trying again may help (it is away,
    busy or full), `PermanentEngineError` when it may not (it refuses the adapter, or cannot do what
    was asked, as its facts say), `SuspectEngineError` when nobody can know any more what it would
    answer: it is to be restarted.
    """

    async def describe(self) -> Description:
        """Read what the engine holds now."""
        ...

    async def load(self, name: str, path: str) -> None:
        """Load an adapter under a name that it has not had; one already there is no error."""
        ...

    async def unload(self, name: str) -> None:
        """Forget an adapter; one that is not there is no error. Running requests finish."""
        ...

    async def answer(self, model: str, question: Question, *, salt: str = "") -> Answer:
        """Answer greedily: the base model by its name, or an adapter that is loaded.

        Args:
            model: Who answers.
            question: What.
            salt: Only what was cached under it may be used; empty: what has none.

        Raises:
            PermanentEngineError: There is no such model, or it tells less than its facts say.
        """
        ...

    async def swap_base(self, path: str) -> None:
        """Put the base model at *path* in the place of the present one; "": the first one again.

        New requests are refused meanwhile, running ones finish first. Adapters and whatever is
        cached go with the base that they were of, and the incarnation changes. A base that is
        there already is no error.
        """
        ...

    async def flush(self) -> None:
        """Drop whatever is cached, and confirm it. Running requests go on."""
        ...

    async def replace(self, name: str, path: str) -> None:
        """Give *name* the adapter at *path*, with nothing of the former one left in any cache.

        For clients that call the engine without a gateway, by one name that stays. Requests that
        run finish on what they began with.
        """
        ...

    async def close(self) -> None:
        """Drop connections."""
        ...


def cannot(facts: EngineFacts, capability: Capability) -> PermanentEngineError:
    """Return the refusal of what an engine cannot do, with what would change that."""
    remedy = facts.remedy(capability)
    needs_restart = all(lack.needs_restart for lack in facts.lacks if lack.capability is capability)
    return PermanentEngineError(
        f"the {facts.kind} engine cannot do that as it was started ({capability})",
        hint=f"start it with {remedy}" if remedy and needs_restart else remedy,
    )
