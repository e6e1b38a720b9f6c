"""A server that keeps state and answers as SGLang 0.5.23 does, by what its source says.

What it copies: the registry of adapters and the lock around loads and unloads; an unload that waits
for the adapter's last request; a name that is loaded again, from its old directory, by the next
request for it; the version of the weights, which stays where an update was refused; statuses and
shapes of answers. No model: an answer's numbers are a digest of who answers.
"""

import asyncio
import hashlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

FIRST_BASE = "/models/first"


class SglangStub:
    """The server's state, and what goes wrong with it; call `restart` for a new process."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {
            "model_path": FIRST_BASE,
            "served_model_name": "base",
            "enable_lora": True,
            "max_loras_per_batch": 4,
            "max_loaded_loras": 8,
            "max_lora_rank": 64,
            "dp_size": 1,
            "attn_dp_size": 1,
            "tokenizer_worker_num": 1,
            "hicache_storage_backend": None,
            "enable_cache_report": True,
        }
        self.api_key = self.admin_key = ""
        self.has_salt = self.has_loads = True
        self.asked: list[str] = []  # paths that change something, in their order
        self.read: list[str] = []  # the others
        self.die_after = 0  # so many of `asked` are done, and nothing is answered from then on
        self.broken: dict[str, Callable[[], Awaitable[web.Response | None]]] = {}  # by path
        self.lies = False  # says yes to loads and unloads, and does nothing
        self.unflushed = 0  # so many updates change the weights and do not flush
        self.restart()

    def restart(self) -> None:
        """Lose everything, as a process that starts anew."""
        self.seed = secrets.randbelow(1 << 30)
        self.load_weight_s = secrets.randbelow(1 << 30) / 1e8
        self.model_path = self.settings["model_path"]
        self.served_model_name = self.settings["served_model_name"]
        self.weight_version = "default"
        self.is_paused = False
        self.adapters: dict[str, str] = {}
        self.known: dict[str, str] = {}  # every name that was ever loaded, and its last path
        self.running: Counter[str] = Counter()  # requests by adapter; "": of the base
        self.cache: set[tuple[str, str, str]] = set()
        self.lock = asyncio.Lock()
        self.ended = asyncio.Condition()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve, and give the address."""
        runner = web.AppRunner(self._application(), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def begin(self, adapter: str = "") -> None:
        """Have a request run, as if a client had sent it."""
        self.running[adapter] += 1

    async def end(self, adapter: str = "") -> None:
        """Have that request end."""
        self.running[adapter] -= 1
        async with self.ended:
            self.ended.notify_all()

    def _application(self) -> web.Application:
        app = web.Application(middlewares=[self._gate])
        app.add_routes(
            [
                web.get("/server_info", self._server_info),
                web.get("/model_info", self._model_info),
                web.get("/v1/models", self._models),
                web.get("/v1/loads", self._loads),
                web.get("/openapi.json", self._openapi),
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._completions),
                web.post("/load_lora_adapter", self._load),
                web.post("/unload_lora_adapter", self._unload),
                web.route("*", "/flush_cache", self._flush),
                web.post("/pause_generation", self._pause),
                web.post("/continue_generation", self._continue),
                web.post("/update_weights_from_disk", self._update),
                web.post("/update_weight_version", self._label),
            ]
        )
        return app

    @web.middleware
    async def _gate(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        is_admin = request.method == "POST" and not request.path.startswith("/v1/")
        needed = (self.admin_key or self.api_key) if is_admin else self.api_key
        if needed and request.headers.get("authorization") != f"Bearer {needed}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        (self.asked if is_admin else self.read).append(request.path)
        if 0 < self.die_after < len(self.asked):
            return web.json_response({}, status=503)
        broken = self.broken.get(request.path)
        answer = (await broken() if broken else None) or await handler(request)
        if 0 < self.die_after == len(self.asked):  # done, and whoever asked is gone
            return web.json_response({}, status=503)
        return answer

    async def _server_info(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                **self.settings,
                "random_seed": self.seed,
                "startup_time": {"load_weight": self.load_weight_s, "tokenizer_e2e": 1.5},
                "internal_states": [{"world_size": 1}],
                "version": "0.5.23",
                "frontend": "python",
            }
        )

    async def _model_info(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "model_path": self.model_path,
                "served_model_name": self.served_model_name,
                "is_generation": True,
                "weight_version": self.weight_version,
                "load_format": "auto",
            }
        )

    async def _models(self, _: web.Request) -> web.Response:
        base = self.served_model_name
        cards = [_card(base, base, None, 4096)]
        cards += [_card(name, path, base, None) for name, path in self.adapters.items()]
        return web.json_response({"object": "list", "data": cards})

    async def _loads(self, _: web.Request) -> web.Response:
        if not self.has_loads:
            return web.json_response({"detail": "Not Found"}, status=404)
        load = {
            "dp_rank": 0,
            "num_running_reqs": self.running.total(),
            "num_waiting_reqs": 0,
            "token_usage": 0.25,
        }
        return web.json_response({"version": "0.5.23", "loads": [load]})

    async def _openapi(self, _: web.Request) -> web.Response:
        fields: dict[str, Any] = {"model": {}, "prompt": {}} | (
            {"cache_salt": {}} if self.has_salt else {}
        )
        schemas = {"CompletionRequest": {"properties": fields}}
        return web.json_response({"components": {"schemas": schemas}})

    async def _completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        model: str = body["model"]
        base = self.served_model_name
        adapter = ""
        if model != base and ":" in model:  # else the base answers, whatever the model is called
            after = model[len(base) + 1 :] if model.startswith(f"{base}:") else ""
            adapter = after or model.split(":", 1)[1]
        if adapter and adapter not in self.adapters:
            if adapter not in self.known:
                return _refused(f"Got LoRA adapter that has never been loaded: {adapter}")
            async with self.lock:
                self.adapters[adapter] = self.known[adapter]
        is_chat = request.path.endswith("/chat/completions")
        prompt = repr(body["messages"]) if is_chat else body["prompt"]
        digest = self.digest(adapter, prompt)
        numbers = digest[: body["max_tokens"]]
        known = (self.adapters.get(adapter, ""), prompt, body.get("cache_salt", ""))
        cached = 16 if known in self.cache else 0
        self.cache.add(known)
        logprobs = {
            "text_offset": [],
            "tokens": [f"t{number}" for number in numbers],
            "token_logprobs": [-number / 64 for number in numbers],
            "top_logprobs": [],
        }
        text: dict[str, Any] = {"text": digest.hex()}
        if is_chat:
            text = {"message": {"role": "assistant", "content": digest.hex()}}
            logprobs = {
                "content": [
                    {"token": f"t{n}", "logprob": -n / 64, "top_logprobs": []} for n in numbers
                ]
            }
        choice = {"index": 0, **text, "logprobs": logprobs, "finish_reason": "length"}
        return web.json_response(
            {
                "id": "1",
                "object": "text_completion",
                "model": model,
                "choices": [choice],
                "usage": {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": cached}},
            }
        )

    def digest(self, adapter: str, prompt: str) -> bytes:
        """Return what stands for the answer of an adapter, or of the base."""
        source = self.adapters.get(adapter, "")
        return hashlib.sha256(f"{self.model_path} {source} {prompt}".encode()).digest()

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "lora_name" not in body or "lora_path" not in body:
            return _refused("Field required")
        name, path = body["lora_name"], body["lora_path"]
        async with self.lock:
            if self.lies:
                return self._updated()
            if name in self.adapters:
                return self._updated(f"Failed to load {name} because it is already loaded")
            if "broken" in path:
                return self._updated("rank 128 of the adapter exceeds max_lora_rank")
            self.adapters[name] = self.known[name] = path
            return self._updated()

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        async with self.lock:
            if self.lies:
                return self._updated()
            if name not in self.adapters:
                return self._updated(f"LoRA with name {name} does not exist. Loaded LoRAs: ...")
            del self.adapters[name]  # not of what is known: the next request brings it back
            async with self.ended:
                await self.ended.wait_for(lambda: not self.running[name])
            return self._updated()

    def _updated(self, error: str = "") -> web.Response:
        body = {"success": not error, "error_message": error or None}
        return web.json_response(
            {**body, "loaded_adapters": dict(self.adapters)}, status=400 if error else 200
        )

    async def _flush(self, request: web.Request) -> web.Response:
        if not self.running.total():
            self.cache.clear()
            return web.Response(text="Cache flushed.\nPlease check backend logs for more details.")
        if float(request.query.get("timeout", "0")):
            return web.Response(text="Timed out waiting for idle state.", status=400)
        return web.Response(text="Flush cache failed.\n", status=400)

    async def _pause(self, request: web.Request) -> web.Response:
        assert (await request.json())["mode"] == "abort"
        self.is_paused = True
        self.running.clear()
        return web.json_response({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, _: web.Request) -> web.Response:
        self.is_paused = False
        return web.json_response({"message": "Generation continued successfully.", "status": "ok"})

    async def _update(self, request: web.Request) -> web.Response:
        body = await request.json()
        path = body["model_path"]
        if path != FIRST_BASE and not (Path(path) / "config.json").exists():
            return _update_answer(f"Failed to get weights iterator: {path}.")
        if self.unflushed:
            self.unflushed -= 1
            return _update_answer("Weights were updated, but the cache was not flushed because ...")
        self.model_path = self.served_model_name = path
        if body.get("weight_version") is not None:
            self.weight_version = body["weight_version"]
        return _update_answer()

    async def _label(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body.get("abort_all_requests", True):
            self.running.clear()
        self.weight_version = body["new_version"]
        return web.json_response(
            {"success": True, "message": "", "new_version": self.weight_version}
        )


def _card(name: str, root: str, parent: str | None, length: int | None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": 1,
        "owned_by": "sglang",
        "root": root,
        "parent": parent,
        "max_model_len": length,
    }


def _refused(message: str) -> web.Response:
    body = {"object": "error", "message": message, "type": "BadRequest", "code": 400}
    return web.json_response(body, status=400)


def _update_answer(error: str = "") -> web.Response:
    body = {"success": not error, "message": error or "Succeeded to update model weights."}
    return web.json_response({**body, "num_paused_requests": 0}, status=400 if error else 200)
