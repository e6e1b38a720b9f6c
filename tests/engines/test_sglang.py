"""The adapter for SGLang, on a server that answers as its source says and goes wrong on demand."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from aiohttp import web

from tests.agent.support import SERVICE, Node, a_fleet, a_rollout, make_releases
from tests.engines.kinds import a_model
from tests.engines.sglang_stub import FIRST_BASE, SglangStub
from vctl_agent.engines import sglang, sglang_base
from vctl_agent.engines.proving import QUESTIONS
from vctl_agent.engines.sglang import SglangEngine
from vctl_agent.engines.sglang_facts import UNFINISHED
from vctl_agent.engines.suspect import Suspect
from vctl_agent.engines.watch import EngineWatch
from vctl_plans.capability import Capability
from vctl_plans.errors import (
    EngineError,
    PermanentEngineError,
    SuspectEngineError,
    TemporaryEngineError,
)
from vctl_plans.phase import NodePhase

NAME, PATH = "support@1", "/adapters/1"
CHANGES = ["/update_weight_version", "/pause_generation", "/update_weights_from_disk",
           "/flush_cache", "/continue_generation", "/update_weight_version"]  # fmt: skip


@pytest.fixture
def stub() -> SglangStub:
    return SglangStub()


@pytest.fixture
async def engine(stub: SglangStub) -> AsyncIterator[SglangEngine]:
    async with stub.serving() as url, SglangEngine(url) as made:
        yield made


@pytest.fixture
def base(tmp_path: Path) -> str:
    return str(a_model(tmp_path / "base"))


def answers(status: int, body: Any = None) -> Callable[[], Awaitable[web.Response | None]]:
    async def answer() -> web.Response | None:
        return web.json_response(body or {"detail": "as scripted"}, status=status)

    return answer


async def never() -> web.Response | None:
    await asyncio.Event().wait()
    return None


# -- what it can do ------------------------------------------------------------------------------


async def test_facts_are_those_of_the_server(engine: SglangEngine) -> None:
    """The base counts as one of the adapters of a batch."""
    facts = (await engine.describe()).facts

    assert ("sglang", "0.5.23", "base") == (facts.kind, facts.version, facts.base)
    assert (3, 8, 64) == (facts.max_adapters, facts.max_resident, facts.max_rank)
    assert {Capability.REPLACE} == {lack.capability for lack in facts.lacks}


@pytest.mark.parametrize(
    ("settings", "lacking", "remedy"),
    [
        ({"enable_lora": None}, Capability.ADAPTERS,
         "--enable-lora --max-lora-rank 64 --lora-target-modules all"),
        ({"max_loras_per_batch": 2}, Capability.ADAPTERS, "--max-loras-per-batch 3"),
        ({"enable_lora": False, "max_loras_per_batch": 1}, Capability.ADAPTERS,
         "--enable-lora --max-lora-rank 64 --lora-target-modules all --max-loras-per-batch 3"),
        ({"dp_size": 2}, Capability.ADAPTERS, "--dp-size 1"),
        ({"dp_size": 2}, Capability.FLUSH, "--dp-size 1"),
        ({"attn_dp_size": 2}, Capability.SWAP_BASE, "--dp-size 1"),
        ({"tokenizer_worker_num": 4}, Capability.ADAPTERS, "--tokenizer-worker-num 1"),
        ({"hicache_storage_backend": "file"}, Capability.SWAP_BASE,
         "no --hicache-storage-backend"),
        ({"enable_cache_report": False}, Capability.CACHED_TOKENS, "--enable-cache-report"),
    ],
)  # fmt: skip
async def test_each_missing_flag_is_named(
    engine: SglangEngine,
    stub: SglangStub,
    settings: dict[str, Any],
    lacking: Capability,
    remedy: str,
) -> None:
    """Exactly as it is written on the command line."""
    stub.settings |= settings
    facts = (await engine.describe()).facts

    assert (False, remedy) == (facts.can(lacking), facts.remedy(lacking))


@pytest.mark.parametrize(
    ("field", "lacking"), [("has_salt", Capability.CACHE_SALT), ("has_loads", Capability.LOAD),
                           ("has_loads", Capability.SWAP_BASE)],
)  # fmt: skip
async def test_what_an_older_server_has_not_is_not_declared(
    engine: SglangEngine, stub: SglangStub, field: str, lacking: Capability
) -> None:
    """A field that it does not know is taken without a word, so its own description is read."""
    setattr(stub, field, False)

    assert not (await engine.describe()).facts.can(lacking)


@pytest.mark.parametrize(
    ("keys", "ours", "can"),
    [
        (("", ""), ("", ""), True),
        (("k", ""), ("k", ""), True),
        (("", "a"), ("a", ""), True),
        (("k", "a"), ("k", "a"), True),
        (("k", "a"), ("k", ""), False),
        (("", "a"), ("", ""), False),
    ],
)
async def test_administration_has_a_key_of_its_own(
    stub: SglangStub, keys: tuple[str, str], ours: tuple[str, str], can: bool
) -> None:
    """With both keys set it takes only the second; without it, the agent's flag is named."""
    stub.api_key, stub.admin_key = keys
    async with stub.serving() as url, SglangEngine(url, key=ours[0], admin_key=ours[1]) as engine:
        facts = (await engine.describe()).facts
        refused = None if can else await _refused(engine.load(NAME, PATH))

    assert can == facts.can(Capability.ADAPTERS) == facts.can(Capability.FLUSH)
    assert can or (refused and "--engine-admin-key-file" in refused.hint)
    assert can or not any(lack.needs_restart for lack in facts.lacks
                          if lack.capability is Capability.ADAPTERS)  # fmt: skip


async def test_wrong_key_names_the_file(stub: SglangStub) -> None:
    """Nothing can be read without it."""
    stub.api_key = "k"
    async with stub.serving() as url, SglangEngine(url, key="other") as engine:
        refused = await _refused(engine.describe())

    assert "--engine-key-file" in refused.hint


async def _refused(call: Awaitable[Any]) -> PermanentEngineError:
    with pytest.raises(PermanentEngineError) as refused:
        await call
    return refused.value


# -- adapters ------------------------------------------------------------------------------------


async def test_adapter_is_asked_for_with_its_base(engine: SglangEngine, stub: SglangStub) -> None:
    """By its name alone the base would answer, and nobody would notice: the probe would."""
    await engine.load(NAME, PATH)
    seen = await engine.describe()
    by_adapter, by_base = [await engine.answer(name, QUESTIONS[0]) for name in (NAME, "base")]

    assert by_adapter.logprobs != by_base.logprobs
    assert ("base:support@1", "base") == (seen.model(NAME), seen.model(""))


async def test_gateway_is_told_the_whole_name(stub: SglangStub, tmp_path: Path) -> None:
    """And what it has in flight counts for the adapter all the same."""
    releases = make_releases(tmp_path, 1)
    async with stub.serving() as url, SglangEngine(url) as engine:
        node = Node(tmp_path, engine)  # type: ignore[arg-type]
        node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))
        await node.settle(lambda: node.phase(1) is NodePhase.READY)

    assert node.link.told
    (ready,) = node.link.told.ready
    assert (SERVICE, f"base:{releases[1].engine_name}") == (ready.service, ready.model)


async def test_unloaded_name_comes_back_with_a_request_and_goes_again(
    engine: SglangEngine, stub: SglangStub
) -> None:
    """Unloading is no revoking; the agent sees what is listed, and unloads again."""
    await engine.load(NAME, PATH)
    await engine.unload(NAME)
    await engine.answer(NAME, QUESTIONS[0])
    came_back = await engine.describe()
    await engine.unload(NAME)

    assert came_back.has(NAME, PATH)
    assert () == (await engine.describe()).adapters


async def test_unload_that_waits_for_requests_is_tried_again(
    engine: SglangEngine, stub: SglangStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long answer is no fault of the engine; the name is gone already."""
    monkeypatch.setattr(sglang, "UNLOAD_S", 0.2)
    await engine.load(NAME, PATH)
    await stub.begin(NAME)
    with pytest.raises(TemporaryEngineError, match="has 1 requests"):
        await engine.unload(NAME)
    await stub.end(NAME)
    await engine.unload(NAME)

    assert () == (await engine.describe()).adapters


async def test_unload_that_hangs_though_nothing_runs_makes_the_engine_suspect(
    engine: SglangEngine, stub: SglangStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lock that every other load needs, for ever."""
    monkeypatch.setattr(sglang, "UNLOAD_S", 0.2)
    await engine.load(NAME, PATH)
    stub.broken["/unload_lora_adapter"] = never

    with pytest.raises(SuspectEngineError, match="hangs while it unloads support@1"):
        await engine.unload(NAME)


async def test_rest_of_an_unload_that_failed_is_ended_before_a_load(
    engine: SglangEngine, stub: SglangStub
) -> None:
    """It refuses the name until then."""
    pending = [True]

    async def load() -> web.Response | None:
        if not pending:
            return None
        body = {"success": False, "error_message": "has an incomplete unload.",
                "loaded_adapters": None}  # fmt: skip
        return web.json_response(body, status=400)

    async def unload() -> web.Response | None:
        pending.clear()
        return None

    stub.broken |= {"/load_lora_adapter": load, "/unload_lora_adapter": unload}
    await engine.load(NAME, PATH)

    assert (await engine.describe()).has(NAME, PATH)


async def test_name_of_another_path_is_not_unloaded_for_a_new_one(
    engine: SglangEngine, stub: SglangStub
) -> None:
    """Requests may be on it."""
    await engine.load(NAME, PATH)
    await _refused(engine.load(NAME, "/adapters/2"))

    assert "/unload_lora_adapter" not in stub.asked


@respx.mock
async def test_load_that_says_yes_late_is_found_in_the_list() -> None:
    """The answer was lost, and the retry is refused as a duplicate: the list decides."""
    _serve(respx.mock)
    listed: list[bool] = []
    respx.post("http://e/load_lora_adapter").mock(side_effect=lambda asked: _load(asked, listed))
    respx.get("http://e/v1/models").mock(side_effect=lambda _: _models(listed))
    async with SglangEngine("http://e") as engine:
        await engine.load(NAME, PATH)

    assert [True] == listed


def _load(asked: httpx.Request, listed: list[bool]) -> httpx.Response:
    if json.loads(asked.content):
        listed.append(True)
    said = f"Failed to load LoRA adapter {NAME} because it is already loaded"
    body = {"success": False, "error_message": said, "loaded_adapters": {NAME: PATH}}
    return httpx.Response(400, json=body)


def _models(listed: list[bool]) -> httpx.Response:
    cards = [{"id": "base", "object": "model", "root": "base", "parent": None}]
    if listed:
        cards.append({"id": NAME, "object": "model", "root": PATH, "parent": "base"})
    return httpx.Response(200, json={"object": "list", "data": cards})


def _serve(router: respx.MockRouter) -> None:
    """Answer what is read of a server, as 0.5.23 does, in short."""
    for path, body in {
        "/server_info": {"model_path": "/m", "enable_lora": True, "random_seed": 1,
                         "version": "0.5.23"},
        "/model_info": {"model_path": "/m", "served_model_name": "base",
                        "weight_version": "default"},
        "/v1/loads": {"loads": [{"dp_rank": 0, "num_running_reqs": 0, "token_usage": 0.0}]},
        "/openapi.json": {"openapi": "3.1.0"},
    }.items():  # fmt: skip
        router.get(f"http://e{path}").mock(return_value=httpx.Response(200, json=body))


@respx.mock
async def test_load_that_breaks_in_the_server_is_tried_again() -> None:
    """500 is a fault of the moment, whatever it says."""
    _serve(respx.mock)
    respx.get("http://e/v1/models").mock(side_effect=lambda _: _models([]))
    respx.post("http://e/load_lora_adapter", json={}).mock(return_value=httpx.Response(400))
    respx.post("http://e/load_lora_adapter").mock(return_value=httpx.Response(500, text="?"))
    async with SglangEngine("http://e") as engine:
        with pytest.raises(TemporaryEngineError):
            await engine.load(NAME, PATH)


# -- flush ---------------------------------------------------------------------------------------


async def test_busy_engine_is_flushed_later(engine: SglangEngine, stub: SglangStub) -> None:
    """It waited for a moment without requests; 400 says that none came."""
    await stub.begin()
    with pytest.raises(TemporaryEngineError, match="never idle within 20 s"):
        await engine.flush()
    await stub.end()
    await engine.flush()


@respx.mock
async def test_flush_asks_the_engine_to_wait() -> None:
    """Its own parameter, in seconds."""
    _serve(respx.mock)
    respx.post("http://e/load_lora_adapter").mock(return_value=httpx.Response(400))
    flush = respx.post("http://e/flush_cache", params={"timeout": "20"}).mock(
        return_value=httpx.Response(200, text="Cache flushed.\n")
    )
    async with SglangEngine("http://e") as engine:
        await engine.flush()

    assert flush.called


# -- the base ------------------------------------------------------------------------------------


async def test_base_is_changed_in_this_order(
    engine: SglangEngine, stub: SglangStub, base: str
) -> None:
    """Noted, held, updated, flushed, let go, noted."""
    await engine.describe()
    stub.asked.clear()
    await engine.swap_base(base)

    assert CHANGES == stub.asked
    assert (base, False) == (stub.model_path, stub.is_paused)
    assert stub.weight_version.startswith("vctl-base/")


async def test_running_requests_end_on_the_old_base(
    engine: SglangEngine, stub: SglangStub, base: str
) -> None:
    """Nothing is begun before: what is taken back half-way would go on with the new weights."""
    await stub.begin()
    change = asyncio.create_task(engine.swap_base(base))
    while "/v1/loads" not in stub.read:  # it has looked
        await asyncio.sleep(0.01)
    before = (stub.model_path, stub.is_paused, stub.weight_version)
    await stub.end()
    await change

    assert (FIRST_BASE, False, "default") == before
    assert base == stub.model_path


async def test_requests_that_do_not_end_leave_all_as_it_was(
    engine: SglangEngine, stub: SglangStub, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent tries again."""
    monkeypatch.setattr(sglang_base, "FINISH_S", 0.1)
    await stub.begin()
    before = await engine.describe()
    with pytest.raises(TemporaryEngineError, match="requests still run"):
        await engine.swap_base(base)

    assert before == await engine.describe()


async def test_weights_that_are_there_with_an_old_cache_are_flushed(
    engine: SglangEngine, stub: SglangStub, base: str
) -> None:
    """400, as where nothing was updated: so the cache is flushed and the update made again."""
    stub.unflushed = 1
    await engine.swap_base(base)

    assert (base, False) == ((await engine.describe()).base_path, stub.is_paused)
    assert 2 == stub.asked.count("/update_weights_from_disk") == stub.asked.count("/flush_cache")


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/update_weights_from_disk", answers(400, {"success": False, "message": "Failed"})),
        ("/update_weights_from_disk", answers(500)),
        ("/update_weights_from_disk", answers(200, {"success": True, "message": "did nothing"})),
        ("/update_weights_from_disk", never),
        ("/flush_cache", answers(400)),
    ],
)
async def test_doubt_about_the_weights_makes_the_engine_suspect(
    engine: SglangEngine,
    stub: SglangStub,
    base: str,
    path: str,
    answer: Callable[[], Awaitable[web.Response | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not let go: whoever waits, waits for the restart. And it is still the same run."""
    monkeypatch.setattr(sglang_base, "UPDATE_S", 0.2)
    before = await engine.describe()
    stub.broken[path] = answer
    with pytest.raises(SuspectEngineError, match="not known which weights"):
        await engine.swap_base(base)
    after = await engine.describe()

    assert "/continue_generation" not in stub.asked
    assert stub.is_paused
    assert (before.incarnation, UNFINISHED) == (after.incarnation, after.base_path)


async def test_suspect_run_serves_nothing_until_the_restart(
    engine: SglangEngine, stub: SglangStub, base: str, tmp_path: Path
) -> None:
    """What is condemned is the run, under whatever base."""
    watch = EngineWatch(engine, lambda: None, suspect=Suspect(tmp_path / "suspect.json"))
    await watch.refresh()
    run = watch.incarnation
    stub.broken["/update_weights_from_disk"] = answers(500)
    with pytest.raises(SuspectEngineError):
        await engine.swap_base(base)
    watch.condemn(run, "doubt")
    await watch.refresh()
    condemned = watch.latest
    stub.restart()
    await watch.refresh()

    assert condemned
    assert watch.latest
    assert ("doubt", "") == (condemned.problem, watch.latest.problem)


@pytest.mark.parametrize("n", range(len(CHANGES)))
async def test_change_that_an_agent_did_not_end_is_begun_again(
    stub: SglangStub, base: str, n: int
) -> None:
    """After each of its calls: the next agent is told of no base for certain, and puts it right."""
    async with stub.serving() as url, SglangEngine(url) as first:
        await first.describe()
        stub.asked.clear()
        stub.die_after = n + 1
        with pytest.raises(EngineError):
            await first.swap_base(base)
        stub.die_after = 0
        async with SglangEngine(url) as second:
            between = await second.describe()
            await second.swap_base(base)
            after = await second.describe()

    is_done = n == len(CHANGES) - 1
    assert (base if is_done else UNFINISHED) == between.base_path
    assert (base, False, ()) == (after.base_path, stub.is_paused, after.adapters)


async def test_pause_that_fails_is_undone(
    engine: SglangEngine, stub: SglangStub, base: str
) -> None:
    """The weights were not touched."""
    before = await engine.describe()
    stub.broken["/pause_generation"] = answers(500)
    with pytest.raises(TemporaryEngineError):
        await engine.swap_base(base)

    assert (before, False) == (await engine.describe(), stub.is_paused)


async def test_path_without_a_model_is_refused_before_anything_is_done(
    engine: SglangEngine, stub: SglangStub, tmp_path: Path
) -> None:
    """Whether it is one can be seen from outside."""
    before = await engine.describe()
    refused = await _refused(engine.swap_base(str(tmp_path)))

    assert "no config.json" in refused.message
    assert not isinstance(refused, SuspectEngineError)
    assert before == await engine.describe()


async def test_adapters_go_with_their_base(
    engine: SglangEngine, stub: SglangStub, base: str
) -> None:
    """SGLang itself would keep them, on weights that they were not made for."""
    await engine.load(NAME, PATH)
    await engine.swap_base(base)

    assert {} == stub.adapters


async def test_weights_that_somebody_else_put_there_are_seen(
    engine: SglangEngine, stub: SglangStub
) -> None:
    """It is another base, and another run."""
    before = await engine.describe()
    stub.model_path, stub.weight_version = "/elsewhere", "step-7"
    after = await engine.describe()

    assert "/elsewhere" == after.base_path
    assert before.incarnation != after.incarnation


# -- runs ----------------------------------------------------------------------------------------


async def test_restart_with_the_same_seed_is_told_by_its_times(
    engine: SglangEngine, stub: SglangStub
) -> None:
    """Where the operator fixed the seed."""
    before = await engine.describe()
    seed = stub.seed
    stub.restart()
    stub.seed = seed

    assert before.incarnation != (await engine.describe()).incarnation


async def test_what_can_be_done_is_asked_once_a_start(
    engine: SglangEngine, stub: SglangStub
) -> None:
    """A look a second must not go to the administration each time."""
    await engine.describe()
    await engine.describe()
    once = stub.asked.count("/load_lora_adapter")
    stub.restart()
    await engine.describe()

    assert (1, 2) == (once, stub.asked.count("/load_lora_adapter"))


async def test_scheduler_that_hangs_is_seen(
    engine: SglangEngine, stub: SglangStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its front end would go on answering by itself."""
    monkeypatch.setattr(sglang, "DESCRIBE_S", 0.2)
    stub.broken["/server_info"] = never

    with pytest.raises(TemporaryEngineError):
        await engine.describe()
