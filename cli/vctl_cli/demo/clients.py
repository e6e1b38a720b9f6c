"""Clients that ask every node all the time, and keep every answer.

Threads and the standard library: a client waits most of its time, and starts at once.
"""

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Self
from urllib.parse import urlsplit

from vctl_cli.demo.oracle import PROMPTS
from vctl_cli.demo.tally import MAX_TOKENS, Answer, Said

PER_NODE = 2
PAUSE_S = 0.1
"""Between two questions of a client, so that a small machine is busy and not choked."""

TIMEOUT_S = 20.0
RELEASE_HEADER = "x-vctl-release"

_NotHttp = (OSError, http.client.HTTPException, ValueError, KeyError, IndexError, TypeError)


class Clients:
    """Clients of all nodes; a context manager that ends them.

    Args:
        service: What they ask for.
        urls: Each node's gateway.
    """

    def __init__(self, service: str, urls: Mapping[str, str]) -> None:
        self._service = service
        self._answers: list[Answer] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_on, args=(node, url, seed), daemon=True)
            for node, url in urls.items()
            for seed in range(PER_NODE)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=TIMEOUT_S)

    @property
    def answers(self) -> list[Answer]:
        """All answers up to now."""
        return list(self._answers)

    def wait_for(self, holds: Callable[[list[Answer]], bool], *, within_s: float) -> bool:
        """Wait until the answers are as wanted; return whether they are."""
        deadline = time.monotonic() + within_s
        while not holds(self.answers):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _ask_on(self, node: str, url: str, seed: int) -> None:
        order = random.Random(f"{node} {seed}")  # noqa: S311  only which prompt comes next
        host = urlsplit(url).netloc
        connection = http.client.HTTPConnection(host, timeout=TIMEOUT_S)
        while not self._stop.is_set():
            prompt = order.randrange(len(PROMPTS))
            answer = self._ask(connection, node, prompt)
            self._answers.append(answer)
            if answer.error:
                connection.close()
            time.sleep(PAUSE_S)
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, node: str, prompt: int) -> Answer:
        body = {
            "model": self._service,
            "prompt": PROMPTS[prompt],
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
            "logprobs": 0,
            "ignore_eos": True,
        }
        begun_s = time.monotonic()
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            response = connection.getresponse()
            raw = response.read()
            if response.status != http.client.OK:
                raise ValueError(f"HTTP {response.status}: {raw[:200]!r}")
            document = json.loads(raw)
            choice = document["choices"][0]
            details = document["usage"].get("prompt_tokens_details") or {}
            return Answer(
                node=node,
                prompt=prompt,
                begun_s=begun_s,
                ended_s=time.monotonic(),
                release=int(response.headers.get(RELEASE_HEADER) or 0),
                said=Said(choice["text"], tuple(choice["logprobs"]["token_logprobs"])),
                cached_tokens=int(details.get("cached_tokens") or 0),
            )
        except _NotHttp as problem:
            error = f"{type(problem).__name__}: {problem}"
            ended_s = time.monotonic()
            return Answer(node=node, prompt=prompt, begun_s=begun_s, ended_s=ended_s, error=error)
