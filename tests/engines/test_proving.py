"""The probe on a real engine: what is right passes with its numbers, and what is wrong is found."""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import safetensors.torch

from vctl_agent.engines.probe import FLOOR
from vctl_agent.engines.proving import QUESTIONS, Prover
from vctl_agent.engines.torch_client import TorchEngine
from vctl_agent.golden import ask_golden, question
from vctl_agent.probed import BASE, Probed
from vctl_plans.errors import PermanentEngineError
from vctl_plans.golden import Golden, GoldenPrompt, Message

pytestmark = pytest.mark.torch

ENGINE = Path(sys.executable).with_name("vctl-engine")
WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class Served:
    """A real engine whose faults are written into a file."""

    url: str
    faults: Path
    good: str
    inert: str  # an adapter that changes nothing
    other_base: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("engine")
    base, other, good, inert = (folder / name for name in ("base", "other", "good", "inert"))
    _run("make-base", base, "--seed", "1")
    _run("make-base", other, "--seed", "2")
    _run("make-adapter", good, "--base", base, "--seed", "1")
    _run("make-adapter", inert, "--base", base, "--seed", "2")
    tensors = safetensors.torch.load_file(inert / WEIGHTS)
    changed = {name: t * 0 if "lora_B" in name else t for name, t in tensors.items()}
    safetensors.torch.save_file(changed, inert / WEIGHTS)
    faults, port = folder / "faults", folder / "port"
    arguments = ("--base", base, "--port", "0", "--port-file", port, "--fault-file", faults)
    with (folder / "log").open("wb") as log:
        command = [os.fspath(ENGINE), "serve", *map(str, arguments)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not port.exists():
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        url = f"http://127.0.0.1:{port.read_text().strip()}"
        yield Served(url, faults, str(good), str(inert), str(other))
    finally:
        process.terminate()
        process.wait(timeout=20)


def _run(verb: str, *arguments: object) -> None:
    subprocess.run([ENGINE, verb, *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
async def engine(served: Served) -> AsyncIterator[TorchEngine]:
    """An engine that holds nothing, and has no faults."""
    served.faults.unlink(missing_ok=True)
    async with TorchEngine(served.url) as made:
        yield made
        await made.swap_base("")
        for resident in (await made.describe()).adapters:
            await made.unload(resident.name)


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path / "probed.json")


async def test_adapter_that_is_itself_passes_with_its_numbers(
    engine: TorchEngine, probed: Probed, served: Served
) -> None:
    """The second answer came from the cache, whole blocks of it; and the base was proven first."""
    await engine.load("support@1", served.good)
    note = await Prover(engine, probed).prove("support@1")
    incarnation = (await engine.describe()).incarnation

    length = len(QUESTIONS[0].prompt) + 1  # a token a byte, and the one that begins
    assert f"{(length - 1) // 16 * 16} of {length} prompt tokens from the cache" in note
    assert float(note.rpartition("; ")[2].split()[0]) > FLOOR
    assert probed.has(incarnation, BASE)
    assert 0.0 == probed.noise(incarnation), "in float32 on a CPU, block by block"


async def test_noise_is_measured_once_in_a_run_of_the_engine(
    engine: TorchEngine, probed: Probed, tmp_path: Path
) -> None:
    """Also across agents; and again for a base that was swapped in, which is proven as well."""
    before = (await engine.describe()).incarnation
    probed.measure(before, 0.25)
    assert "own noise 0.2500" in await Prover(engine, probed).prove("")

    again = Probed(tmp_path / "probed.json")
    again.open()
    assert 0.25 == again.noise(before)
    assert again.noise("another run") is None


async def test_base_that_was_swapped_in_is_proven(
    engine: TorchEngine, probed: Probed, served: Served
) -> None:
    """Nothing of the one before answers for it."""
    prover = Prover(engine, probed)
    await prover.prove("")
    before = (await engine.describe()).incarnation
    await engine.swap_base(served.other_base)
    note = await prover.prove("")

    assert "cached and fresh answers 0.0000 apart" in note
    assert not probed.has(before, BASE), "what was noted is of the run that is over"


async def test_adapter_that_matches_no_module_is_found(
    engine: TorchEngine, probed: Probed, served: Served
) -> None:
    """It loads, it is listed, it answers, and changes nothing."""
    await engine.load("support@2", served.inert)

    with pytest.raises(PermanentEngineError, match=r"matched no module \(0\.0000 apart"):
        await Prover(engine, probed).prove("support@2")


async def test_block_of_another_model_in_the_cache_is_found(
    engine: TorchEngine, probed: Probed, served: Served
) -> None:
    """As an engine would serve it whose cache takes two models for one; until it is mended."""
    await engine.load("support@3", served.good)
    served.faults.write_text("stale support@3\n")
    prover = Prover(engine, probed)
    with pytest.raises(PermanentEngineError) as found:
        await prover.prove("support@3")
    assert "cached answer differs from its answer without the cache by" in found.value.message
    assert "(allowed 0.0010, own noise 0.0000)" in found.value.message

    served.faults.unlink()
    await prover.prove("support@3")


async def test_golden_prompts_are_asked_of_the_adapter(engine: TorchEngine, served: Served) -> None:
    """A text and a chat; and the base's answer is none of the adapter's."""
    await engine.load("support@4", served.good)
    asked = GoldenPrompt(prompt="Hello", expect="", max_tokens=12)
    chat = GoldenPrompt(messages=(Message(role="user", content="Hello"),), max_tokens=12)
    own = [await _answer(engine, "support@4", each) for each in (asked, chat)]
    golden = Golden(
        prompts=(
            GoldenPrompt(prompt="Hello", expect=own[0], max_tokens=12),
            GoldenPrompt(messages=chat.messages, similar_to=own[1], max_tokens=12),
        )
    )

    assert "golden prompts: 2 of 2 pass (similarity 1.000)" == await ask_golden(
        engine, "support@4", golden
    )
    with pytest.raises(PermanentEngineError, match="of 2 fail: prompt 1: expected"):
        await ask_golden(engine, (await engine.describe()).facts.base, golden)


async def _answer(engine: TorchEngine, model: str, asked: GoldenPrompt) -> str:
    return (await engine.answer(model, question(asked), salt="test")).text
