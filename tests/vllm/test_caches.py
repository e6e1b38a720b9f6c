"""What a cache may give back: the ways in which a bare vLLM answers for the wrong version.

Each is shown to exist on the engine alone, so that it is known that the test would see it, and then
not to exist when vctl's adapter does the same. Answers are judged by their log-probabilities beside
those of a name that was never used, under a salt that was never used.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.asking import (
    PROMPT,
    ask,
    done,
    is_paused,
    load,
    of_adapter,
    overwrite,
    running,
    unaided,
    unload,
)
from tests.vllm.serving import BASE, Vllm
from vctl_agent.engines.vllm import changing
from vctl_agent.engines.vllm.client import VllmEngine
from vctl_plans.errors import TemporaryEngineError

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

RESET = "/reset_prefix_cache?reset_running_requests=true&reset_external=true"
LONG = 200
"""Tokens of an answer that is still being written while something is changed under it."""
SHORT_PROMPT = PROMPT[:16]
LONGEST = 480
"""Tokens that may follow it: for what has to be still running after some calls."""


@pytest.fixture
async def engine(vllm: Vllm) -> AsyncIterator[VllmEngine]:
    """An engine that holds nothing, and has nothing cached."""
    async with VllmEngine(vllm.url) as made:
        yield made
        await made.swap_base("")
        for resident in (await made.describe()).adapters:
            await made.unload(resident.name)
        await made.flush()


async def test_bare_engine_answers_stale_after_the_same_path_got_other_bytes(
    engine: VllmEngine, vllm: Vllm, tmp_path: Path
) -> None:
    """Name and path are all that its cache knows of an adapter."""
    url, folder = vllm.url, tmp_path / "adapter"
    right = of_adapter(url, vllm.model("v2"))
    overwrite(folder, vllm.model("v1"))
    load(url, "bare", str(folder))
    ask(url, "bare")
    overwrite(folder, vllm.model("v2"))
    unload(url, "bare")
    load(url, "bare", str(folder))
    stale = ask(url, "bare")

    assert stale.cached >= 96
    assert not stale.equals(right)


async def test_versions_that_vctl_loads_have_nothing_in_common(
    engine: VllmEngine, vllm: Vllm
) -> None:
    """A name and a directory of its own for each root; also after going back."""
    url = vllm.url
    right = {v: of_adapter(url, vllm.model(v)) for v in ("v1", "v2")}
    assert not right["v1"].equals(right["v2"])
    for version in ("v1", "v2", "v1"):
        await engine.load(f"support@{version}", vllm.model(version))
        assert ask(url, f"support@{version}").equals(right[version])
        assert ask(url, f"support@{version}").equals(right[version])  # from the cache
        assert ask(url, f"support@{version}").cached >= 96


async def test_name_that_vctl_gives_other_bytes_answers_by_them(
    engine: VllmEngine, vllm: Vllm, tmp_path: Path
) -> None:
    """Even at the very same path, where the bare engine is stale."""
    url, folder = vllm.url, tmp_path / "adapter"
    right = of_adapter(url, vllm.model("v2"))
    overwrite(folder, vllm.model("v1"))
    await engine.replace("support", str(folder))
    ask(url, "support")
    overwrite(folder, vllm.model("v2"))
    await engine.replace("support", str(folder))
    answer = ask(url, "support")

    assert answer.cached == 0
    assert answer.equals(right)


async def test_bare_engine_is_poisoned_by_going_back(engine: VllmEngine, vllm: Vllm) -> None:
    """A request that runs across a change in place leaves blocks of both under the one's name."""
    url, v1, v2 = vllm.url, vllm.model("v1"), vllm.model("v2")
    load(url, "bare", v1)
    with running(url, "bare", max_tokens=LONG) as answer:
        load(url, "bare", v2, load_inplace=True)
    load(url, "bare", v1, load_inplace=True)
    transcript = (*PROMPT, *answer.tokens)
    poisoned = ask(url, "bare", transcript)

    assert poisoned.cached > len(PROMPT)
    assert not poisoned.equals(unaided(url, "bare", transcript))


async def test_name_that_vctl_changes_and_changes_back_is_not_poisoned(
    engine: VllmEngine, vllm: Vllm
) -> None:
    """The request that ran is answered by what it began with, to its last token."""
    url, v1, v2 = vllm.url, vllm.model("v1"), vllm.model("v2")
    undisturbed = of_adapter(url, v1, max_tokens=LONG)
    await engine.replace("support", v1)
    with running(url, "support", max_tokens=LONG) as answer:
        await engine.replace("support", v2)
    transcript = (*PROMPT, *answer.tokens)
    of_second = ask(url, "support", transcript)
    right_second = unaided(url, "support", transcript)
    await engine.replace("support", v1)
    of_first = ask(url, "support", transcript)

    assert list(undisturbed.tokens) == answer.tokens
    assert of_second.equals(right_second)
    assert of_first.equals(unaided(url, "support", transcript))
    assert not of_first.equals(of_second)


async def test_flush_drops_what_is_cached_and_disturbs_no_answer(
    engine: VllmEngine, vllm: Vllm
) -> None:
    """What runs is computed anew."""
    url = vllm.url
    undisturbed = unaided(url, BASE, max_tokens=LONG)
    with running(url, BASE, max_tokens=LONG) as answer:
        await engine.flush()
    await engine.flush()

    assert list(undisturbed.tokens) == answer.tokens
    assert ask(url, BASE).cached == 0


async def test_bare_engine_answers_stale_after_its_weights_were_read_anew(
    engine: VllmEngine, vllm: Vllm
) -> None:
    """The call succeeds and says nothing of the cache."""
    url = vllm.url
    ask(url, BASE)
    try:
        _reload(url, vllm.model("other"))
        stale = ask(url, BASE)
        right = unaided(url, BASE)
    finally:
        _reload(url, vllm.model("base"))
        done(url, RESET)

    assert stale.cached >= 96
    assert not stale.equals(right)


def _reload(url: str, path: str) -> None:
    body = {"method": "reload_weights", "kwargs": {"weights_path": path}}
    done(url, "/collective_rpc", body)


async def test_base_that_vctl_swapped_answers_for_itself(engine: VllmEngine, vllm: Vllm) -> None:
    """And so does an adapter on it, though its name and path are the same on both."""
    url, names = vllm.url, (BASE, "support@v1")
    seen = []
    for base in ("", vllm.model("other"), ""):
        await engine.swap_base(base)
        await engine.load("support@v1", vllm.model("v1"))
        answers = [ask(url, name) for name in names]
        assert [0, 0] == [answer.cached for answer in answers]
        assert all(a.equals(unaided(url, n)) for a, n in zip(answers, names, strict=True))
        seen.append(answers)

    for first, other, again in zip(*seen, strict=True):
        assert first.equals(again)
        assert not first.equals(other)


async def test_drain_that_takes_too_long_leaves_the_engine_as_it_was(
    engine: VllmEngine, vllm: Vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though vLLM goes on pausing when its caller gives up; what ran is answered to its end."""
    url = vllm.url
    monkeypatch.setattr(changing, "DRAIN_S", 0.015)  # vLLM takes 20 ms to pause, however idle
    before = await engine.describe()
    undisturbed = unaided(url, BASE, SHORT_PROMPT, max_tokens=LONGEST)
    with running(url, BASE, SHORT_PROMPT, max_tokens=LONGEST) as answer:
        with pytest.raises(TemporaryEngineError):
            await engine.swap_base(vllm.model("other"))
        during = await engine.describe()
    after = await engine.describe()

    assert list(undisturbed.tokens) == answer.tokens
    assert before.incarnation == during.incarnation == after.incarnation
    assert ("", "") == (during.problem, after.problem)
    assert unaided(url, BASE).logprobs


async def test_change_that_is_cancelled_while_it_drains_leaves_no_pause(
    engine: VllmEngine, vllm: Vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the agent is told to end: nobody else would let requests go on."""
    url, pause, is_begun = vllm.url, changing._pause, asyncio.Event()
    answers = ExitStack()

    async def pause_busy(*arguments: Any, **more: Any) -> None:
        """Pause an engine that has only just begun to answer, however slow all before it was."""
        answer = running(url, BASE, SHORT_PROMPT, max_tokens=LONGEST)
        await asyncio.to_thread(answers.enter_context, answer)
        is_begun.set()
        await pause(*arguments, **more)

    monkeypatch.setattr(changing, "_pause", pause_busy)
    with answers:
        change = asyncio.create_task(engine.swap_base(vllm.model("other")))
        await is_begun.wait()
        while not await asyncio.to_thread(is_paused, url):
            assert not change.done()
        change.cancel()
        with pytest.raises(asyncio.CancelledError):
            await change

    assert ("", "") == (
        (await engine.describe()).problem, (await engine.describe()).base_path
    )  # fmt: skip
    assert not is_paused(url)
