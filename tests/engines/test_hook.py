"""An engine behind the operator's command: what it is told, and what is made of its answers."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from vctl_agent.engines.hook import HookEngine, open_hook_engine
from vctl_agent.engines.port import Question
from vctl_plans.capability import Capability
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError


def behind(
    script: str, *, timeout_s: float = 20.0, engine_url: str = "http://127.0.0.1:1"
) -> HookEngine:
    """Return the engine behind a line of shell."""
    return open_hook_engine(
        ("/bin/sh", "-c", script),
        engine_url=engine_url,
        timeout_s=timeout_s,
        environment={"PATH": os.environ["PATH"], "VCTL_PASSWORD": "secret"},
    )


def says(**told: Any) -> str:
    return f"echo '{json.dumps(told)}'"


async def test_call_is_one_document(tmp_path: Path) -> None:
    """With the method and its arguments, and nothing of vctl's credentials beside it."""
    told = says(incarnation="1", capabilities=["adapters"])
    script = f"cat >> {tmp_path}/asked; echo >> {tmp_path}/asked; env > {tmp_path}/env; {told}"
    async with behind(script) as engine:
        await engine.load("support@1", "/artifacts/1")

    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert [
        {"v": 1, "method": "describe"},
        {"v": 1, "method": "load", "name": "support@1", "path": "/artifacts/1"},
    ] == asked
    assert "VCTL_ENGINE_URL=http://127.0.0.1:1" in (tmp_path / "env").read_text()
    assert "secret" not in (tmp_path / "env").read_text()


async def test_what_is_not_told_is_not_made_up() -> None:
    """One field is enough for a node that only has prompts and indexes."""
    async with behind(says(incarnation="boot 7")) as engine:
        seen = await engine.describe()

    assert ("boot 7", (), None, None) == (
        seen.incarnation, seen.adapters, seen.cached, seen.free_memory
    )  # fmt: skip
    assert () == seen.facts.capabilities
    assert set(Capability) == {lack.capability for lack in seen.facts.lacks}


async def test_everything_that_is_told_is_taken() -> None:
    """Field by field as the page says."""
    lack = {"capability": "flush", "remedy": "--flushable", "needs_restart": False}
    script = says(
        incarnation="1", kind="triton", version="2.60", base="llama", base_path="/b",
        capabilities=["adapters", "swap_base"], lacks=[lack], max_adapters=3, max_resident=4,
        max_rank=64, adapters=[{"name": "a@1", "path": "/a"}], adapter_prefix="llama:", cached=5,
        kv_used=0.5, free_memory=0.25, problem="it is paused", needs_restart=True, novelty=1,
    )  # fmt: skip
    async with behind(script) as engine:
        seen = await engine.describe()

    facts = seen.facts
    assert ("triton", "2.60", "llama", 3, 4, 64) == (
        facts.kind, facts.version, facts.base,
        facts.max_adapters, facts.max_resident, facts.max_rank,
    )  # fmt: skip
    assert ("/b", 5, 0.5, 0.25, "it is paused", True) == (
        seen.base_path, seen.cached, seen.kv_used, seen.free_memory,
        seen.problem, seen.needs_restart,
    )  # fmt: skip
    assert seen.has("a@1", "/a")
    assert "llama:a@1" == seen.model("a@1")
    assert "--flushable" == facts.remedy(Capability.FLUSH)


@pytest.mark.parametrize(
    "answer",
    ["", "nonsense", "[]", "{}", '{"incarnation": ""}', '{"incarnation": "1", "kv_used": 7}',
     '{"incarnation": "1", "capabilities": ["fly"]}',
     '{"incarnation": "1", "adapters": [{"name": "a"}]}'],
)  # fmt: skip
async def test_answer_that_is_none_names_the_page(answer: str) -> None:
    """It is a mistake in the hook, which trying again does not mend."""
    async with behind(f"printf %s '{answer}'") as engine:
        with pytest.raises(PermanentEngineError, match="does not answer as it should") as failed:
            await engine.describe()

    assert "docs/hooks.md" in failed.value.hint


async def test_what_is_not_declared_is_not_asked_for(tmp_path: Path) -> None:
    """Not even once."""
    script = f"cat >> {tmp_path}/asked; {says(incarnation='1')}"
    async with behind(script) as engine:
        with pytest.raises(PermanentEngineError, match=r"\(adapters\)"):
            await engine.unload("a@1")

    assert b'{"v":1,"method":"describe"}' == (tmp_path / "asked").read_bytes()


@pytest.fixture
async def engine_url() -> AsyncIterator[str]:
    """An engine that answers whatever is asked."""
    logprobs = {"tokens": ["a"], "token_logprobs": [-1.0]}
    choice = {"text": "a", "logprobs": logprobs}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 1}})

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_probe_starts_no_program_for_each_of_its_questions(
    tmp_path: Path, engine_url: str
) -> None:
    """What was seen last says who may be asked; what is not in it is looked for once more."""
    told = says(incarnation="1", base="base", adapters=[{"name": "a@1", "path": "/a"}],
                capabilities=["adapters", "logprobs"])  # fmt: skip
    asked = tmp_path / "asked"
    asked.write_text("")
    script = f"cat >> {asked}; echo >> {asked}; {told}"
    question = Question(prompt="Hello")
    async with behind(script, engine_url=engine_url) as engine:
        for _ in range(5):
            await engine.answer("a@1", question)
            await engine.answer("base", question)
        looks = asked.read_text().count("describe")
        with pytest.raises(PermanentEngineError, match="has no b@1"):
            await engine.answer("b@1", question)
        await engine.load("b@1", "/b")
        await engine.answer("a@1", question)

    methods = [json.loads(line)["method"] for line in asked.read_text().splitlines()]
    assert 1 == looks
    assert ["describe", "describe", "load", "describe"] == methods


@pytest.mark.parametrize(("code", "kind"), [(75, TemporaryEngineError), (1, PermanentEngineError)])
async def test_failure_is_the_hooks_own(code: int, kind: type[Exception]) -> None:
    """With its last word."""
    told = says(incarnation="1", capabilities=["flush"])
    script = f"read asked; case $asked in *flush*) echo 'not now' >&2; exit {code};; esac; {told}"
    async with behind(script) as engine:
        with pytest.raises(kind, match=r"the engine's hook failed on flush .*: not now"):
            await engine.flush()


async def test_change_that_hangs_is_given_up() -> None:
    """The hook is killed; it may be tried again."""
    told = says(incarnation="1", capabilities=["flush"])
    script = f"read asked; case $asked in *flush*) sleep 600;; esac; {told}"
    async with behind(script, timeout_s=0.5) as engine:
        with pytest.raises(TemporaryEngineError, match=r"within 0\.5 s, and was killed"):
            await engine.flush()
