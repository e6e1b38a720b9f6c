"""An engine that the operator's own command or address speaks to: `docs/hooks.md` is its contract.

For engines that vctl has no adapter for, and for nodes that only have prompts and indexes. The rule
to keep: nothing is done that `describe` did not declare, and the words of the two documents are
fields that are added to, never changed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from vctl_agent.engines.http import Closing, EngineHttp
from vctl_agent.engines.openai import ask
from vctl_agent.engines.port import Answer, Description, Question, Resident, cannot
from vctl_agent.hook import AnyHook, open_hook
from vctl_plans.capability import Capability, EngineFacts, Lack
from vctl_plans.errors import PermanentEngineError

T = TypeVar("T")

LOOK_S = 10.0
"""Time for a look at the engine; it is looked at once a second."""

_VERSION = 1
_NAMED = "the engine's hook"

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``describe``; what is left out is not told."""

    incarnation: Name  # another one after each start of the engine, and for each base
    capabilities: tuple[Capability, ...] = ()
    lacks: tuple[Lack, ...] = ()  # what else it could do, and how it would be started for that
    kind: Name = "hook"
    version: str = ""
    base: str = ""  # the base model's name in requests
    base_path: str = ""  # of a base that it was swapped to
    adapters: tuple[Resident, ...] = ()
    adapter_prefix: str = ""  # what stands before an adapter's name in a request's model
    max_adapters: Count | None = None
    max_resident: Count | None = None
    max_rank: Count | None = None
    cached: Count | None = None
    kv_used: Share | None = None
    free_memory: Share | None = None
    problem: str = ""  # why it must serve nothing
    needs_restart: bool = False  # and only a restart cures that

    @property
    def facts(self) -> EngineFacts:
        """What it can do; what it does not mention, it cannot."""
        named = {lack.capability for lack in self.lacks} | set(self.capabilities)
        rest = tuple(Lack(capability=each) for each in Capability if each not in named)
        return EngineFacts(
            kind=self.kind,
            version=self.version,
            base=self.base,
            capabilities=self.capabilities,
            lacks=self.lacks + rest,
            max_adapters=self.max_adapters,
            max_resident=self.max_resident,
            max_rank=self.max_rank,
        )


class HookEngine(Closing):
    """An engine behind a hook.

    Args:
        look: The hook, for looks: with little time.
        change: The same hook, for changes.
        http: The engine itself, where it answers clients.
    """

    def __init__(self, look: AnyHook, change: AnyHook, http: EngineHttp) -> None:
        self._look = look
        self._change = change
        self._http = http
        self._facts: EngineFacts | None = None  # as last told
        self._seen: Description | None = None  # likewise, since the last change that was asked for

    async def close(self) -> None:
        """Drop connections."""
        await self._http.close()

    async def describe(self) -> Description:
        """Ask what the engine holds now."""
        raw = await self._look.run("describe", _document("describe"))
        told = _read(raw, Told)
        self._facts = told.facts
        self._seen = Description(
            facts=told.facts,
            incarnation=told.incarnation,
            base_path=told.base_path,
            cached=told.cached,
            adapters=told.adapters,
            adapter_prefix=told.adapter_prefix,
            kv_used=told.kv_used,
            free_memory=told.free_memory,
            problem=told.problem,
            needs_restart=told.needs_restart,
        )
        return self._seen

    async def load(self, name: str, path: str) -> None:
        """Have an adapter loaded."""
        await self._do(Capability.ADAPTERS, "load", name=name, path=path)

    async def unload(self, name: str) -> None:
        """Have an adapter forgotten."""
        await self._do(Capability.ADAPTERS, "unload", name=name)

    async def answer(self, model: str, question: Question, *, salt: str = "") -> Answer:
        """Ask the engine itself; only what it holds by its hook is asked.

        By the last look, for a probe asks a dozen times, and each look may be a program that
        starts: on a busy node that took minutes. Whoever probes looks again afterwards.
        """
        asked = _request_name(self._seen, model) or _request_name(await self.describe(), model)
        if not asked:
            raise PermanentEngineError(f"the engine has no {model}")
        return await ask(self._http, asked, question, salt=salt)

    async def swap_base(self, path: str) -> None:
        """Have another base put in the place of the present one."""
        await self._do(Capability.SWAP_BASE, "swap_base", path=path)

    async def flush(self) -> None:
        """Have whatever is cached dropped."""
        await self._do(Capability.FLUSH, "flush")

    async def replace(self, name: str, path: str) -> None:
        """Have *name* given the adapter at *path*."""
        await self._do(Capability.REPLACE, "replace", name=name, path=path)

    async def _do(self, needed: Capability, method: str, **fields: str) -> None:
        facts = self._facts or (await self.describe()).facts
        if not facts.can(needed):
            raise cannot(facts, needed)
        self._seen = None
        await self._change.run(method, _document(method, **fields))


def _request_name(engine: Description | None, model: str) -> str:
    """Return what a request names for *model*; empty: the engine does not hold it."""
    if engine and any(adapter.name == model for adapter in engine.adapters):
        return engine.model(model)
    return model if engine and model == engine.facts.base else ""


def open_hook_engine(
    target: Sequence[str],
    *,
    engine_url: str,
    timeout_s: float,
    environment: Mapping[str, str],
    key: str = "",
    token_file: Path | None = None,
) -> HookEngine:
    """Return the engine behind a command or an address.

    Args:
        target: A program and its arguments, or one address.
        engine_url: Where the engine answers clients.
        timeout_s: Time for a change.
        environment: What a command inherits.
        key: The engine's own key.
        token_file: A bearer token for the hook's address, read at each call.
    """
    look, change = (
        open_hook(
            target,
            timeout_s=limit,
            environment={**environment, "VCTL_ENGINE_URL": engine_url},
            token_file=token_file,
            named=_NAMED,
        )
        for limit in (min(LOOK_S, timeout_s), timeout_s)
    )
    return HookEngine(look, change, EngineHttp(engine_url, named="OpenAI's interface", key=key))


def _document(method: str, **fields: str) -> bytes:
    asked: dict[str, Any] = {"v": _VERSION, "method": method, **fields}
    return msgspec.json.encode(asked)


def _read(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError) as cause:
        raise PermanentEngineError(
            f"{_NAMED} does not answer as it should: {cause}", hint="see docs/hooks.md"
        ) from cause
