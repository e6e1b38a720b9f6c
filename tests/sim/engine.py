"""A simulated engine: slow, restarted, full of refusals, or a liar.

What it does, it does whether or not the agent that asked still lives. An answer to a request says
which bytes it came from, so that the checks can compare.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from tests.sim.disk import Mood
from tests.sim.kernel import Kernel, Process
from vctl_agent.engines.port import Answer, Description, Question, Resident, cannot
from vctl_plans.capability import Capability, EngineFacts
from vctl_plans.errors import EngineError, PermanentEngineError, TemporaryEngineError

BASE = "base"
"""The base model's name; an engine serves it as long as it is up."""


FACTS = EngineFacts(
    kind="sim",
    version="1",
    base=BASE,
    capabilities=(Capability.ADAPTERS, Capability.LOGPROBS),
)


class Held(msgspec.Struct):
    """An adapter in the engine."""

    path: str
    is_probed: bool = False


class Engine:
    """One node's engine, as `vctl_agent.engines.port.Engine` asks."""

    def __init__(self, kernel: Kernel, name: str, random: Random, *, places: int) -> None:
        self.kernel = kernel
        self.name = name
        self.random = random
        self.facts = msgspec.structs.replace(FACTS, max_adapters=places)
        self.places = places  # for adapters
        self.mood = Mood()
        self.is_up = True
        self.starts = 1
        self.adapters: dict[str, Held] = {}
        self.proven: set[str] = set()  # adapters that passed a probe in any run
        self.given: set[str] = set()  # paths that this run was told to load, and may read again
        self.asked: dict[int, tuple[str, Callable[[bool], None]]] = {}  # requests: adapter, told
        self.on_ask: Callable[[str], None] = lambda _: None
        self.on_load: Callable[[str, str], None] = lambda *_: None
        self.on_unload: Callable[[str, float], None] = lambda *_: None
        self.on_change: Callable[[], None] = lambda: None

    @property
    def incarnation(self) -> str:
        """This run of the engine's process."""
        return f"{self.name}-engine-{self.starts}"

    def stop(self) -> None:
        """Die: adapters and requests are gone."""
        self.is_up = False
        self.adapters.clear()
        asked, self.asked = self.asked, {}
        for _, told in asked.values():
            told(False)
        self.on_change()

    def start(self) -> None:
        """Start anew, with nothing loaded."""
        if not self.is_up:
            self.is_up = True
            self.starts += 1
            self.given.clear()
            self.on_change()

    # -- as the agent sees it ------------------------------------------------------------------

    async def describe(self) -> Description:
        """Return what it holds."""
        if not self.is_up:
            raise TemporaryEngineError("the engine does not answer")
        return Description(
            facts=self.facts,
            incarnation=self.incarnation,
            adapters=tuple(Resident(name, held.path) for name, held in self.adapters.items()),
        )

    async def load(self, name: str, path: str) -> None:
        """Load an adapter."""
        self.on_ask(name)
        await self._call(lambda: self._load(name, path), 0.4)

    async def unload(self, name: str) -> None:
        """Forget an adapter."""
        asked_at = self.kernel.now
        await self._call(lambda: self._unload(name, asked_at), 0.1)

    async def answer(self, model: str, question: Question, *, salt: str = "") -> Answer:
        """Answer a prompt: each adapter otherwise."""
        await self._call(lambda: self._answer(model, is_fresh=bool(salt)), 0.02)
        number = sum(self.adapters[model].path.encode()) if model in self.adapters else 1
        if self.mood.errs and not salt and model != BASE:
            number += 1
        return Answer(tokens=(str(number),), logprobs=(-float(number),))

    async def swap_base(self, path: str) -> None:
        """Refuse: it keeps the base that it was started with."""
        raise PermanentEngineError(f"the engine cannot change its base to {path}")

    async def flush(self) -> None:
        """Refuse: nothing is cached."""
        raise cannot(FACTS, Capability.FLUSH)

    async def replace(self, name: str, path: str) -> None:
        """Refuse: a name is an identity here."""
        raise cannot(FACTS, Capability.REPLACE)

    async def close(self) -> None:
        """Do nothing."""

    def _load(self, name: str, path: str) -> None:
        self.given.add(path)
        self._refuse("load", name)
        self.on_load(name, path)
        if not self.mood.lies and name not in self.adapters:
            self.adapters[name] = Held(path)

    def _unload(self, name: str, asked_at: float) -> None:
        if self.mood.refuses:
            raise TemporaryEngineError("the engine is busy")
        if not self.mood.lies and name in self.adapters:
            self.on_unload(name, asked_at)
            del self.adapters[name]
            for number, (adapter, told) in list(self.asked.items()):
                if adapter == name:
                    del self.asked[number]
                    told(False)

    def _answer(self, name: str, *, is_fresh: bool) -> None:
        if name != BASE and name not in self.adapters:
            raise TemporaryEngineError(f"the engine does not list {name}")
        self._refuse("answer as", name)
        if is_fresh and name != BASE:  # what a probe asks last, of an adapter that is itself
            self.adapters[name].is_probed = True
            self.proven.add(name)

    def _refuse(self, what: str, name: str) -> None:
        if self.mood.refuses == "permanent":
            raise PermanentEngineError(f"the engine refuses to {what} {name}")
        if self.mood.refuses:
            raise TemporaryEngineError("the engine is busy")

    async def _call(self, act: Callable[[], None], usual_s: float) -> None:
        """Have it done after its time, whatever becomes of who asked; then tell them, if told."""
        loop: Any = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        process: Process = loop._process
        starts = self.starts
        takes_s = usual_s * (0.5 + self.random.random()) * self.mood.slowness

        def done() -> None:
            error: EngineError | None = None
            if not self.is_up or self.starts != starts:
                error = TemporaryEngineError("the engine does not answer")
            else:
                try:
                    act()
                except EngineError as refusal:
                    error = refusal
            self.kernel.after(0.001, process, reply, error)

        def reply(error: EngineError | None) -> None:
            if not answer.done():
                if error:
                    answer.set_exception(error)
                else:
                    answer.set_result(None)

        self.kernel.after(takes_s, None, done)
        await answer

    # -- as the gateway sees it ----------------------------------------------------------------

    def take(self, number: int, model: str, told: Callable[[bool], None]) -> str | None:
        """Begin to answer a request; return the path that its adapter was loaded from.

        Nothing is returned when the engine is away or does not list the adapter.
        """
        held = self.adapters.get(model)
        if not self.is_up or (held is None and model != BASE):
            return None
        self.asked[number] = (model, told)
        return held.path if held else BASE

    def drop(self, number: int) -> None:
        """Forget a request: it was answered, or whoever asked is gone."""
        self.asked.pop(number, None)
