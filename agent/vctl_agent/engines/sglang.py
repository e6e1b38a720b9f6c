"""The adapter for SGLang, over its HTTP interface; read in version 0.5.23.

The rule that a change must keep: answers are judged by their status and by what ``/v1/models`` and
``/model_info`` say afterwards, never by their texts.

What SGLang is otherwise than others, and what follows:

- A request names an adapter as ``base:adapter``. By the adapter's name alone it would be answered
  by the base, without a word; so the gateway is told the whole.
- An unload waits for the adapter's last request, however long, and holds up every other load. So
  it has a deadline here; one that hangs though nothing runs makes the engine suspect.
- An unloaded name is loaded again by the next request for it, from its old directory: unloading is
  no revoking. It does no harm, because a name is never given other bytes.
"""

from http import HTTPStatus
from typing import Any

import msgspec

from vctl_agent.engines.http import DESCRIBE_S, Closing, EngineHttp, UnansweredError, said_by
from vctl_agent.engines.openai import ask
from vctl_agent.engines.port import Answer, Description, Question, Resident, cannot
from vctl_agent.engines.sglang_base import BaseUpdate, model_info
from vctl_agent.engines.sglang_facts import (
    UNFINISHED,
    Doors,
    ServerInfo,
    facts,
    incarnation,
)
from vctl_agent.engines.sglang_loads import loads, running
from vctl_plans.capability import Capability
from vctl_plans.errors import PermanentEngineError, SuspectEngineError, TemporaryEngineError

UNLOAD_S = 60.0
"""That an adapter's last requests have to end, after the gateway has drained it."""

FLUSH_S = 20.0
"""That the engine waits for a moment without requests, in which it can flush."""

_REFUSED = (HTTPStatus.BAD_REQUEST,)
_NO_ROUTE = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)


class _Card(msgspec.Struct):
    id: str
    root: str = ""
    parent: str | None = None  # None: it is the base


class _Cards(msgspec.Struct):
    data: list[_Card]


class SglangEngine(Closing):
    """An SGLang server at one URL.

    Args:
        url: Where it answers.
        key: Its ``--api-key``, if it has one.
        admin_key: Its ``--admin-api-key``; empty: the same key.
    """

    def __init__(self, url: str, *, key: str = "", admin_key: str = "") -> None:
        self._http = EngineHttp(url, named="SGLang", key=key)
        self._admin = EngineHttp(url, named="SGLang", key=admin_key or key)
        self._doors: tuple[str, Doors] | None = None  # of which start

    async def close(self) -> None:
        """Drop connections."""
        await self._http.close()
        await self._admin.close()

    async def describe(self) -> Description:
        """Read what the engine holds now."""
        server, model = await self._server(), await model_info(self._http)
        usage = [each.token_usage for each in await loads(self._http) or []]
        base_path = "" if model.model_path == server.model_path else model.model_path
        return Description(
            facts=facts(server, model, await self._opened(server)),
            incarnation=incarnation(server, model),
            base_path=UNFINISHED if model.is_changing else base_path,
            adapters=await self._adapters(),
            kv_used=max(usage) if usage else None,
            adapter_prefix=f"{model.served_model_name}:",
        )

    async def load(self, name: str, path: str) -> None:
        """Load an adapter; one that is already there under this name and path is no error."""
        await self._need(Capability.ADAPTERS)
        there = {adapter.name: adapter.path for adapter in await self._adapters()}
        if name in there and there[name] != path:
            raise PermanentEngineError(f"the engine has {name} from {there[name]}")
        if name in there or not await self._refusal(name, path):
            return
        # It may be the rest of an unload that failed half-way, which has to be ended first.
        await self._unloaded(name)
        refusal = await self._refusal(name, path)
        if refusal:
            raise PermanentEngineError(f"the engine refuses {name}: {refusal}")

    async def unload(self, name: str) -> None:
        """Forget an adapter; one that is not there is no error."""
        await self._need(Capability.ADAPTERS)
        await self._unloaded(name)

    async def answer(self, model: str, question: Question, *, salt: str = "") -> Answer:
        """Answer greedily; by an adapter's name alone, SGLang itself would ask the base."""
        base = (await model_info(self._http)).served_model_name
        asked = model if model == base else f"{base}:{model}"
        return await ask(self._http, asked, question, salt=salt)

    async def swap_base(self, path: str) -> None:
        """Put another base in the place of the present one; one that is there is no error."""
        await self._need(Capability.SWAP_BASE)
        server, model = await self._server(), await model_info(self._http)
        path = path or server.model_path
        if model.model_path == path and not model.is_changing:
            return
        for adapter in await self._adapters():
            await self._unloaded(adapter.name)
        await BaseUpdate(self._http, self._admin).run(path)

    async def flush(self) -> None:
        """Drop whatever is cached, as soon as no request runs."""
        await self._need(Capability.FLUSH)
        flushed = await self._admin.ask(
            "/flush_cache",
            method="POST",
            query={"timeout": f"{FLUSH_S:g}"},
            within_s=FLUSH_S + DESCRIBE_S,
            accept=_REFUSED,
        )
        if flushed.is_error:
            raise TemporaryEngineError(f"the engine was never idle within {FLUSH_S:g} s")

    async def replace(self, name: str, path: str) -> None:
        """Refuse: between unload and load, a request would bring the old bytes back."""
        del name, path
        raise cannot((await self.describe()).facts, Capability.REPLACE)

    async def _server(self) -> ServerInfo:
        # The one of these questions that goes through to the scheduler, so it tells that it lives.
        return self._http.read(
            await self._http.ask("/server_info", within_s=DESCRIBE_S), ServerInfo
        )

    async def _opened(self, server: ServerInfo) -> Doors:
        """Return what answers; tried once a start."""
        if not self._doors or self._doors[0] != server.start:
            doors = Doors(
                is_open=await self._is_open(),
                has_salt=await self._has_salt(),
                has_loads=await loads(self._http) is not None,
            )
            self._doors = (server.start, doors)
        return self._doors[1]

    async def _is_open(self) -> bool | None:
        """Whether adapters may be loaded: an empty call is refused as such; None: no such route."""
        try:
            empty = await self._admin.ask(
                "/load_lora_adapter", body={}, within_s=DESCRIBE_S, accept=_NO_ROUTE + _REFUSED
            )
        except PermanentEngineError:  # the key is not the right one
            return False
        return True if empty.status_code in _REFUSED else None

    async def _has_salt(self) -> bool:
        """Whether requests may have a salt: unknown fields are taken without a word."""
        response = await self._http.ask("/openapi.json", within_s=DESCRIBE_S, accept=_NO_ROUTE)
        if response.is_error:
            return False
        document: Any = self._http.read(response, Any)
        try:
            fields = document["components"]["schemas"]["CompletionRequest"]["properties"]
        except (KeyError, TypeError):
            return False
        return "cache_salt" in fields

    async def _need(self, capability: Capability) -> None:
        server, model = await self._server(), await model_info(self._http)
        known = facts(server, model, await self._opened(server))
        if not known.can(capability):
            raise cannot(known, capability)

    async def _adapters(self) -> tuple[Resident, ...]:
        response = await self._http.ask("/v1/models", within_s=DESCRIBE_S)
        cards = self._http.read(response, _Cards).data
        return tuple(Resident(card.id, card.root) for card in cards if card.parent is not None)

    async def _refusal(self, name: str, path: str) -> str:
        """Load; return what was said against it, for a person, if it is not listed afterwards."""
        body = {"lora_name": name, "lora_path": path}
        said = await self._admin.ask("/load_lora_adapter", body=body, accept=_REFUSED)
        is_there = said.is_success or Resident(name, path) in await self._adapters()
        return "" if is_there else said_by(said)

    async def _unloaded(self, name: str) -> None:
        try:
            await self._admin.ask(
                "/unload_lora_adapter", body={"lora_name": name}, within_s=UNLOAD_S, accept=_REFUSED
            )
        except UnansweredError as cause:
            await self._judge_hanging(name, cause)

    async def _judge_hanging(self, name: str, cause: UnansweredError) -> None:
        """Tell an unload that waits for long requests from one that nothing will ever end."""
        count = await running(self._http)
        if count:
            raise TemporaryEngineError(
                f"{name} is not unloaded yet: the engine has {count} requests"
            ) from cause
        raise SuspectEngineError(
            f"the engine hangs while it unloads {name}, though no request runs",
            hint="restart the engine",
        ) from cause
