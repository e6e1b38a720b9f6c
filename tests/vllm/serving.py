"""Real vLLMs for tests: tiny random models on a CPU, started once and used by many tests.

They run only where `make test-vllm` has installed one and says so by VCTL_VLLM, the path of that
environment; elsewhere the tests that want one are skipped.
"""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from vctl_cli.dev.ports import HOST, Ports
from vctl_cli.dev.program import Program, ended

READY_WITHIN_S = 400.0
BASE = "tiny"

EVERYTHING = ("--enable-lora", "--max-loras", "2", "--max-cpu-loras", "4", "--max-lora-rank", "8",
              "--enable-prompt-tokens-details")  # fmt: skip
RUNTIME = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
DEV_MODE = {"VLLM_SERVER_DEV_MODE": "1"}

_QUIET = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_SMALL = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
          "OMP_NUM_THREADS": "1"}  # fmt: skip
_FLAGS = ("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8",
          "--enforce-eager", "--enable-prefix-caching", "--block-size", "32")  # fmt: skip


class Vllm:
    """One vLLM, which can be killed and started again where it was.

    Args:
        venv: The environment that has vLLM.
        models: What `make_models.py` made.
        folder: Where its log goes.
        flags: Of `vllm serve`, beside those of every test.
        env: Variables that it is started with.
    """

    def __init__(
        self,
        venv: Path,
        models: Path,
        folder: Path,
        *,
        flags: Sequence[str] = EVERYTHING,
        env: Mapping[str, str] = RUNTIME | DEV_MODE,
    ) -> None:
        self.models = models
        self._ports = Ports(0)
        self.port = self._ports.take()
        self.url = f"http://{HOST}:{self.port}"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("VCTL_", "PYTHON"))}
        command = [str(venv / "bin" / "vllm"), "serve", str(models / "base"), *_FLAGS, *flags]
        command += ["--served-model-name", BASE, "--host", HOST, "--port", str(self.port)]
        self.program = Program(
            "vllm", command, env=clean | _QUIET | _SMALL | dict(env), log=folder / "vllm.log"
        )

    def model(self, name: str) -> str:
        """Return the directory of a base or an adapter."""
        return str(self.models / name)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while not self.is_ready:
            assert not self.program.has_died, self.program.log_tail()
            assert time.monotonic() < deadline, self.program.log_tail()
            time.sleep(0.2)

    @property
    def is_ready(self) -> bool:
        with suppress(OSError, urllib.error.URLError):
            return bool(urllib.request.urlopen(f"{self.url}/health", timeout=5).status == 200)
        return False

    def kill(self) -> None:
        """End it as a power cut would."""
        self.program.kill()

    def stop(self) -> None:
        self.program.ask_to_end()
        ended([self.program], within_s=20)
        self.program.signal(signal.SIGKILL)
        self._ports.close()


def venv() -> Path:
    """Return the environment that has vLLM, or skip the test."""
    named = os.environ.get("VCTL_VLLM")
    if not named:
        pytest.skip("needs a real vLLM: make test-vllm")
    return Path(named).absolute()


@pytest.fixture(scope="session")
def vllm_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bases and some adapters."""
    folder = tmp_path_factory.mktemp("models")
    program = Path(__file__).with_name("make_models.py")
    command = [str(venv() / "bin" / "python"), str(program), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


KEY = "sesame"
"""Of the stock vLLM."""

_STOCK = ("--enable-lora", "--max-loras", "2", "--api-key", KEY)


class Vllms:
    """The engines of one run of pytest, by the names of their fixtures; each is started once."""

    KINDS: Mapping[str, Mapping[str, Any]] = {
        "vllm": {},
        "second_vllm": {},
        "stock_vllm": {"flags": _STOCK, "env": RUNTIME},
    }

    def __init__(self, models: Path, folder: Callable[[str], Path]) -> None:
        self._models = models
        self._folder = folder
        self._made: dict[str, Vllm] = {}

    def start(self, name: str) -> Vllm:
        """Start one, unless it was; it is not waited for."""
        if name not in self._made:
            made = Vllm(venv(), self._models, self._folder(name), **self.KINDS[name])
            self._made[name] = made
            made.program.start()
        return self._made[name]

    def ready(self, name: str) -> Vllm:
        made = self.start(name)
        made.wait_ready()
        return made

    def stop(self) -> None:
        for made in self._made.values():
            made.stop()


@pytest.fixture(scope="session")
def vllms_at_once(
    request: pytest.FixtureRequest, vllm_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Vllms]:
    """Start all that this run of pytest is known to ask for.

    A start is mostly three processes that import one after the other: side by side, all take little
    longer than one.
    """
    made = Vllms(vllm_models, tmp_path_factory.mktemp)
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    try:
        for name in made.KINDS:
            if name in asked:
                made.start(name)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def vllm(vllms_at_once: Vllms) -> Vllm:
    """A vLLM that has all that vctl can use."""
    return vllms_at_once.ready("vllm")


@pytest.fixture(scope="session")
def second_vllm(vllms_at_once: Vllms) -> Vllm:
    """Another one, for a fleet of two nodes."""
    return vllms_at_once.ready("second_vllm")


@pytest.fixture(scope="session")
def stock_vllm(vllms_at_once: Vllms) -> Vllm:
    """One as people start it: adapters at run time and a key, and nothing else of use to vctl."""
    return vllms_at_once.ready("stock_vllm")
