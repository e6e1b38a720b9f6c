"""Every kind of engine, for the contract suite: how to make one, and how to make it fail.

To add one: a class beside `UnderTest`'s others and a line in `KINDS`.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.engines import hook_script
from tests.engines.sglang_stub import SglangStub
from vctl_agent.engines import hook, sglang, torch_client
from vctl_agent.engines.fake import ANY, FakeEngine, Trouble
from vctl_agent.engines.port import Engine
from vctl_agent.engines.vllm.client import VllmEngine
from vctl_plans.capability import Capability

PROGRAM = Path(sys.executable).with_name("vctl-engine")
SHORT_S = 0.3
"""A caller's patience, where a test waits for its end."""


class UnderTest:
    """An engine, models that fit it, and ways to have it fail; what a kind cannot do is skipped."""

    engine: Engine
    first = "/adapters/first"
    second = "/adapters/second"
    broken = "/adapters/broken"
    other_base = "/bases/other"

    async def restart(self) -> None:
        """Have its process start anew."""
        pytest.skip("this engine's process is not ours to restart")

    async def hang(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have it answer nothing to a look, and the caller wait no longer than a moment."""
        del monkeypatch
        pytest.skip("this engine cannot be made to hang")

    async def lie(self) -> None:
        """Have it say yes to every change and do nothing."""
        pytest.skip("this engine cannot be made to lie")

    async def lack(self, capability: Capability) -> None:
        """Have it be one that was started without *capability*, and what would give it."""
        pytest.skip(f"this engine cannot be started without {capability} here")


Kind = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[UnderTest]]


class _Fake(UnderTest):
    def __init__(self) -> None:
        self.engine = self.fake = FakeEngine()
        self.fake.unfit = {self.broken}

    async def restart(self) -> None:
        self.fake.restart()

    async def hang(self, monkeypatch: pytest.MonkeyPatch) -> None:
        del monkeypatch
        self.fake.troubles["describe"] = Trouble.HANGS

    async def lie(self) -> None:
        self.fake.troubles[ANY] = Trouble.LIES

    async def lack(self, capability: Capability) -> None:
        self.fake.capabilities = tuple(each for each in Capability if each is not capability)


@asynccontextmanager
async def _fake(_: pytest.FixtureRequest) -> AsyncIterator[UnderTest]:
    yield _Fake()


class _Sglang(UnderTest):
    def __init__(self, stub: SglangStub, engine: Engine, folder: Path) -> None:
        self.stub, self.engine = stub, engine
        self.other_base = str(folder)

    async def restart(self) -> None:
        self.stub.restart()

    async def hang(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sglang, "DESCRIBE_S", SHORT_S)
        self.stub.broken["/server_info"] = _never

    async def lie(self) -> None:
        self.stub.lies = True

    async def lack(self, capability: Capability) -> None:
        without: dict[Capability, dict[str, Any]] = {
            Capability.ADAPTERS: {"enable_lora": False},
            Capability.SWAP_BASE: {"hicache_storage_backend": "mooncake"},
            Capability.FLUSH: {"hicache_storage_backend": "mooncake"},
            Capability.REPLACE: {},  # it never can
        }
        if capability not in without:
            await super().lack(capability)
        self.stub.settings |= without[capability]
        self.stub.restart()


async def _never() -> web.Response | None:
    await asyncio.Event().wait()
    return None


@asynccontextmanager
async def _sglang(request: pytest.FixtureRequest) -> AsyncIterator[UnderTest]:
    folder = a_model(request.getfixturevalue("tmp_path") / "other")
    stub = SglangStub()
    async with stub.serving() as url, sglang.SglangEngine(url) as engine:
        yield _Sglang(stub, engine, folder)


def a_model(folder: Path) -> Path:
    """Make what looks like a model from outside."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


class _Hook(UnderTest):
    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_text(json.dumps(hook_script.FIRST))

    def set(self, **fields: object) -> None:
        self.file.write_text(json.dumps(json.loads(self.file.read_text()) | fields))

    async def restart(self) -> None:
        start = json.loads(self.file.read_text())["start"] + 1
        self.set(start=start, adapters={}, base="", cached=0)

    async def hang(self, monkeypatch: pytest.MonkeyPatch) -> None:
        del monkeypatch
        self.set(trouble="hangs")

    async def lie(self) -> None:
        self.set(trouble="lies")

    async def lack(self, capability: Capability) -> None:
        if capability not in hook_script.ABLE:
            await super().lack(capability)
        self.set(lacks=[capability])


@asynccontextmanager
async def _hook(request: pytest.FixtureRequest) -> AsyncIterator[UnderTest]:
    made = _Hook(request.getfixturevalue("tmp_path") / "engine.json")
    command = (sys.executable, "-I", hook_script.__file__, str(made.file))
    async with _behind(command) as made.engine:
        yield made


@asynccontextmanager
async def _hook_url(request: pytest.FixtureRequest) -> AsyncIterator[UnderTest]:
    made = _Hook(request.getfixturevalue("tmp_path") / "engine.json")
    statuses = {"ok": 200, "later": 503, "no": 422}

    async def answer(asked: web.Request) -> web.Response:
        if json.loads(made.file.read_text())["trouble"] == "hangs":
            await _never()
        outcome, said = hook_script.answer(made.file, await asked.json())
        return web.json_response(said, status=statuses[outcome])

    app = web.Application()
    app.router.add_post("/hook", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with _behind((f"http://127.0.0.1:{runner.addresses[0][1]}/hook",)) as made.engine:
        yield made
    await runner.cleanup()


def _behind(target: tuple[str, ...]) -> hook.HookEngine:
    return hook.open_hook_engine(
        target, engine_url="http://127.0.0.1:1", timeout_s=2.0, environment=os.environ
    )


class TorchProcess:
    """A torch engine's process, which can be killed and started again where it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port_file = folder / "port"
        self._log = folder / "log"
        self.port = 0
        _make_models(folder)
        (folder / "broken").mkdir()
        for file in (folder / "first").iterdir():
            (folder / "broken" / file.name).write_bytes(file.read_bytes()[:-5])
        self.process = self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restart(self) -> None:
        self.stop()
        self._port_file.unlink()
        self.process = self._start()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(timeout=20)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [PROGRAM, "serve", "--base", self.folder / "base", "--port", str(self.port)]
        command += ["--port-file", self._port_file]
        with self._log.open("ab") as log:
            process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not self._port_file.exists():
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)
        self.port = int(self._port_file.read_text())
        return process


def _make_models(folder: Path) -> None:
    """Make two bases and two adapters, here: each program of its own would load torch anew."""
    from vctl_agent.engines.torch.making import make_adapter, make_base
    from vctl_agent.engines.torch.model import ModelConfig

    make_base(folder / "base", seed=1)
    make_base(folder / "other", seed=2)
    for seed, name in ((1, "first"), (2, "second")):
        base, config = str(folder / "base"), ModelConfig()
        make_adapter(
            folder / name, base=base, config=config, seed=seed, rank=8, targets=("q_proj", "v_proj")
        )


@pytest.fixture(scope="module")
def torch_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchProcess]:
    """One process for the tests of a module."""
    made = TorchProcess(tmp_path_factory.mktemp("engine"))
    yield made
    made.stop()


class _Torch(UnderTest):
    def __init__(self, process: TorchProcess, engine: Engine) -> None:
        self.process, self.engine = process, engine
        folder = process.folder
        self.first, self.second = str(folder / "first"), str(folder / "second")
        self.broken, self.other_base = str(folder / "broken"), str(folder / "other")

    async def restart(self) -> None:
        self.process.restart()

    async def hang(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch_client, "DESCRIBE_S", SHORT_S)
        self.process.process.send_signal(signal.SIGSTOP)


@asynccontextmanager
async def _torch(request: pytest.FixtureRequest) -> AsyncIterator[UnderTest]:
    process: TorchProcess = request.getfixturevalue("torch_process")
    async with torch_client.TorchEngine(process.url) as engine:
        try:
            yield _Torch(process, engine)
        finally:
            process.process.send_signal(signal.SIGCONT)
            await _emptied(engine)


class _Vllm(UnderTest):
    def __init__(self, served: "object", engine: Engine) -> None:
        self.engine = engine
        self.first, self.second = served.model("v1"), served.model("v2")  # type: ignore[attr-defined]
        self.broken = served.model("broken")  # type: ignore[attr-defined]
        self.other_base = served.model("other")  # type: ignore[attr-defined]


@asynccontextmanager
async def _vllm(request: pytest.FixtureRequest) -> AsyncIterator[UnderTest]:
    served = request.getfixturevalue("vllm")
    async with VllmEngine(served.url) as engine:
        await _emptied(engine)  # of what fleets of other tests have left
        yield _Vllm(served, engine)
        await _emptied(engine)


async def _emptied(engine: Engine) -> None:
    """Leave the engine as it was found, for the next test."""
    await engine.swap_base("")
    for resident in (await engine.describe()).adapters:
        await engine.unload(resident.name)


KINDS: dict[str, tuple[Kind, tuple[pytest.MarkDecorator, ...]]] = {
    "fake": (_fake, ()),
    "torch": (_torch, (pytest.mark.torch,)),
    "sglang": (_sglang, ()),
    "hook": (_hook, ()),
    "hook-url": (_hook_url, ()),
    "vllm": (_vllm, (pytest.mark.vllm, pytest.mark.timeout(900))),
}

PARAMS = [pytest.param(name, marks=marks) for name, (_, marks) in KINDS.items()]


@contextlib.asynccontextmanager
async def made(request: pytest.FixtureRequest, name: str) -> AsyncIterator[UnderTest]:
    """Make an engine of a kind that holds nothing."""
    async with KINDS[name][0](request) as under:
        yield under
