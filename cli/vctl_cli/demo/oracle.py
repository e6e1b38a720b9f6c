"""What each release should answer: worked out by `vctl-engine answer`, without cache or server."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from vctl_cli.demo.tally import MAX_TOKENS, Said, is_same
from vctl_cli.programs import command_of
from vctl_plans.errors import VctlError

PREFIX = (
    "You are the support desk of a small bank. Be brief, be kind, and never promise what the"
    " bank does not. Today the card terminals in the north are slow, and the branch on the"
    " square is closed. A customer asks: "
)
"""Shared by all prompts, and many cache blocks long: without it prefix caches would not be hit."""

QUESTIONS = (
    "where is my card?",
    "how do I close my account?",
    "why was I charged twice?",
    "can you raise my limit?",
    "the app says error 41, what now?",
    "is the branch open on Sunday?",
    "I lost my PIN.",
    "what does a transfer to Norway cost?",
)
PROMPTS = tuple(PREFIX + question for question in QUESTIONS)


class _Answer(msgspec.Struct):
    text: str
    logprobs: tuple[float, ...]


class _Answers(msgspec.Struct):
    answers: tuple[_Answer, ...]


class Oracle:
    """Right answers by adapter, being worked out by processes of their own.

    Args:
        base: The base model.
        adapters: Name and directory of each.
        folder: Where the prompts' file goes.
        env: The environment of `vctl-engine`.
    """

    def __init__(
        self, base: Path, adapters: Mapping[str, Path], *, folder: Path, env: Mapping[str, str]
    ) -> None:
        prompts = folder / "prompts.json"
        prompts.write_text(json.dumps(PROMPTS))
        self._processes = {
            name: subprocess.Popen(  # noqa: S603  our own program
                [command_of("vctl-engine"), "answer", "--base", str(base),
                 "--adapter", str(adapter), "--prompts", str(prompts),
                 "--max-tokens", str(MAX_TOKENS), "--ignore-eos"],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for name, adapter in adapters.items()
        }  # fmt: skip

    def results(self) -> dict[str, tuple[Said, ...]]:
        """Wait for them and return, by adapter, what is right for each prompt.

        Raises:
            VctlError: One could not be worked out, or two adapters answer alike: then a wrong
                answer could not be told from a right one.
        """
        found = {name: _finished(name, p) for name, p in self._processes.items()}
        for prompt in range(len(PROMPTS)):
            _check_distinct({name: said[prompt] for name, said in found.items()})
        return found

    def stop(self) -> None:
        """End what still runs."""
        for process in self._processes.values():
            process.kill()
            process.communicate()


def _finished(name: str, process: "subprocess.Popen[bytes]") -> tuple[Said, ...]:
    out, err = process.communicate()
    if process.returncode:
        raise VctlError(f"what {name} should answer is unknown: {err.decode().strip()}")
    answers = msgspec.json.decode(out, type=_Answers).answers
    return tuple(Said(answer.text, answer.logprobs) for answer in answers)


def _check_distinct(said: Mapping[str, Said]) -> None:
    names: Sequence[str] = list(said)
    for n, one in enumerate(names):
        for other in names[n + 1 :]:
            if is_same(said[one], said[other]):
                raise VctlError(f"{one} and {other} answer alike: this demo would prove nothing")
