"""A fleet whose engines are real vLLMs, under a load of which every answer is judged."""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from uuid import uuid4

from tests.e2e.support import LEASE_TTL_S, SERVICE, Fleet
from tests.vllm.asking import PROMPT, Running, Said, of_adapter, question, said
from tests.vllm.serving import Vllm
from vctl_cli.dev import DevFleet
from vctl_cli.dev.layout import Options

PROMPTS = (PROMPT, PROMPT[::-1], PROMPT[:40])
References = Mapping[str, Sequence[Said]]
"""What each adapter answers to each prompt."""


def references(vllm: Vllm, adapters: Sequence[str]) -> References:
    """Ask the engine itself, under names and salts that are never used again."""
    return {
        name: [of_adapter(vllm.url, vllm.model(name), prompt) for prompt in PROMPTS]
        for name in adapters
    }


class Supervisor:
    """Starts vLLMs again when they have ended, as systemd or a kubelet would.

    Args:
        vllms: The engines.
        folder: Gets a file for each, named by its port, with its process group.
    """

    def __init__(self, vllms: Sequence[Vllm], folder: Path) -> None:
        self._vllms = vllms
        self.folder = folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.started: list[Vllm] = []

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for vllm in self._vllms:
                if not vllm.program.is_running:
                    vllm.program.start()
                    self.started.append(vllm)
                (self.folder / str(vllm.port)).write_text(str(vllm.program.pid))

    @contextmanager
    def running(self) -> Iterator["Supervisor"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()


_HOOK = """
import json, os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
told = json.load(sys.stdin)
(folder / "told").write_text(json.dumps(told))
os.killpg(int((folder / told["engine_url"].rpartition(":")[2]).read_text()), signal.SIGKILL)
"""


def restart_hook(folder: Path) -> str:
    """Return a command that ends an engine, so that its supervisor starts it again."""
    script = folder / "restart.py"
    script.write_text(_HOOK)
    return f"{sys.executable} {script} {folder}"


@contextmanager
def a_vllm_fleet(folder: Path, vllms: Sequence[Vllm], *agent_arguments: str) -> Iterator[Fleet]:
    """Run etcd, and an agent and a gateway beside each vLLM, which run already."""
    options = Options(
        nodes=len(vllms),
        lease_ttl_s=LEASE_TTL_S,
        engine_urls=[vllm.url for vllm in vllms],
        agent_arguments=("--engine", "vllm", "--log-level", "debug", *agent_arguments),
    )
    with DevFleet(folder, options, env=os.environ, allowed_roots=[vllms[0].models]) as dev:
        dev.start()
        yield Fleet(dev)


@dataclass
class Answer:
    """One answer of the fleet."""

    release: int
    prompt: int
    said: Said


@dataclass
class Load:
    """Clients that keep asking, every other answer as a stream; each request a session.

    With a breath in between: engines that start meanwhile need the machine too.
    """

    urls: Sequence[str]
    answers: list[Answer] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def _keep_asking(self, first: int) -> None:
        number = first
        while not self._stop.is_set():
            try:
                url = self.urls[number // 2 % len(self.urls)]
                prompt = number % len(PROMPTS)
                self.answers.append(self._ask(url, prompt, is_stream=bool(number % 2)))
            except (OSError, ValueError, KeyError, AssertionError) as error:
                self.failures.append(repr(error))
            self._stop.wait(0.05)
            number += 1

    def _ask(self, url: str, prompt: int, *, is_stream: bool) -> Answer:
        body = question(SERVICE, PROMPTS[prompt]) | {"user": uuid4().hex, "stream": is_stream}
        request = urllib.request.Request(
            f"{url}/v1/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            release = self._release(response.headers)
            if not is_stream:
                return Answer(release, prompt, said(json.load(response)))
            running = Running()
            for line in response:
                running.take(line)
            assert running.is_whole, "the stream broke off"
            streamed = Said(tuple(running.logprobs), tuple(running.tokens), cached=0)
            return Answer(release, prompt, streamed)

    def _release(self, headers: Message) -> int:
        return int(headers["x-vctl-release"])

    @contextmanager
    def running(self, *, clients: int = 3) -> Iterator["Load"]:
        threads = [threading.Thread(target=self._keep_asking, args=(n,)) for n in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def wait_for(self, more: int, *, of: int | None = None, within_s: float = 60) -> None:
        """Wait until *more* further answers have come, of one release if asked."""

        def count() -> int:
            return sum(of is None or answer.release == of for answer in self.answers)

        wanted = count() + more
        until(lambda: count() >= wanted, within_s=within_s, why=lambda: self.failures[-3:])

    def wrong(self, right: Mapping[int, Sequence[Said]]) -> list[Answer]:
        """Return the answers that are not those of the release that they name."""
        return [a for a in self.answers if not a.said.equals(right[a.release][a.prompt])]


def of_releases(fleet: Fleet, references: References) -> dict[int, Sequence[Said]]:
    """Return what each release must answer, by the adapter that it was made of."""
    return {
        number: references[Path(release.adapter.source).name]
        for number, release in fleet.service().releases.items()
        if release.adapter
    }


def until(
    holds: Callable[[], bool], *, within_s: float, why: Callable[[], object] = lambda: ""
) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)
