"""What a vLLM can do as it was started: asked once in each run of it, by what changes nothing.

A route is there when a GET of it, which none of them takes, is refused as a method (405) and not as
a path (404). Each thing that it lacks is named with the setting that turns it on.
"""

from http import HTTPStatus
from typing import Any

import httpx
import msgspec

from vctl_agent.engines.http import EngineHttp
from vctl_agent.engines.vllm.metrics import Metrics
from vctl_plans.capability import Capability, EngineFacts, Lack

KIND = "vllm"

LORA = "--enable-lora"
RUNTIME_LORA = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
DEV_MODE = "VLLM_SERVER_DEV_MODE=1"
TOKEN_DETAILS = "--enable-prompt-tokens-details"  # noqa: S105  a flag
LOG_STATS = "no --disable-log-stats"
NEWER = "vLLM 0.32 or newer"

_ANSWER_S = 30.0
"""Time for one token; an engine that is full takes longer than one that is idle."""

_OF_FLUSH = ("/reset_prefix_cache",)
_OF_REPLACE = (*_OF_FLUSH, "/pause", "/resume", "/is_paused", "/weight_info")
_OF_SWAP = (*_OF_REPLACE, "/update_weight_version", "/collective_rpc")
_NO_ADAPTER = "/nonexistent/vctl"


class _Lora(msgspec.Struct):
    max_loras: int
    max_cpu_loras: int | None = None
    max_lora_rank: int | None = None


class _Config(msgspec.Struct, frozen=True):
    lora_config: _Lora | None = None


class _ServerInfo(msgspec.Struct):
    vllm_config: _Config


class _Version(msgspec.Struct):
    version: str


class _Choice(msgspec.Struct):
    logprobs: dict[str, Any] | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens_details: dict[str, Any] | None = None


class _Completion(msgspec.Struct):
    choices: tuple[_Choice, ...]
    usage: _Usage = _Usage()


class Attaching:
    """Asks one run of an engine what it can do.

    Args:
        http: The engine.
        base: The base model's name.
        metrics: What it told of itself just now.
    """

    def __init__(self, http: EngineHttp, *, base: str, metrics: Metrics) -> None:
        self._http = http
        self._base = base
        self._metrics = metrics
        self._lacks: list[Lack] = []

    async def facts(self) -> EngineFacts:
        """Return what it can do; it answers one token for that.

        Raises:
            EngineError: It did not answer.
        """
        version = self._http.read(await self._get("/version"), _Version).version
        lora, has_lora = await self._lora()
        await self._ask_adapters(has_lora=has_lora)
        await self._ask_changes()
        await self._ask_answers()
        if not self._metrics.tells_load:
            self._lack(Capability.LOAD, LOG_STATS)
        missing = {lack.capability for lack in self._lacks}
        return EngineFacts(
            kind=KIND,
            version=version,
            base=self._base,
            capabilities=tuple(c for c in Capability if c not in missing),
            lacks=tuple(self._lacks),
            max_adapters=lora.max_loras if lora else None,
            max_resident=lora.max_cpu_loras or lora.max_loras if lora else None,
            max_rank=lora.max_lora_rank if lora else None,
        )

    async def _lora(self) -> tuple[_Lora | None, bool]:
        """Return the adapters' slots as far as they are told, and whether there are any."""
        response = await self._get("/server_info", config_format="json")
        if response.status_code == HTTPStatus.NOT_FOUND:
            return None, await self._takes_adapters()
        lora = self._http.read(response, _ServerInfo).vllm_config.lora_config
        return lora, lora is not None

    async def _takes_adapters(self) -> bool:
        """Load what is nowhere: only an engine with LoRA looks for it, and says 404."""
        if not await self._has("/v1/load_lora_adapter"):
            return True  # not known, and of no use either: the route is what is missing
        response = await self._http.ask(
            "/v1/load_lora_adapter",
            body={"lora_name": "vctl-attach", "lora_path": _NO_ADAPTER},
            within_s=_ANSWER_S,
            accept=range(400, 600),
        )
        return response.status_code == HTTPStatus.NOT_FOUND

    async def _ask_adapters(self, *, has_lora: bool) -> None:
        has_routes = await self._has("/v1/load_lora_adapter")
        missing = [] if has_lora else [f"{LORA} --max-loras 2"]
        missing += [] if has_routes else [RUNTIME_LORA]
        if missing:
            self._lack(Capability.ADAPTERS, " and ".join(missing))

    async def _ask_changes(self) -> None:
        is_dev = await self._has("/collective_rpc")
        for capability, routes in (
            (Capability.FLUSH, _OF_FLUSH),
            (Capability.REPLACE, _OF_REPLACE),
            (Capability.SWAP_BASE, _OF_SWAP),
        ):
            if not all([await self._has(route) for route in routes]):
                self._lack(capability, NEWER if is_dev else DEV_MODE)
        if Capability.REPLACE not in self._missing() and Capability.ADAPTERS in self._missing():
            self._lack(Capability.REPLACE, self._remedy(Capability.ADAPTERS))

    async def _ask_answers(self) -> None:
        body = {"model": self._base, "prompt": "a", "max_tokens": 1}
        refused = await self._complete(body | {"cache_salt": ""})
        if refused.is_success:  # an engine that knows salts refuses an empty one
            self._lack(Capability.CACHE_SALT, NEWER)
        answered = await self._complete(body | {"logprobs": 1})
        if answered.is_error:
            self._lack(Capability.LOGPROBS, "--max-logprobs 1")
            answered = await self._complete(body)
        said = self._http.read(answered, _Completion)
        if answered.is_success and said.usage.prompt_tokens_details is None:
            self._lack(Capability.CACHED_TOKENS, TOKEN_DETAILS)

    async def _complete(self, body: dict[str, Any]) -> httpx.Response:
        refusals = (HTTPStatus.BAD_REQUEST,)
        return await self._http.ask(
            "/v1/completions", body=body, within_s=_ANSWER_S, accept=refusals
        )

    async def _has(self, route: str) -> bool:
        return (await self._get(route)).status_code != HTTPStatus.NOT_FOUND

    async def _get(self, path: str, **query: str) -> httpx.Response:
        return await self._http.ask(path, query=query, within_s=_ANSWER_S, accept=range(400, 500))

    def _lack(self, capability: Capability, remedy: str) -> None:
        self._lacks.append(Lack(capability=capability, remedy=remedy))

    def _missing(self) -> set[Capability]:
        return {lack.capability for lack in self._lacks}

    def _remedy(self, capability: Capability) -> str:
        return next(lack.remedy for lack in self._lacks if lack.capability is capability)
