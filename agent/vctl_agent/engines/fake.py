"""An engine in memory, for tests of the agent: does as it is told, or fails as it is scripted."""

import asyncio
from enum import StrEnum
from hashlib import sha256

from vctl_agent.engines.port import Answer, Description, Question, Resident, cannot
from vctl_plans.capability import Capability, EngineFacts
from vctl_plans.errors import EngineError, PermanentEngineError, TemporaryEngineError

ANY = "*"
"""Stands for every method in `FakeEngine.troubles`, but for `describe`."""


class Trouble(StrEnum):
    """What may go wrong with a call."""

    REFUSES = "refuses"  # says no, for good, and does nothing
    LIES = "lies"  # says yes and does nothing
    IS_SLOW = "is slow"  # does it after `FakeEngine.slow_s`
    HANGS = "hangs"  # does nothing, and does not answer before the caller's patience ends
    RESTARTS = "restarts"  # starts anew, and then does it
    DIES = "dies"  # does it, and starts anew before it has answered


class FakeEngine:
    """An engine with scripted failures; `calls` lists what it was asked to change.

    And whom it was asked under a new salt, as a probe does once with an adapter that is itself.
    """

    def __init__(self, *, max_adapters: int = 8) -> None:
        self.incarnation = "fake-1"
        self.max_adapters = max_adapters
        self.capabilities: tuple[Capability, ...] = tuple(Capability)
        self.adapters: dict[str, str] = {}
        self.calls: list[tuple[str, str]] = []
        self.troubles: dict[str, Trouble] = {}  # by method, or `ANY`
        self.met: set[str] = set()  # methods that met their trouble
        self.evicted: list[str] = []  # adapters that it dropped by its own choice
        self.failures: dict[str, EngineError] = {}  # by method: raised before anything is done
        self.unfit: set[str] = set()  # directories that it refuses to load
        self.patience_s = 0.02  # of a caller, after which a call that hangs is given up
        self.slow_s = 0.02
        self.free_memory: float | None = None
        self.memory_bytes: int | None = None
        self.kv_used: float | None = None
        self.max_rank: int | None = None
        self.base = "base"
        self.kind = "fake"
        self.base_path = ""
        self.cached = 0  # entries; anything that is loaded or probed may leave some
        self.keeps_cache = False  # swaps its base and flushes nothing
        self.keeps_incarnation = False  # swaps its base and says that it is as it was
        self.stale: dict[str, str] = {}  # model -> whose answer it gives without a salt
        self.inert: set[str] = set()  # adapters that answer as the base does
        self.texts: dict[str, str] = {}  # prompt, or last message -> answer
        self._salts = {""}
        self.is_away = False

    @property
    def lies(self) -> bool:
        """Whether it says yes to everything and does nothing."""
        return self.troubles.get(ANY) is Trouble.LIES

    @lies.setter
    def lies(self, it_does: bool) -> None:
        if it_does:
            self.troubles[ANY] = Trouble.LIES
        else:
            self.troubles.pop(ANY, None)

    def restart(self) -> None:
        """Lose everything, as a process that starts anew."""
        self.base_path = ""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.incarnation = f"fake-{int(self.incarnation.removeprefix('fake-')) + 1}"
        self.adapters.clear()
        self.cached = 0

    @property
    def facts(self) -> EngineFacts:
        """What it can do."""
        return EngineFacts(
            kind=self.kind,
            version="1",
            base=self.base,
            capabilities=self.capabilities,
            max_adapters=self.max_adapters,
            max_resident=self.max_adapters,
            max_rank=self.max_rank,
        )

    async def describe(self) -> Description:
        """Return what it holds."""
        await self._meet("describe", "")
        held = tuple(Resident(name, path) for name, path in self.adapters.items())
        return Description(
            facts=self.facts,
            incarnation=self.incarnation,
            base_path=self.base_path,
            cached=self.cached,
            adapters=held,
            free_memory=self.free_memory,
            memory_bytes=self.memory_bytes,
            kv_used=self.kv_used,
        )

    async def load(self, name: str, path: str) -> None:
        """Hold an adapter; with all places taken, the one that came first is lost, as in vLLM."""
        self._need(Capability.ADAPTERS)
        if await self._meet("load", name):
            if path in self.unfit or self.adapters.get(name, path) != path:
                raise PermanentEngineError(f"the engine refuses {name} from {path}")
            if name not in self.adapters and len(self.adapters) >= self.max_adapters:
                lost = next(iter(self.adapters))
                self.evicted.append(lost)
                del self.adapters[lost]
            self.adapters[name] = path
        self._leave("load")

    async def unload(self, name: str) -> None:
        """Let an adapter go."""
        self._need(Capability.ADAPTERS)
        if await self._meet("unload", name):
            self.adapters.pop(name, None)
        self._leave("unload")

    async def answer(self, model: str, question: Question, *, salt: str = "") -> Answer:
        """Answer by what the model was loaded from, unless scripted."""
        is_new = salt not in self._salts
        self._salts.add(salt)
        await self._meet("answer", model, is_change=is_new and model in self.adapters)
        asked = question.messages[-1]["content"] if question.messages else question.prompt
        source = self._source(model if salt else self.stale.get(model, model))
        self.cached += 1
        self._leave("answer")
        numbers = sha256(f"{source} {asked}".encode()).digest()[: question.max_tokens]
        return Answer(
            tokens=tuple(map(str, numbers)),
            logprobs=tuple(-number / 64 for number in numbers),
            text=self.texts.get(asked, ""),
            prompt_tokens=len(asked),
            cached_tokens=0 if is_new else len(asked),
        )

    def _source(self, model: str) -> str:
        if model == self.facts.base or model in self.inert:
            return f"base {self.base_path}"
        if model not in self.adapters:
            raise PermanentEngineError(f"there is no {model}")
        return self.adapters[model]

    async def swap_base(self, path: str) -> None:
        """Hold another base, and nothing else."""
        self._need(Capability.SWAP_BASE)
        if await self._meet("swap_base", path) and path != self.base_path:
            cached, incarnation = self.cached, self.incarnation
            self._begin_anew()
            self.base_path = path
            self.cached = cached if self.keeps_cache else 0
            self.incarnation = incarnation if self.keeps_incarnation else self.incarnation
        self._leave("swap_base")

    async def flush(self) -> None:
        """Drop what is cached, unless scripted."""
        self._need(Capability.FLUSH)
        if await self._meet("flush", ""):
            self.cached = 0
        self._leave("flush")

    async def replace(self, name: str, path: str) -> None:
        """Hold another adapter under a name, and nothing cached."""
        self._need(Capability.REPLACE)
        if await self._meet("replace", name):
            self.adapters[name] = path
            self.cached = 0
        self._leave("replace")

    async def close(self) -> None:
        """Do nothing."""

    def _need(self, capability: Capability) -> None:
        if capability not in self.capabilities:
            raise cannot(self.facts, capability)

    def _trouble(self, method: str) -> Trouble | None:
        other = None if method == "describe" else self.troubles.get(ANY)
        return self.troubles.get(method, other)

    async def _meet(self, method: str, name: str, *, is_change: bool = True) -> bool:
        """Note a call, and fail as it is scripted; return whether it is to be done."""
        if is_change and method != "describe":
            self.calls.append((method, name))
        if self.is_away:
            raise TemporaryEngineError("the engine does not answer")
        if method in self.failures:
            raise self.failures[method]
        trouble = self._trouble(method)
        if trouble:
            self.met.add(method)
        if trouble is Trouble.REFUSES:
            raise PermanentEngineError(f"the engine refuses to {method}")
        if trouble is Trouble.HANGS:
            await asyncio.sleep(self.patience_s)
            raise TemporaryEngineError(f"no answer to {method} within {self.patience_s:g} s")
        if trouble is Trouble.IS_SLOW:
            await asyncio.sleep(self.slow_s)
        if trouble is Trouble.RESTARTS:
            self.restart()
        return trouble is not Trouble.LIES

    def _leave(self, method: str) -> None:
        """End a call that was done, or die first, as it is scripted."""
        if self._trouble(method) is Trouble.DIES:
            self.restart()
            raise TemporaryEngineError(f"the engine broke off in {method}")
