"""The hooks in examples/ do what they say, as they stand there."""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.engines.kinds import TorchProcess, torch_process
from vctl_agent.engines.hook import HookEngine, open_hook_engine
from vctl_agent.engines.proving import Prover
from vctl_agent.hook import Hook
from vctl_agent.probed import Probed
from vctl_plans.capability import Capability
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError

__all__ = ["torch_process"]

HOOKS = Path(__file__).parents[2] / "examples" / "hooks"
ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Qdrant:
    """A server with collections and aliases, as Qdrant has them."""

    def __init__(self) -> None:
        self.url = ""
        self.collections: dict[str, bytes] = {}  # of which snapshot
        self.aliases: dict[str, str] = {}
        self.uploads = 0
        self.is_starting = False
        self.key = ""

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._gate])
        app.add_routes(
            [
                web.get("/collections/{name}/exists", self._exists),
                web.post("/collections/{name}/snapshots/upload", self._upload),
                web.delete("/collections/{name}", self._delete),
                web.post("/collections/aliases", self._actions),
                web.get("/aliases", self._list),
            ]
        )
        return app

    @web.middleware
    async def _gate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.is_starting:
            return web.Response(status=503, text="starting")
        if request.headers.get("api-key", "") != self.key:
            return web.Response(status=401, text="Must provide an API key")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _exists(self, request: web.Request) -> web.Response:
        is_there = request.match_info["name"] in self.collections
        return web.json_response({"result": {"exists": is_there}})

    async def _upload(self, request: web.Request) -> web.Response:
        assert request.query["priority"] == "snapshot"
        form = await request.post()
        self.uploads += 1
        self.collections[request.match_info["name"]] = form["snapshot"].file.read()  # type: ignore[union-attr]
        return web.json_response({"result": True})

    async def _delete(self, request: web.Request) -> web.Response:
        del self.collections[request.match_info["name"]]
        return web.json_response({"result": True})

    async def _actions(self, request: web.Request) -> web.Response:
        for action in (await request.json())["actions"]:
            if "delete_alias" in action:
                self.aliases.pop(action["delete_alias"]["alias_name"], None)
            else:
                new = action["create_alias"]
                assert new["collection_name"] in self.collections
                self.aliases[new["alias_name"]] = new["collection_name"]
        return web.json_response({"result": True})

    async def _list(self, _: web.Request) -> web.Response:
        listed = [{"alias_name": a, "collection_name": c} for a, c in self.aliases.items()]
        return web.json_response({"result": {"aliases": listed}})


@pytest.fixture
async def qdrant() -> AsyncIterator[Qdrant]:
    made = Qdrant()
    runner = web.AppRunner(made.application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def document(event: str, release: int, index: Path, root: str) -> bytes:
    """Return what the agent writes, as docs/components.md says."""
    components = {"index": {"path": str(index), "root": f"b3:{root}"}}
    told = {"v": 1, "service": "support", "release": release, "components": components}
    return json.dumps(told | {"event": event}).encode()


def an_index(folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / "docs.snapshot").write_bytes(content)
    return folder


def qdrant_hook(*arguments: str, **environment: str) -> Hook:
    command = (sys.executable, str(HOOKS / "qdrant-alias.py"), *arguments)
    return Hook(command, timeout_s=30, environment=ENVIRONMENT | environment)


ONE, TWO = "1" * 64, "2" * 64


async def test_each_release_has_an_alias_to_its_own_index(qdrant: Qdrant, tmp_path: Path) -> None:
    """Releases of one index share the collection; it is brought once, whoever asks again."""
    one, two = an_index(tmp_path / "one", b"one"), an_index(tmp_path / "two", b"two")
    hook = qdrant_hook(qdrant.url)
    await hook.run("load", document("load", 1, one, ONE))
    await hook.run("load", document("load", 2, two, TWO))
    await hook.run("load", document("load", 3, two, TWO))
    await hook.run("load", document("load", 3, two, TWO))
    await hook.run("unload", document("unload", 1, one, ONE))

    by_alias = {alias: qdrant.collections[name] for alias, name in qdrant.aliases.items()}
    assert {"support-1": b"one", "support-2": b"two", "support-3": b"two"} == by_alias
    assert 2 == qdrant.uploads


async def test_index_goes_with_its_last_alias_where_the_node_has_its_own(
    qdrant: Qdrant, tmp_path: Path
) -> None:
    """And not before."""
    index = an_index(tmp_path / "one", b"one")
    hook = qdrant_hook(qdrant.url, "--per-node")
    for release in (1, 2):
        await hook.run("load", document("load", release, index, ONE))
    await hook.run("unload", document("unload", 1, index, ONE))
    still = dict(qdrant.collections)
    await hook.run("unload", document("unload", 2, index, ONE))

    assert 1 == len(still)
    assert ({}, {}) == (qdrant.collections, qdrant.aliases)


async def test_store_that_starts_is_waited_for_and_a_refusal_is_final(
    qdrant: Qdrant, tmp_path: Path
) -> None:
    """By the hook's exit code, with what was said."""
    index = an_index(tmp_path / "one", b"one")
    load = document("load", 1, index, ONE)
    qdrant.is_starting = True
    with pytest.raises(TemporaryEngineError, match="503: starting"):
        await qdrant_hook(qdrant.url).run("load", load)
    with pytest.raises(TemporaryEngineError):
        await qdrant_hook("http://127.0.0.1:1").run("load", load)
    qdrant.is_starting, qdrant.key = False, "k"
    with pytest.raises(PermanentEngineError, match="401: Must provide an API key"):
        await qdrant_hook(qdrant.url).run("load", load)
    await qdrant_hook(qdrant.url, QDRANT_API_KEY="k").run("load", load)

    assert ["support-1"] == list(qdrant.aliases)


async def test_release_without_an_index_is_none_of_its_business() -> None:
    """It reaches for nothing then."""
    told = {"event": "load", "service": "s", "release": 1, "components": {"prompt": {}}}
    await qdrant_hook("http://127.0.0.1:1").run("load", json.dumps(told).encode())


def lora_server(url: str) -> HookEngine:
    command = (sys.executable, str(HOOKS / "lora-server.py"))
    return open_hook_engine(command, engine_url=url, timeout_s=60, environment=ENVIRONMENT)


@pytest.mark.torch
async def test_server_that_vctl_does_not_know_is_served_by_a_hook(
    torch_process: TorchProcess, tmp_path: Path
) -> None:
    """Loaded, probed by vctl itself, unloaded; and a restart is told."""
    folder = torch_process.folder
    async with lora_server(torch_process.url) as engine:
        await engine.load("support@1", str(folder / "first"))
        await engine.load("support@1", str(folder / "first"))
        proven = await Prover(engine, Probed(tmp_path / "probed.json")).prove("support@1")
        loaded = await engine.describe()
        with pytest.raises(PermanentEngineError):
            await engine.load("support@2", str(folder / "broken"))
        await engine.unload("support@1")
        await engine.unload("support@1")
        unloaded = await engine.describe()
        await engine.load("support@1", str(folder / "first"))
        torch_process.restart()
        anew = await engine.describe()

    assert "from the base" in proven
    assert loaded.has("support@1", str(folder / "first"))
    assert ((), loaded.incarnation) == (unloaded.adapters, unloaded.incarnation)
    assert () == anew.adapters
    assert loaded.incarnation != anew.incarnation
    assert not loaded.facts.can(Capability.SWAP_BASE)


async def test_server_that_is_away_is_waited_for() -> None:
    """Its hook says so."""
    async with lora_server("http://127.0.0.1:1") as engine:
        with pytest.raises(TemporaryEngineError, match="the engine's hook failed on describe"):
            await engine.describe()
