"""What the agent asks of a vLLM, over its HTTP interface.

An adapter's name is never used for other bytes, but by `replace`, and `load_inplace` never: it
changes weights under running requests and reads the disk at every step. What a call says is not
believed; `describe` is what counts. vLLM keeps an adapter that it was told to unload, until others
need the room, and dies when it has to read it again and cannot: directories outlive the process.
"""

import asyncio
from http import HTTPStatus

import msgspec
import structlog

from vctl_agent.engines.http import DESCRIBE_S, Closing, EngineHttp
from vctl_agent.engines.openai import ask
from vctl_agent.engines.port import Answer, Description, Question, Resident, cannot
from vctl_agent.engines.vllm import changing, metrics
from vctl_agent.engines.vllm.attach import KIND, Attaching
from vctl_agent.engines.vllm.metrics import Metrics
from vctl_agent.engines.vllm.stamp import Doing, Stamp, read
from vctl_plans.capability import Capability, EngineFacts
from vctl_plans.errors import EngineError, PermanentEngineError

_log = structlog.get_logger(__name__)


class _Card(msgspec.Struct):
    id: str
    root: str | None = None  # the base's model, or the directory of an adapter
    parent: str | None = None  # of an adapter: its base


class _Models(msgspec.Struct):
    data: tuple[_Card, ...]


class _Paused(msgspec.Struct):
    is_paused: bool


class _Weights(msgspec.Struct):
    weight_version: str


class _State(msgspec.Struct, frozen=True):
    """What only an engine in development mode tells."""

    is_paused: bool = False
    version: str = "default"  # of its weights

    @property
    def stamp(self) -> Stamp | None:
        """What vctl noted there; None: somebody else did."""
        return read(self.version)


class VllmEngine(Closing):
    """A vLLM at one URL.

    Args:
        url: Where it answers.
        key: Its API key; empty: it asks for none.
        max_adapters: Its `--max-loras`, for an engine that does not tell; None: unknown.
    """

    def __init__(self, url: str, *, key: str = "", max_adapters: int | None = None) -> None:
        self._http = EngineHttp(url, named="vLLM", key=key)
        self._max_adapters = max_adapters
        self._facts: tuple[str, EngineFacts] | None = None  # when its process began, what it can
        self._changing = asyncio.Lock()  # held while we have it paused

    async def close(self) -> None:
        """Drop connections."""
        await self._http.close()

    async def describe(self) -> Description:
        """Read what the engine holds now; its run first, so that no later one's word is taken."""
        told = await self._metrics()
        cards = await self._cards()
        state, problem = await self._state_and_problem()
        stamp = state.stamp or Stamp(path=f"(weights {state.version!r})")
        base = _base(cards)
        return Description(
            facts=await self._known(told, base.id, can_answer=not (state.is_paused or problem)),
            incarnation=f"{told.started}+{stamp.token}" if stamp.token else told.started,
            base_path=stamp.path,
            adapters=tuple(Resident(c.id, c.root or "") for c in cards if c.parent is not None),
            kv_used=told.kv_used,
            problem=problem or ("it sleeps: POST /wake_up" if told.is_asleep else ""),
            needs_restart=bool(problem) and stamp.doing is Doing.CHANGING,
        )

    async def load(self, name: str, path: str) -> None:
        """Load an adapter; one that is already there under this name and path is no error."""
        refusal = await changing.load(self._http, name, path)
        if not refusal:
            return
        seen = await self.describe()
        if not seen.facts.can(Capability.ADAPTERS):
            raise cannot(seen.facts, Capability.ADAPTERS)
        if not seen.has(name, path):
            raise PermanentEngineError(refusal)

    async def unload(self, name: str) -> None:
        """Forget an adapter; one that is not there is no error. vLLM keeps its weights for now."""
        await changing.unload(self._http, name)

    async def flush(self) -> None:
        """Drop whatever is cached, and confirm it."""
        await self._able(Capability.FLUSH)
        await changing.reset(self._http)

    async def swap_base(self, path: str) -> None:
        """Put another base in the place of the present one; one that is there is no error."""
        await self._able(Capability.SWAP_BASE)
        async with self._changing:
            before = await self._stamp()
            if before.path == path:
                return
            cards = await self._cards()
            await changing.swap(
                self._http,
                before=before,
                path=path,
                source=path or _base(cards).root or "",  # asked for none, it would read the last
                adapters=[card.id for card in cards if card.parent is not None],
            )

    async def replace(self, name: str, path: str) -> None:
        """Give *name* the adapter at *path*, with nothing of the former one left in any cache.

        Every request that runs is computed anew, and new ones wait meanwhile.
        """
        await self._able(Capability.REPLACE)
        async with self._changing:
            before = await self._stamp()
            listed = {card.id: card.root or "" for card in await self._cards()}
            await changing.replace(
                self._http, before=before, name=name, path=path, former=listed.get(name, "")
            )

    async def answer(self, model: str, question: Question, *, salt: str = "") -> Answer:
        """Answer greedily."""
        return await ask(self._http, model, question, salt=salt)

    async def _able(self, capability: Capability) -> None:
        facts = (await self.describe()).facts
        if not facts.can(capability):
            raise cannot(facts, capability)

    async def _known(self, told: Metrics, base: str, *, can_answer: bool) -> EngineFacts:
        """Return what this run of the engine can do; it is asked once, and when it can answer."""
        if not self._facts or self._facts[0] != told.started:
            if not can_answer:
                return EngineFacts(kind=KIND, base=base)
            asking = Attaching(self._http, base=base, metrics=told)
            self._facts = (told.started, await asking.facts())
        facts = self._facts[1]
        if facts.max_adapters is None:
            slots = told.max_loras or self._max_adapters
            return msgspec.structs.replace(facts, max_adapters=slots)
        return facts

    async def _metrics(self) -> Metrics:
        response = await self._http.ask("/metrics", within_s=DESCRIBE_S)
        try:
            told = metrics.read(response.text)
        except ValueError as cause:
            raise PermanentEngineError(f"its /metrics cannot be read: {cause}") from cause
        if not told.started:
            raise PermanentEngineError(
                "it does not tell when its process began",
                hint="is it a vLLM, with one API server (--api-server-count 1)?",
            )
        return told

    async def _cards(self) -> tuple[_Card, ...]:
        response = await self._http.ask("/v1/models", within_s=DESCRIBE_S)
        return self._http.read(response, _Models).data

    async def _state(self) -> _State:
        """Return what a vLLM in development mode tells; another is never paused or changed."""
        missing = (HTTPStatus.NOT_FOUND,)
        paused = await self._http.ask("/is_paused", within_s=DESCRIBE_S, accept=missing)
        weights = await self._http.ask("/weight_info", within_s=DESCRIBE_S, accept=missing)
        if paused.is_error or weights.is_error:
            return _State()
        return _State(
            is_paused=self._http.read(paused, _Paused).is_paused,
            version=self._http.read(weights, _Weights).weight_version,
        )

    async def _stamp(self) -> Stamp:
        """Return what the engine says that it holds, before it is changed.

        Raises:
            PermanentEngineError: Somebody else is at it.
        """
        state = await self._state()
        problem = _problem(state)
        if problem or state.stamp is None:
            raise PermanentEngineError(problem)
        return state.stamp

    async def _state_and_problem(self) -> tuple[_State, str]:
        """Return the engine's state, and why it may serve nothing.

        Our own pause is none. One that an earlier agent left is ended here.
        """
        was_ours = self._changing.locked()
        state = await self._state()
        if was_ours or self._changing.locked():
            return state, ""
        if state.stamp and state.stamp.doing is Doing.PAUSED:
            try:
                async with self._changing:
                    state = await self._mended()
            except EngineError as cause:
                return state, f"it was left paused and does not go on: {cause.message}"
        return state, _problem(state)

    async def _mended(self) -> _State:
        """End a pause that an agent left which is no more; its weights are whole."""
        state = await self._state()
        if state.stamp and state.stamp.doing is Doing.PAUSED:
            _log.warning("the engine was left paused by an earlier agent")
            await changing.reset(self._http)
            await changing.resume(self._http, state.stamp)
            state = await self._state()
        return state


def _base(cards: tuple[_Card, ...]) -> _Card:
    """Return the base model, by the first of its names."""
    base = next((card for card in cards if card.parent is None), None)
    if base is None:
        raise PermanentEngineError("it lists no model that is no adapter")
    return base


def _problem(state: _State) -> str:
    """Return why the engine may serve nothing, if nobody of us is changing it."""
    if state.stamp is None:
        return f"its weights were changed by another: they are of version {state.version!r}"
    if state.stamp.doing is Doing.CHANGING:
        return "a change of its base broke off: it is to be restarted"
    if state.is_paused:
        return "it was paused by another, and requests wait without end: POST /resume"
    return ""
