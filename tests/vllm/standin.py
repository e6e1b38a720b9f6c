"""A server that answers as vLLM 0.32 was seen to, for tests of what a real one seldom does.

It holds adapters, a pause and a weight version as a real one does, so the adapter's calls can be
judged by what they leave. What is to go wrong is scripted by path.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

DEV = ("/is_paused", "/weight_info", "/server_info", "/pause", "/resume", "/reset_prefix_cache",
       "/update_weight_version", "/collective_rpc")  # fmt: skip
ROOT = "/models/base"


class StandIn:
    """What the server is, and what it was asked; change it at any time."""

    def __init__(self) -> None:
        self.started = 1796010934.81
        self.adapters: dict[str, str] = {}
        self.is_paused = False
        self.version = "default"
        self.base = ROOT
        self.key = ""
        self.missing: set[str] = set()  # paths that it does not have
        self.statuses: dict[str, int] = {}  # by path: an error instead of an answer
        self.hangs: set[str] = set()  # paths that do what they do and never answer
        self.is_busy = False  # drops no cache, with a 200
        self.lora: dict[str, int] | None = {"max_loras": 2, "max_cpu_loras": 4, "max_lora_rank": 8}
        self.knows_salts = True
        self.tells_tokens = True
        self.max_logprobs = 20
        self.metrics = ["vllm:num_requests_running 0.0", 'vllm:kv_cache_usage_perc{engine="0"} 0.5']
        self.calls: list[str] = []  # what changed something

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if (
            self.key
            and path.startswith("/v1")
            and request.headers.get("authorization") != (f"Bearer {self.key}")
        ):
            return web.json_response({"error": "Unauthorized"}, status=401)
        if path in self.missing:
            return _error(404, "Not Found")
        if request.method == "POST":
            self.calls.append(path)
        if path in self.statuses:
            return _error(self.statuses[path], "as scripted")
        if request.method == "GET" and path not in _READ:
            return _error(405, "Method Not Allowed") if path in _CHANGE else _error(404, "none")
        done = await self._do(path, request)
        if path in self.hangs:
            await asyncio.sleep(3600)
        return done

    async def _do(self, path: str, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else {}
        if path == "/metrics":
            lines = [f"process_start_time_seconds {self.started}", *self.metrics]
            return web.Response(text="\n".join(lines) + "\n")
        if path == "/pause":
            self.is_paused = True
        elif path == "/resume":
            self.is_paused = False
        elif path == "/update_weight_version":
            self.version = body["new_version"]
        elif path == "/collective_rpc":
            self.base = body["kwargs"]["weights_path"]
        elif path == "/v1/load_lora_adapter":
            return self._load(body)
        elif path == "/v1/unload_lora_adapter":
            if self.adapters.pop(body["lora_name"], None) is None:
                return _error(404, "cannot be found")
        elif path == "/v1/completions":
            return self._complete(body)
        return web.json_response(self._told(path))

    def _told(self, path: str) -> object:
        cards = [{"id": "tiny", "root": ROOT, "parent": None}]
        cards += [{"id": n, "root": p, "parent": "tiny"} for n, p in self.adapters.items()]
        return {
            "/version": {"version": "0.32.0"},
            "/v1/models": {"data": cards},
            "/is_paused": {"is_paused": self.is_paused},
            "/weight_info": {"weight_version": self.version},
            "/server_info": {"vllm_config": {"lora_config": self.lora}},
            "/reset_prefix_cache": {"success": not self.is_busy},
        }.get(path, {})

    def _load(self, body: dict[str, str]) -> web.Response:
        name, path = body["lora_name"], body["lora_path"]
        if self.lora is None:
            return _error(500, "LoRA is not enabled")
        if name in self.adapters:
            return _error(400, "has already been loaded")
        if path.startswith("/nonexistent"):
            return _error(404, "No adapter found for <path>")
        if path.endswith("broken"):
            return _error(500, "Call to add_lora method failed")
        self.adapters[name] = path
        return web.Response(text=f"Success: LoRA adapter '{name}' added successfully.")

    def _complete(self, body: dict[str, object]) -> web.Response:
        if body.get("cache_salt") == "" and self.knows_salts:
            return _error(400, "must be a non-empty string")
        if body.get("logprobs", 0) and not self.max_logprobs:
            return _error(400, "greater than max allowed")
        details = {"cached_tokens": 0} if self.tells_tokens else None
        logprobs = {"tokens": ["a"], "token_logprobs": [-1.0]}
        choice = {"logprobs": logprobs if "logprobs" in body else None}
        usage = {"prompt_tokens_details": details}
        return web.json_response({"choices": [choice], "usage": usage})


_READ = {"/metrics", "/version", "/v1/models", "/is_paused", "/weight_info", "/server_info"}
_CHANGE = {"/pause", "/resume", "/reset_prefix_cache", "/update_weight_version", "/collective_rpc",
           "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/completions"}  # fmt: skip


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


@asynccontextmanager
async def serving(standin: StandIn) -> AsyncIterator[str]:
    """Serve it on loopback; give its address."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", standin.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
