"""What the agent relies on, whatever the engine: one suite for every kind in `kinds.KINDS`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.agent.support import SERVICE, Node, a_fleet, a_rollout, make_releases
from tests.engines.kinds import PARAMS, UnderTest, made, torch_process
from vctl_agent.engines.epochs import EpochFile, Epochs
from vctl_agent.engines.port import Engine, Question, Resident
from vctl_agent.engines.proving import QUESTIONS, Prover
from vctl_agent.engines.torch_client import TorchEngine
from vctl_agent.probed import Probed
from vctl_plans.capability import Capability
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError
from vctl_plans.phase import NodePhase

__all__ = ["torch_process"]  # a fixture, which only one kind asks for

NAME = "support@1"


@pytest.fixture(params=PARAMS)
async def under(request: pytest.FixtureRequest) -> AsyncIterator[UnderTest]:
    """An engine that holds nothing."""
    async with made(request, request.param) as one:
        yield one


@pytest.fixture
def engine(under: UnderTest) -> Engine:
    return under.engine


@pytest.fixture
def prover(engine: Engine, tmp_path: Path) -> Prover:
    """Nothing was probed in this run of the engine, as far as is known here."""
    return Prover(engine, Probed(tmp_path / "probed.json"))


async def names(engine: Engine) -> set[str]:
    return {resident.name for resident in (await engine.describe()).adapters}


async def test_loaded_adapter_is_listed_with_its_path(engine: Engine, under: UnderTest) -> None:
    """Name and path, so that the agent can tell whose bytes they are."""
    await engine.load(NAME, under.first)

    assert (Resident(NAME, under.first),) == (await engine.describe()).adapters


async def test_loading_again_is_no_error(engine: Engine, under: UnderTest) -> None:
    """A retry after a lost answer is harmless."""
    await engine.load(NAME, under.first)
    await engine.load(NAME, under.first)

    assert (await engine.describe()).has(NAME, under.first)


async def test_two_adapters_live_side_by_side(engine: Engine, under: UnderTest) -> None:
    """So that a switch needs no gap."""
    await engine.load(NAME, under.first)
    await engine.load("support@2", under.second)

    assert {NAME, "support@2"} == await names(engine)


async def test_unloaded_adapter_is_gone_and_may_be_unloaded_again(
    engine: Engine, under: UnderTest
) -> None:
    """What is not there is no error."""
    await engine.load(NAME, under.first)
    await engine.unload(NAME)
    await engine.unload(NAME)

    assert set() == await names(engine)


async def test_unloaded_adapter_may_be_loaded_again(engine: Engine, under: UnderTest) -> None:
    """A rollback brings a name back, with the bytes that it had."""
    await engine.load(NAME, under.first)
    await engine.unload(NAME)
    await engine.load(NAME, under.first)

    assert (await engine.describe()).has(NAME, under.first)


async def test_adapter_that_is_itself_passes_the_probe(
    engine: Engine, under: UnderTest, prover: Prover
) -> None:
    """Twice: the second time its prompt is in the cache."""
    await engine.load(NAME, under.first)
    first = await prover.prove(NAME)

    assert (True, True) == (bool(first), bool(await prover.prove(NAME))), "both say what was found"


async def test_probe_of_what_is_not_loaded_fails(engine: Engine, prover: Prover) -> None:
    """For good, since the agent thought that it was there."""
    await _needs(engine, Capability.LOGPROBS)
    with pytest.raises(PermanentEngineError):
        await prover.prove("support@7")


async def test_answer_tells_what_the_facts_promise(engine: Engine, under: UnderTest) -> None:
    """One log-probability a token, what came from the cache, and nothing of it under a new salt."""
    await _needs(engine, Capability.LOGPROBS)
    await engine.load(NAME, under.first)
    facts = (await engine.describe()).facts
    question = QUESTIONS[0]
    fresh = await engine.answer(NAME, question, salt="new")
    await engine.answer(NAME, question)
    again = await engine.answer(NAME, question)

    assert question.max_tokens == len(fresh.tokens) == len(fresh.logprobs)
    assert facts.can(Capability.CACHED_TOKENS)
    assert 0 == fresh.cached_tokens
    assert again.cached_tokens
    assert again.prompt_tokens >= again.cached_tokens
    assert fresh.tokens == again.tokens


async def test_chat_is_answered_as_a_chat(engine: Engine) -> None:
    """By the base as well, which is asked by its name."""
    await _needs(engine, Capability.LOGPROBS)
    base = (await engine.describe()).facts.base
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"})
    asked = Question(messages=messages, max_tokens=4, ignore_eos=True)
    answer = await engine.answer(base, asked)

    assert 4 == len(answer.tokens) == len(answer.logprobs)


async def _needs(engine: Engine, capability: Capability) -> None:
    if not (await engine.describe()).facts.can(capability):
        pytest.skip(f"this engine has no {capability} here")


async def test_broken_adapter_is_refused_for_good(engine: Engine, under: UnderTest) -> None:
    """And nothing of it stays."""
    with pytest.raises(PermanentEngineError):
        await engine.load("support@9", under.broken)

    assert set() == await names(engine)


async def test_name_of_another_path_is_refused(engine: Engine, under: UnderTest) -> None:
    """A name is an identity: by `load` it is never given other bytes."""
    await engine.load(NAME, under.first)
    with pytest.raises(PermanentEngineError):
        await engine.load(NAME, under.second)

    assert (await engine.describe()).has(NAME, under.first)


async def test_incarnation_stays_while_the_process_lives(engine: Engine, under: UnderTest) -> None:
    """It is what tells a restart; what is loaded changes nothing about it."""
    before = await engine.describe()
    await engine.load(NAME, under.first)

    assert before.incarnation
    assert before.incarnation == (await engine.describe()).incarnation


async def test_engine_that_started_anew_says_so_and_holds_nothing(
    engine: Engine, under: UnderTest
) -> None:
    """So that the agent loads everything again."""
    await engine.load(NAME, under.first)
    before = await engine.describe()
    await under.restart()
    after = await engine.describe()

    assert () == after.adapters
    assert before.incarnation != after.incarnation


async def test_engine_that_hangs_is_a_temporary_failure(
    engine: Engine, under: UnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by a deadline, and never waited for without end."""
    await under.hang(monkeypatch)

    with pytest.raises(TemporaryEngineError):
        await engine.describe()


async def test_yes_that_was_none_is_noticed(
    engine: Engine, under: UnderTest, tmp_path: Path
) -> None:
    """The engine's list counts, not its answer: nothing gets ready, and all is tried again."""
    await under.lie()
    releases = make_releases(tmp_path, 1)
    node = Node(tmp_path, engine)  # type: ignore[arg-type]
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    said = node.reports[-1].release(SERVICE, 1)
    assert said
    assert (False, True) == (said.is_permanent, "does not list it" in said.reason)


async def test_facts_name_every_capability_once(engine: Engine) -> None:
    """It can do a thing, or lacks it: nothing is left to guess."""
    facts = (await engine.describe()).facts
    lacking = [lack.capability for lack in facts.lacks]

    assert sorted(Capability) == sorted([*facts.capabilities, *lacking])


@pytest.mark.parametrize("capability", [Capability.ADAPTERS, Capability.SWAP_BASE,
                                        Capability.FLUSH, Capability.REPLACE])  # fmt: skip
async def test_what_it_was_started_without_is_refused_with_the_remedy(
    engine: Engine, under: UnderTest, capability: Capability
) -> None:
    """For good, and nothing is done."""
    await under.lack(capability)
    before = await engine.describe()
    with pytest.raises(PermanentEngineError, match=rf"\({capability}\)") as refused:
        await _ask(engine, capability, under)

    assert not before.facts.can(capability)
    assert before.facts.remedy(capability) in refused.value.hint
    assert before == await engine.describe()


async def _ask(engine: Engine, capability: Capability, under: UnderTest) -> None:
    if capability is Capability.ADAPTERS:
        await engine.load(NAME, under.first)
    elif capability is Capability.SWAP_BASE:
        await engine.swap_base(under.other_base)
    elif capability is Capability.FLUSH:
        await engine.flush()
    else:
        await engine.replace(NAME, under.first)


async def test_flushed_cache_is_empty_and_adapters_stay(
    engine: Engine, under: UnderTest, prover: Prover
) -> None:
    """Where it is told how much is cached."""
    await engine.load(NAME, under.first)
    await prover.prove(NAME)
    before = await engine.describe()
    await engine.flush()
    after = await engine.describe()

    assert before.facts.can(Capability.FLUSH)
    assert before.cached or before.cached is None
    assert not after.cached
    assert (before.adapters, before.incarnation) == (after.adapters, after.incarnation)


async def test_whatever_drops_the_caches_has_proofs_asked_for_anew(
    engine: Engine, under: UnderTest, tmp_path: Path
) -> None:
    """By a flush they are due, though they count; by another base they are void."""
    probed = Probed(tmp_path / "probed.json")
    counted = Epochs(engine, probed, EpochFile(tmp_path / "epoch.json"))
    prover = Prover(counted, probed)
    await counted.load(NAME, under.first)
    before = await counted.describe()
    run = before.incarnation
    probed.add(run, NAME, await prover.prove(NAME))
    assert probed.is_current(run, NAME)
    await counted.flush()
    flushed = await counted.describe()
    assert (True, False) == (probed.has(run, NAME), probed.is_current(run, NAME))
    probed.add(run, NAME, await prover.prove(NAME))
    assert probed.is_current(run, NAME)
    await counted.swap_base(under.other_base)
    swapped = await counted.describe()

    assert not probed.has(swapped.incarnation, NAME)
    assert [1, 2, 3] == [each.cache_epoch for each in (before, flushed, swapped)]


async def test_replaced_adapter_answers_for_itself(
    engine: Engine, under: UnderTest, prover: Prover
) -> None:
    """Under a name that stays; an engine that cannot do that says so, and changes nothing."""
    await engine.load(NAME, under.first)
    await prover.prove(NAME)
    before = await engine.describe()
    if not before.facts.can(Capability.REPLACE):
        with pytest.raises(PermanentEngineError, match="replace"):
            await engine.replace(NAME, under.second)
        assert before == await engine.describe()
        return
    await engine.replace(NAME, under.second)
    after = await engine.describe()
    await prover.prove(NAME)

    assert (Resident(NAME, under.second),) == after.adapters
    assert before.incarnation == after.incarnation


async def test_swapped_base_leaves_nothing_of_the_old_one(
    engine: Engine, under: UnderTest, prover: Prover
) -> None:
    """No adapter and nothing cached; and it is told as a start of the engine is."""
    await engine.load(NAME, under.first)
    await prover.prove(NAME)
    before = await engine.describe()
    await engine.swap_base(under.other_base)
    after = await engine.describe()

    assert before.facts.can(Capability.SWAP_BASE)
    assert ("", under.other_base) == (before.base_path, after.base_path)
    assert before.cached or before.cached is None
    assert ((), before.cached and 0) == (after.adapters, after.cached)
    assert before.incarnation != after.incarnation


async def test_swapping_back_takes_the_base_that_it_was_started_with(
    engine: Engine, under: UnderTest, prover: Prover
) -> None:
    """Its adapters load again; to swap to what is there changes nothing."""
    first = await engine.describe()
    await engine.swap_base(under.other_base)
    await engine.swap_base("")
    there = await engine.describe()
    await engine.swap_base("")
    await engine.load(NAME, under.first)
    await prover.prove(NAME)

    assert "" == there.base_path
    assert there.incarnation == (await engine.describe()).incarnation
    assert there.incarnation != first.incarnation


@pytest.mark.torch
async def test_base_that_cannot_be_loaded_changes_nothing(request: pytest.FixtureRequest) -> None:
    """It is refused for good, and the old one serves on with its adapters."""
    async with made(request, "torch") as under:
        engine = under.engine
        await engine.load(NAME, under.first)
        before = await engine.describe()
        with pytest.raises(PermanentEngineError):
            await engine.swap_base(under.first)

        assert before == await engine.describe()


async def test_engine_that_is_away_is_a_temporary_failure() -> None:
    """By its type, so that the agent tries again."""
    async with TorchEngine("http://127.0.0.1:1") as engine:
        with pytest.raises(TemporaryEngineError):
            await engine.describe()


async def test_program_that_is_no_engine_is_named(other_server: str) -> None:
    """Something else listening there is a mistake of the settings."""
    async with TorchEngine(other_server) as engine:
        with pytest.raises(PermanentEngineError, match="does not answer as vctl's engine"):
            await engine.describe()


@pytest.fixture
async def other_server() -> AsyncIterator[str]:
    """A server that answers everything with other JSON."""
    app = web.Application()

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"hello": "world"})

    app.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()
