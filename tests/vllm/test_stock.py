"""A vLLM as people start it: adapters at run time and a key, and nothing else that vctl can use."""

from pathlib import Path

import pytest

from tests.vllm.serving import BASE, KEY, Vllm
from vctl_agent.engines.proving import Prover
from vctl_agent.engines.vllm.client import VllmEngine
from vctl_agent.probed import Probed
from vctl_plans.capability import Capability
from vctl_plans.errors import PermanentEngineError

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

DEV_MODE = "VLLM_SERVER_DEV_MODE=1"


async def test_what_it_lacks_is_named_with_the_setting_that_gives_it(
    stock_vllm: Vllm, tmp_path: Path
) -> None:
    """And it serves adapters all the same, judged by their log-probabilities."""
    async with VllmEngine(stock_vllm.url, key=KEY) as engine:
        facts = (await engine.describe()).facts
        await engine.load("support@1", stock_vllm.model("v1"))
        await Prover(engine, Probed(tmp_path / "probed.json")).prove("support@1")
        later = (await engine.describe()).facts

    assert {
        Capability.FLUSH: DEV_MODE,
        Capability.REPLACE: DEV_MODE,
        Capability.SWAP_BASE: DEV_MODE,
        Capability.CACHED_TOKENS: "--enable-prompt-tokens-details",
    } == {lack.capability: lack.remedy for lack in facts.lacks}
    assert ("vllm", "0.32.0", BASE) == (facts.kind, facts.version, facts.base)
    assert (None, 2) == (facts.max_adapters, later.max_adapters)  # told since it was used


async def test_what_it_cannot_do_is_refused_with_the_setting(stock_vllm: Vllm) -> None:
    """Before anything is touched."""
    async with VllmEngine(stock_vllm.url, key=KEY) as engine:
        for refused in (
            engine.flush(),
            engine.swap_base(stock_vllm.model("other")),
            engine.replace("support", stock_vllm.model("v1")),
        ):
            with pytest.raises(PermanentEngineError) as told:
                await refused
            assert DEV_MODE in told.value.hint
        assert "" == (await engine.describe()).base_path


async def test_stranger_is_told_that_there_is_a_key(stock_vllm: Vllm) -> None:
    """No waiting helps, so it is no temporary failure."""
    async with VllmEngine(stock_vllm.url) as engine:
        with pytest.raises(PermanentEngineError) as told:
            await engine.describe()

    assert "--engine-key-file" in told.value.hint
