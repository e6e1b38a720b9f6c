"""The adapter for vctl's own reference engine, over its HTTP interface.

Answers are judged by status, never by text, and `describe` is what counts.
"""

from http import HTTPStatus

import msgspec

from vctl_agent.engines.http import DESCRIBE_S, Closing, EngineHttp
from vctl_agent.engines.openai import ask
from vctl_agent.engines.port import Answer, Description, Question, Resident
from vctl_plans.capability import Capability, EngineFacts, Lack
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError

_CAPABILITIES = (
    Capability.ADAPTERS,
    Capability.SWAP_BASE,
    Capability.FLUSH,
    Capability.REPLACE,
    Capability.CACHE_SALT,
    Capability.CACHED_TOKENS,
    Capability.LOGPROBS,
)
_LACKS = (Lack(capability=Capability.LOAD),)


class _Base(msgspec.Struct):
    name: str
    path: str
    is_first: bool


class _Cache(msgspec.Struct):
    blocks: int


class _Flushed(msgspec.Struct):
    success: bool


class _Engine(msgspec.Struct):
    kind: str
    version: str
    incarnation: str
    base: _Base
    max_loras: int
    max_lora_rank: int
    adapters: tuple[Resident, ...]
    cache: _Cache
    free_memory: float | None = None
    memory_bytes: int | None = None


class TorchEngine(Closing):
    """The torch reference engine at one URL."""

    def __init__(self, url: str) -> None:
        self._http = EngineHttp(url, named="vctl's engine")

    async def close(self) -> None:
        """Drop connections."""
        await self._http.close()

    async def describe(self) -> Description:
        """Read what the engine holds now."""
        response = await self._http.ask("/engine", within_s=DESCRIBE_S)
        engine = self._http.read(response, _Engine)
        return Description(
            facts=_facts(engine),
            incarnation=engine.incarnation,
            base_path="" if engine.base.is_first else engine.base.path,
            cached=engine.cache.blocks,
            adapters=engine.adapters,
            free_memory=engine.free_memory,
            memory_bytes=engine.memory_bytes,
        )

    async def load(self, name: str, path: str) -> None:
        """Load an adapter; one that is already there under this name and path is no error."""
        try:
            body = {"lora_name": name, "lora_path": path}
            await self._http.ask("/v1/load_lora_adapter", body=body)
        except PermanentEngineError:
            if not (await self.describe()).has(name, path):
                raise

    async def unload(self, name: str) -> None:
        """Forget an adapter; one that is not there is no error."""
        body = {"lora_name": name}
        await self._http.ask("/v1/unload_lora_adapter", body=body, accept=(HTTPStatus.NOT_FOUND,))

    async def answer(self, model: str, question: Question, *, salt: str = "") -> Answer:
        """Answer greedily, with what is cached under *salt* only."""
        return await ask(self._http, model, question, salt=salt)

    async def swap_base(self, path: str) -> None:
        """Put another base in the place of the present one; one that is there is no error."""
        await self._http.ask("/engine/base", body={"path": path})

    async def flush(self) -> None:
        """Drop whatever is cached; running requests go on and store nothing of before."""
        response = await self._http.ask("/reset_prefix_cache", method="POST")
        if not self._http.read(response, _Flushed).success:
            raise TemporaryEngineError("the engine did not empty its cache")

    async def replace(self, name: str, path: str) -> None:
        """Give *name* the adapter at *path*; requests that run finish on the former one.

        What that one left in the cache is of another identity; it is dropped all the same.
        """
        body = {"lora_name": name, "lora_path": path, "load_inplace": True}
        await self._http.ask("/v1/load_lora_adapter", body=body)
        await self.flush()


def _facts(engine: _Engine) -> EngineFacts:
    return EngineFacts(
        kind=engine.kind,
        version=engine.version,
        base=engine.base.name,
        capabilities=_CAPABILITIES,
        lacks=_LACKS,
        max_adapters=engine.max_loras,
        max_resident=engine.max_loras,
        max_rank=engine.max_lora_rank,
    )
