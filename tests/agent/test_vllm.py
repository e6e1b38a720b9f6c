"""The adapter for vLLM, on a server that goes wrong on demand; `tests/vllm` has a real one."""

from collections.abc import AsyncIterator

import pytest

from tests.vllm.standin import DEV, ROOT, StandIn, serving
from vctl_agent.engines.vllm import changing
from vctl_agent.engines.vllm.client import VllmEngine
from vctl_agent.engines.vllm.stamp import Doing, Stamp, new, read
from vctl_plans.capability import Capability, Lack
from vctl_plans.errors import (
    EngineError,
    PermanentEngineError,
    SuspectEngineError,
    TemporaryEngineError,
)

NEW_BASE = "/artifacts/new"


@pytest.fixture
def server() -> StandIn:
    return StandIn()


@pytest.fixture
async def engine(server: StandIn) -> AsyncIterator[VllmEngine]:
    async with serving(server) as url, VllmEngine(url) as made:
        yield made


def lack(capability: Capability, remedy: str) -> Lack:
    return Lack(capability=capability, remedy=remedy)


# -- what it can do ----------------------------------------------------------------------------


async def test_engine_with_everything_lacks_nothing(engine: VllmEngine) -> None:
    """And its slots are told."""
    facts = (await engine.describe()).facts

    assert () == facts.lacks
    assert set(Capability) == set(facts.capabilities)
    assert (2, 4, 8) == (facts.max_adapters, facts.max_resident, facts.max_rank)


async def test_engine_without_development_mode_cannot_be_changed(
    engine: VllmEngine, server: StandIn
) -> None:
    """One variable gives all three; its slots are known once a request has named an adapter."""
    server.missing = set(DEV)
    facts = (await engine.describe()).facts
    server.metrics.append('vllm:lora_requests_info{max_lora="3"} 1.0')
    later = (await engine.describe()).facts

    assert {
        lack(c, "VLLM_SERVER_DEV_MODE=1")
        for c in (Capability.FLUSH, Capability.REPLACE, Capability.SWAP_BASE)
    } == set(facts.lacks)
    assert (None, 3) == (facts.max_adapters, later.max_adapters)


@pytest.mark.parametrize("is_dev", [True, False])
async def test_engine_without_lora_is_told_both_settings(
    engine: VllmEngine, server: StandIn, is_dev: bool
) -> None:
    """Whether it says so, or only refuses what would be refused anyway."""
    server.lora = None
    server.missing = set() if is_dev else set(DEV)
    facts = (await engine.describe()).facts

    assert "--enable-lora --max-loras 2" == facts.remedy(Capability.ADAPTERS)


async def test_engine_whose_adapters_are_fixed_is_told_the_variable(
    engine: VllmEngine, server: StandIn
) -> None:
    """Without it the routes are not there; nor can a name be given other bytes."""
    server.missing = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}
    facts = (await engine.describe()).facts
    remedy = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"

    assert (lack(Capability.ADAPTERS, remedy), lack(Capability.REPLACE, remedy)) == facts.lacks
    with pytest.raises(PermanentEngineError) as refused:
        await engine.load("support@1", "/v1")
    assert remedy in refused.value.hint


async def test_what_answers_lack_is_named(engine: VllmEngine, server: StandIn) -> None:
    """Each with its flag."""
    server.knows_salts = server.tells_tokens = False
    server.max_logprobs = 0
    server.metrics = []
    facts = (await engine.describe()).facts

    assert {
        lack(Capability.CACHE_SALT, "vLLM 0.32 or newer"),
        lack(Capability.CACHED_TOKENS, "--enable-prompt-tokens-details"),
        lack(Capability.LOGPROBS, "--max-logprobs 1"),
        lack(Capability.LOAD, "no --disable-log-stats"),
    } == set(facts.lacks)


async def test_engine_is_asked_once_in_each_of_its_runs(
    engine: VllmEngine, server: StandIn
) -> None:
    """It answers a token for that."""
    await engine.describe()
    asked = len(server.calls)
    await engine.describe()
    first_run = len(server.calls)
    server.started += 60
    server.tells_tokens = False
    facts = (await engine.describe()).facts

    assert asked == first_run < len(server.calls)
    assert not facts.can(Capability.CACHED_TOKENS)


async def test_engine_that_wants_a_key_is_told_apart(server: StandIn) -> None:
    """From one that is away: no waiting helps."""
    server.key = "sesame"
    async with serving(server) as url:
        async with VllmEngine(url) as stranger:
            with pytest.raises(PermanentEngineError) as refused:
                await stranger.describe()
        async with VllmEngine(url, key="sesame") as known:
            assert "tiny" == (await known.describe()).facts.base

    assert "--engine-key-file" in refused.value.hint


async def test_slots_that_are_not_told_may_be_set(server: StandIn) -> None:
    """By whoever started the engine."""
    server.missing = set(DEV)
    async with serving(server) as url, VllmEngine(url, max_adapters=5) as engine:
        assert 5 == (await engine.describe()).facts.max_adapters


# -- adapters ----------------------------------------------------------------------------------


async def test_refused_adapter_is_judged_by_what_is_listed(
    engine: VllmEngine, server: StandIn
) -> None:
    """A repeated load and a wrong one have one status; only one of them is listed as asked."""
    await engine.load("support@1", "/v1")
    await engine.load("support@1", "/v1")
    with pytest.raises(PermanentEngineError):
        await engine.load("support@1", "/v2")

    assert {"support@1": "/v1"} == server.adapters


async def test_reset_that_did_nothing_is_a_failure(engine: VllmEngine, server: StandIn) -> None:
    """A busy engine says so with a 200."""
    server.is_busy = True

    with pytest.raises(TemporaryEngineError, match="has not dropped"):
        await engine.flush()


# -- another base ------------------------------------------------------------------------------


async def test_swap_is_stamped_flushed_and_resumed_in_order(
    engine: VllmEngine, server: StandIn
) -> None:
    """So that an agent that dies anywhere leaves word, and nothing old is answered."""
    await engine.load("support@1", "/v1")
    before = await engine.describe()
    server.calls.clear()
    await engine.swap_base(NEW_BASE)
    after = await engine.describe()

    stamp = "/update_weight_version"
    assert [
        stamp, "/pause", "/v1/unload_lora_adapter", stamp, "/collective_rpc",
        "/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache",
        stamp, "/resume", stamp,
    ] == server.calls  # fmt: skip
    assert (NEW_BASE, (), "") == (after.base_path, after.adapters, after.problem)
    assert before.incarnation != after.incarnation
    assert not server.is_paused


async def test_first_base_is_named_when_it_comes_back(engine: VllmEngine, server: StandIn) -> None:
    """A vLLM that is told no path reads the last one again."""
    await engine.swap_base(NEW_BASE)
    await engine.swap_base("")

    assert ROOT == server.base
    assert "" == (await engine.describe()).base_path


async def test_drain_that_takes_too_long_leaves_no_pause(
    engine: VllmEngine, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is paused though the call timed out: it is resumed, and keeps its base."""
    monkeypatch.setattr(changing, "DRAIN_S", 0.2)
    await engine.describe()
    server.hangs = {"/pause"}
    with pytest.raises(TemporaryEngineError):
        await engine.swap_base(NEW_BASE)

    assert (False, "default", ROOT) == (server.is_paused, server.version, server.base)
    assert "" == (await engine.describe()).problem


@pytest.mark.parametrize("path", ["/collective_rpc", "/reset_prefix_cache"])
async def test_change_that_breaks_off_makes_the_engine_suspect(
    engine: VllmEngine, server: StandIn, path: str
) -> None:
    """It is not resumed, and says itself that it must serve nothing, to the next agent as well."""
    before = await engine.describe()
    server.statuses = {path: 500}
    with pytest.raises(SuspectEngineError):
        await engine.swap_base(NEW_BASE)
    after = await engine.describe()

    assert server.is_paused
    assert before.incarnation == after.incarnation
    assert "broke off" in after.problem
    assert after.needs_restart


async def test_cache_that_is_not_dropped_makes_the_engine_suspect(
    engine: VllmEngine, server: StandIn
) -> None:
    """Its answers would be of two bases."""
    server.is_busy = True
    with pytest.raises(SuspectEngineError):
        await engine.swap_base(NEW_BASE)

    assert server.is_paused


# -- the same name -----------------------------------------------------------------------------


async def test_replaced_name_has_other_bytes_and_no_cache(
    engine: VllmEngine, server: StandIn
) -> None:
    """All within one pause; the engine's run goes on as it was."""
    await engine.load("support", "/v1")
    before = await engine.describe()
    server.calls.clear()
    await engine.replace("support", "/v2")
    after = await engine.describe()

    held = [c for c in server.calls if c != "/update_weight_version"]
    assert [
        "/pause",
        "/v1/unload_lora_adapter",
        "/v1/load_lora_adapter",
        "/reset_prefix_cache",
    ] == (held[:4])
    assert "/resume" == held[-1]
    assert after.has("support", "/v2")
    assert (before.incarnation, "default", False) == (
        after.incarnation, server.version, server.is_paused,
    )  # fmt: skip


async def test_replacement_that_is_refused_leaves_the_former(
    engine: VllmEngine, server: StandIn
) -> None:
    """And the engine goes on."""
    await engine.load("support", "/v1")
    with pytest.raises(PermanentEngineError):
        await engine.replace("support", "/broken")

    assert {"support": "/v1"} == server.adapters
    assert not server.is_paused


# -- a pause that nobody ends ------------------------------------------------------------------


async def test_pause_of_another_is_reported(engine: VllmEngine, server: StandIn) -> None:
    """Requests would wait without end; the next run of it, or its resume, cures that."""
    await engine.describe()
    server.is_paused = True
    paused = await engine.describe()
    server.is_paused = False

    assert "paused by another" in paused.problem
    assert not paused.needs_restart
    assert "" == (await engine.describe()).problem


async def test_pause_that_an_agent_left_is_ended(engine: VllmEngine, server: StandIn) -> None:
    """It died while the weights were whole; the caches are dropped, for what it did is unknown."""
    held = new(NEW_BASE, Doing.NOTHING)
    server.is_paused, server.version = True, held.but(Doing.PAUSED).text()
    found = await engine.describe()

    assert ("", NEW_BASE, False) == (found.problem, found.base_path, server.is_paused)
    assert held == read(server.version)
    assert "/reset_prefix_cache" in server.calls


async def test_pause_that_cannot_be_ended_is_reported(engine: VllmEngine, server: StandIn) -> None:
    """And tried again at the next look."""
    server.is_paused, server.version = True, Stamp().but(Doing.PAUSED).text()
    server.is_busy = True
    stuck = await engine.describe()
    server.is_busy = False

    assert "left paused" in stuck.problem
    assert "" == (await engine.describe()).problem


async def test_weights_of_another_are_no_base_of_ours(engine: VllmEngine, server: StandIn) -> None:
    """Nor may they be changed by us: somebody else is at it."""
    server.version = "step-100"
    found = await engine.describe()

    assert "step-100" in found.problem
    assert found.base_path
    with pytest.raises(EngineError):
        await engine.swap_base(NEW_BASE)
    assert "/pause" not in server.calls


@pytest.mark.parametrize(
    "stamp",
    [Stamp(), Stamp().but(Doing.PAUSED), new("/a b/c", Doing.CHANGING), new("", Doing.NOTHING)],
)
def test_stamp_reads_as_it_was_written(stamp: Stamp) -> None:
    """Paths may hold spaces."""
    assert stamp == read(stamp.text())


@pytest.mark.parametrize("text", ["", "v7", "vctl/1", "vctl/1 - nothing", "vctl/1 - gone /x"])
def test_version_of_another_is_no_stamp(text: str) -> None:
    """Whatever it looks like."""
    assert read(text) is None
