"""Asks a vLLM without vctl, as a client or a careless operator would, and compares answers."""

import json
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

PROMPT = tuple((n * 37 + 11) % 500 + 2 for n in range(100))
"""Three whole blocks of the prefix cache, and a bit."""

TOLERANCE = 5e-3
"""Of a log-probability: requests computed together differ by less, two adapters by far more."""


@dataclass(frozen=True)
class Said:
    """An answer."""

    logprobs: tuple[float, ...]
    tokens: tuple[int, ...]
    cached: int

    def equals(self, other: "Said") -> bool:
        return len(self.logprobs) == len(other.logprobs) and all(
            abs(a - b) <= TOLERANCE for a, b in zip(self.logprobs, other.logprobs, strict=True)
        )


def post(url: str, path: str, body: Any = None, *, within_s: float = 60) -> tuple[int, Any]:
    """Return status and JSON (or text) of an answer."""
    data = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{url}{path}", data=data, headers={"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=within_s) as response:
            status, text = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text.decode()


def done(url: str, path: str, body: Any = None) -> Any:
    """Post what must succeed."""
    status, said = post(url, path, body)
    assert status == 200, (path, status, said)
    return said


def is_paused(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/is_paused", timeout=10) as response:
        return bool(json.load(response)["is_paused"])


def question(
    model: str, prompt: Sequence[int], *, max_tokens: int = 8, salt: str = ""
) -> dict[str, Any]:
    body = {"model": model, "prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0}
    body |= {"ignore_eos": True, "logprobs": 1, "return_token_ids": True}
    return body | ({"cache_salt": salt} if salt else {})


def ask(
    url: str, model: str, prompt: Sequence[int] = PROMPT, *, max_tokens: int = 8, salt: str = ""
) -> Said:
    body = question(model, prompt, max_tokens=max_tokens, salt=salt)
    return said(done(url, "/v1/completions", body))


def said(answer: Any) -> Said:
    choice = answer["choices"][0]
    details = answer["usage"]["prompt_tokens_details"] or {"cached_tokens": 0}
    return Said(
        logprobs=tuple(choice["logprobs"]["token_logprobs"]),
        tokens=tuple(choice["token_ids"]),
        cached=details["cached_tokens"],
    )


def unaided(url: str, model: str, prompt: Sequence[int] = PROMPT, *, max_tokens: int = 8) -> Said:
    """Ask under a salt that nobody used: nothing can come from a cache."""
    return ask(url, model, prompt, max_tokens=max_tokens, salt=uuid4().hex)


def load(url: str, name: str, path: str, **more: object) -> None:
    done(url, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path, **more})


def unload(url: str, name: str) -> None:
    done(url, "/v1/unload_lora_adapter", {"lora_name": name})


def of_adapter(url: str, path: str, prompt: Sequence[int] = PROMPT, *, max_tokens: int = 8) -> Said:
    """Return what an adapter answers under a name that was never used, without any cache."""
    name = f"reference-{uuid4().hex}"
    load(url, name, path)
    try:
        return unaided(url, name, prompt, max_tokens=max_tokens)
    finally:
        unload(url, name)


def overwrite(folder: Path, by: str) -> None:
    """Put another adapter's files into *folder*, as a careless deployment does."""
    folder.mkdir(exist_ok=True)
    for file in Path(by).iterdir():
        shutil.copy(file, folder / file.name)


@dataclass
class Running:
    """A long answer that is read as it comes."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    error: str = ""
    is_whole: bool = False  # its end has come: http.client takes a broken stream for one that ended
    has_begun: threading.Event = field(default_factory=threading.Event)

    def read(self, url: str, body: dict[str, Any]) -> None:
        request = urllib.request.Request(
            f"{url}/v1/completions",
            data=json.dumps(body | {"stream": True}).encode(),
            headers={"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                for line in response:
                    self.take(line)
        except (OSError, KeyError, ValueError) as error:
            self.error = repr(error)
        finally:
            self.has_begun.set()

    def take(self, line: bytes) -> None:
        if line.startswith(b"data: [DONE]"):
            self.is_whole = True
        if not line.startswith(b"data: {"):
            return
        for choice in json.loads(line[6:])["choices"]:
            self.tokens += choice.get("token_ids") or []
            self.logprobs += (choice.get("logprobs") or {}).get("token_logprobs", [])
        if self.tokens:
            self.has_begun.set()


@contextmanager
def running(
    url: str, model: str, prompt: Sequence[int] = PROMPT, *, max_tokens: int
) -> Iterator[Running]:
    """Have a long answer run within the block; it is whole afterwards."""
    answer = Running()
    body = question(model, prompt, max_tokens=max_tokens)
    thread = threading.Thread(target=answer.read, args=(url, body))
    thread.start()
    try:
        assert answer.has_begun.wait(60)
        yield answer
    finally:
        thread.join(120)
    assert not answer.error, answer.error
    assert len(answer.tokens) == max_tokens
