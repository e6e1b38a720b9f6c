"""The HTTP application: routes, the administration as vLLM has it, and errors in OpenAI's shape."""

import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from vctl_agent.engines.torch.answers import Answers, internal_error, json_response
from vctl_agent.engines.torch.openai import ApiError, Filled, parse_body
from vctl_agent.engines.torch.service import Service

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class LoadBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of POST /v1/load_lora_adapter."""

    lora_name: Filled
    lora_path: Filled
    load_inplace: bool = False


class UnloadBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of POST /v1/unload_lora_adapter."""

    lora_name: Filled


class SwapBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of POST /engine/base."""

    path: str  # empty: the base that the process was started with


class Administration:
    """Models, adapters, health and numbers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._created = int(time.time())

    async def models(self, _: web.Request) -> web.Response:
        """GET /v1/models: what is registered, as vLLM's cards."""
        registry = self._service.registry
        context = self._service.engine.context
        cards = [self._card(registry.base_name, registry.base.path, None, context)]
        cards += [self._card(a.name, a.path, registry.base_name, None) for a in registry.adapters]
        return json_response({"object": "list", "data": cards})

    async def load(self, request: web.Request) -> web.Response:
        """POST /v1/load_lora_adapter: returns once the adapter answers requests.

        With ``load_inplace``, a name that is taken gets the other adapter; what was computed by the
        former one cannot be found under the new one's identity.
        """
        body = parse_body(await request.read(), LoadBody)
        registry = self._service.registry
        load = registry.replace if body.load_inplace else registry.load
        adapter = await load(body.lora_name, body.lora_path)
        log.info("adapter loaded", name=adapter.name, path=adapter.path, digest=adapter.digest[:12])
        return web.Response(text=f"Success: LoRA adapter '{adapter.name}' added successfully.")

    async def unload(self, request: web.Request) -> web.Response:
        """POST /v1/unload_lora_adapter: returns at once; requests that use it finish on it."""
        body = parse_body(await request.read(), UnloadBody)
        self._service.registry.unload(body.lora_name)
        log.info("adapter unloaded", name=body.lora_name)
        return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    async def reset(self, _: web.Request) -> web.Response:
        """POST /reset_prefix_cache: empty it; says whether that was done, as vLLM does."""
        return json_response({"success": await self._service.flush()})

    async def swap_base(self, request: web.Request) -> web.Response:
        """POST /engine/base: another base model; returns once it answers requests."""
        body = parse_body(await request.read(), SwapBody)
        if body.path and not Path(body.path).is_absolute():
            raise ApiError.invalid(f"path {body.path!r} is not absolute.", param="path")
        await self._service.swap_base(body.path)
        base = self._service.engine.base
        log.info("base swapped", path=base.path, digest=base.digest[:12])
        return web.Response(text="Success: the base model was swapped.")

    async def health(self, _: web.Request) -> web.Response:
        """GET /health: 200 while the inference thread lives."""
        is_alive = self._service.scheduler.is_alive()
        return web.Response(status=HTTPStatus.OK if is_alive else HTTPStatus.SERVICE_UNAVAILABLE)

    async def engine(self, _: web.Request) -> web.Response:
        """GET /engine: what this process is and holds."""
        return json_response(self._service.description())

    async def metrics(self, _: web.Request) -> web.Response:
        """GET /metrics."""
        body = self._service.metrics.exposition()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _card(self, name: str, root: str, parent: str | None, length: int | None) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "vctl",
            "root": root,
            "parent": parent,
            "max_model_len": length,
        }


def application(service: Service) -> web.Application:
    """Return the application that serves this engine."""
    app = web.Application(middlewares=[_openai_errors])
    answers, administration = Answers(service), Administration(service)
    app.add_routes(
        [
            web.post("/v1/completions", answers.completions),
            web.post("/v1/chat/completions", answers.chat),
            web.get("/v1/models", administration.models),
            web.post("/v1/load_lora_adapter", administration.load),
            web.post("/v1/unload_lora_adapter", administration.unload),
            web.post("/reset_prefix_cache", administration.reset),
            web.get("/health", administration.health),
            web.get("/engine", administration.engine),
            web.post("/engine/base", administration.swap_base),
            web.get("/metrics", administration.metrics),
        ]
    )
    return app


@web.middleware
async def _openai_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer every error in OpenAI's shape; a fault of ours is logged and told as such."""
    try:
        return await handler(request)
    except ApiError as cause:
        refusal = cause
    except web.HTTPException as cause:
        kind = HTTPStatus(cause.status).phrase.title().replace(" ", "") + "Error"
        refusal = ApiError(f"{cause.status}: {cause.reason}", status=cause.status, kind=kind)
    except ConnectionError:
        raise  # the client went away; there is nobody to tell
    except Exception:  # the top of a request: a bug costs one answer, and not the engine
        log.exception("request failed", path=request.path)
        refusal = internal_error()
    return json_response(refusal.document(), status=refusal.status)
