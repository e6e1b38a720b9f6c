"""What the agent relies on, whatever the engine: one suite for the fake and for a real process."""

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from vctl_agent.engines.fake import FakeEngine
from vctl_agent.engines.port import Engine, Question, Resident
from vctl_agent.engines.proving import QUESTIONS, Prover
from vctl_agent.engines.torch_client import TorchEngine
from vctl_agent.probed import Probed
from vctl_plans.capability import Capability
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError

ENGINE = Path(sys.executable).with_name("vctl-engine")


@dataclass(frozen=True)
class Served:
    """A real engine's address, and adapters that fit its base."""

    url: str
    first: str
    second: str
    broken: str
    other_base: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("engine")
    base, first, second = (folder / name for name in ("base", "first", "second"))
    _run("make-base", base, "--seed", "1")
    other_base = folder / "other"
    _run("make-base", other_base, "--seed", "2")
    _run("make-adapter", first, "--base", base, "--seed", "1")
    _run("make-adapter", second, "--base", base, "--seed", "2")
    broken = folder / "broken"
    broken.mkdir()
    for file in first.iterdir():
        (broken / file.name).write_bytes(file.read_bytes()[:-5])
    port_file = folder / "port"
    command = [ENGINE, "serve", "--base", base, "--port", "0", "--port-file", port_file]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not port_file.exists():
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        url = f"http://127.0.0.1:{port_file.read_text().strip()}"
        yield Served(url, str(first), str(second), str(broken), str(other_base))
    finally:
        process.terminate()
        process.wait(timeout=20)


def _run(verb: str, *arguments: object) -> None:
    subprocess.run([ENGINE, verb, *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(params=["fake", pytest.param("torch", marks=pytest.mark.torch)])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    """An engine that holds nothing."""
    if request.param == "fake":
        yield FakeEngine()
        return
    served: Served = request.getfixturevalue("served")
    async with TorchEngine(served.url) as made:
        yield made
        await made.swap_base("")
        for resident in (await made.describe()).adapters:
            await made.unload(resident.name)


@pytest.fixture
def prover(engine: Engine, tmp_path: Path) -> Prover:
    """Nothing was probed in this run of the engine, as far as is known here."""
    return Prover(engine, Probed(tmp_path / "probed.json"))


@pytest.fixture
def first(request: pytest.FixtureRequest, engine: Engine) -> str:
    return _path(request, engine, "first")


@pytest.fixture
def second(request: pytest.FixtureRequest, engine: Engine) -> str:
    return _path(request, engine, "second")


def _path(request: pytest.FixtureRequest, engine: Engine, name: str) -> str:
    if isinstance(engine, FakeEngine):
        return f"/{name}"
    return str(getattr(request.getfixturevalue("served"), name))


async def test_loaded_adapter_is_listed_with_its_path(engine: Engine, first: str) -> None:
    """Name and path, so that the agent can tell whose bytes they are."""
    await engine.load("support@1", first)

    assert (Resident("support@1", first),) == (await engine.describe()).adapters


async def test_loading_again_is_no_error(engine: Engine, first: str) -> None:
    """A retry after a lost answer is harmless."""
    await engine.load("support@1", first)
    await engine.load("support@1", first)

    assert (await engine.describe()).has("support@1", first)


async def test_two_adapters_live_side_by_side(engine: Engine, first: str, second: str) -> None:
    """So that a switch needs no gap."""
    await engine.load("support@1", first)
    await engine.load("support@2", second)

    assert 2 == len((await engine.describe()).adapters)


async def test_unloaded_adapter_is_gone_and_may_be_unloaded_again(
    engine: Engine, first: str
) -> None:
    """What is not there is no error."""
    await engine.load("support@1", first)
    await engine.unload("support@1")
    await engine.unload("support@1")

    assert () == (await engine.describe()).adapters


async def test_adapter_that_is_itself_passes_the_probe(
    engine: Engine, prover: Prover, first: str
) -> None:
    """Twice: the second time its prompt is in the cache."""
    await engine.load("support@1", first)
    await prover.prove("support@1")
    await prover.prove("support@1")


async def test_answer_tells_what_the_facts_promise(engine: Engine, first: str) -> None:
    """One log-probability a token, what came from the cache, and nothing of it under a new salt."""
    await engine.load("support@1", first)
    facts = (await engine.describe()).facts
    question = QUESTIONS[0]
    fresh = await engine.answer("support@1", question, salt="new")
    await engine.answer("support@1", question)
    again = await engine.answer("support@1", question)

    assert facts.can(Capability.LOGPROBS)
    assert question.max_tokens == len(fresh.tokens) == len(fresh.logprobs)
    assert facts.can(Capability.CACHED_TOKENS)
    assert 0 == fresh.cached_tokens
    assert again.cached_tokens
    assert again.prompt_tokens >= again.cached_tokens
    assert (fresh.tokens, fresh.logprobs) == (again.tokens, again.logprobs)


async def test_chat_is_answered_as_a_chat(engine: Engine) -> None:
    """By the base as well, which is asked by its name."""
    base = (await engine.describe()).facts.base
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"})
    asked = Question(messages=messages, max_tokens=4, ignore_eos=True)
    answer = await engine.answer(base, asked)

    assert 4 == len(answer.tokens) == len(answer.logprobs)


async def test_incarnation_stays_while_the_process_lives(engine: Engine) -> None:
    """It is what tells a restart."""
    before = await engine.describe()

    assert before.incarnation
    assert before.incarnation == (await engine.describe()).incarnation


@pytest.fixture
def other_base(request: pytest.FixtureRequest, engine: Engine) -> str:
    return _path(request, engine, "other_base")


async def test_swapped_base_leaves_nothing_of_the_old_one(
    engine: Engine, prover: Prover, first: str, other_base: str
) -> None:
    """No adapter and nothing cached; and it is told as a start of the engine is."""
    await engine.load("support@1", first)
    await prover.prove("support@1")
    before = await engine.describe()
    await engine.swap_base(other_base)
    after = await engine.describe()

    assert before.facts.can(Capability.SWAP_BASE)
    assert ("", other_base) == (before.base_path, after.base_path)
    assert before.cached
    assert ((), 0) == (after.adapters, after.cached)
    assert before.incarnation != after.incarnation


async def test_swapping_back_takes_the_base_that_it_was_started_with(
    engine: Engine, prover: Prover, first: str, other_base: str
) -> None:
    """Its adapters load again; to swap to what is there changes nothing."""
    await engine.swap_base(other_base)
    await engine.swap_base("")
    there = await engine.describe()
    await engine.swap_base("")
    await engine.load("support@1", first)
    await prover.prove("support@1")

    assert "" == there.base_path
    assert there.incarnation == (await engine.describe()).incarnation


@pytest.mark.torch
async def test_base_that_cannot_be_loaded_changes_nothing(served: Served) -> None:
    """It is refused for good, and the old one serves on with its adapters."""
    async with TorchEngine(served.url) as engine:
        await engine.load("support@1", served.first)
        before = await engine.describe()
        with pytest.raises(PermanentEngineError):
            await engine.swap_base(served.first)

        assert before == await engine.describe()
        await engine.unload("support@1")


@pytest.mark.torch
async def test_broken_adapter_is_refused_for_good(served: Served) -> None:
    """And nothing of it stays."""
    async with TorchEngine(served.url) as engine:
        with pytest.raises(PermanentEngineError):
            await engine.load("support@9", served.broken)

        assert "support@9" not in {r.name for r in (await engine.describe()).adapters}


@pytest.mark.torch
async def test_name_of_another_path_is_refused(served: Served) -> None:
    """A name is an identity: it is never given other bytes."""
    async with TorchEngine(served.url) as engine:
        await engine.load("support@1", served.first)
        with pytest.raises(PermanentEngineError):
            await engine.load("support@1", served.second)
        await engine.unload("support@1")


@pytest.mark.torch
async def test_probe_of_what_is_not_loaded_fails(served: Served, tmp_path: Path) -> None:
    """For good, since the agent thought that it was there."""
    async with TorchEngine(served.url) as engine:
        with pytest.raises(PermanentEngineError):
            await Prover(engine, Probed(tmp_path / "probed.json")).prove("support@7")


async def test_engine_that_is_away_is_a_temporary_failure() -> None:
    """By its type, so that the agent tries again."""
    async with TorchEngine("http://127.0.0.1:1") as engine:
        with pytest.raises(TemporaryEngineError):
            await engine.describe()


async def test_program_that_is_no_engine_is_named(aiohttp_port: int) -> None:
    """Something else listening there is a mistake of the settings."""
    async with TorchEngine(f"http://127.0.0.1:{aiohttp_port}") as engine:
        with pytest.raises(PermanentEngineError, match="does not answer as vctl's engine"):
            await engine.describe()


@pytest.fixture
async def aiohttp_port() -> AsyncIterator[int]:
    """A server that answers everything with other JSON."""
    from aiohttp import web

    app = web.Application()

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"hello": "world"})

    app.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()
