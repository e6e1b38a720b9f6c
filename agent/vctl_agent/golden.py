"""Golden prompts on a node: read once by their digest, and asked before a release is ready.

They are kept in memory: an engine that is restarted while the store is away is asked the same.
"""

import secrets

from vctl_agent.engines.port import Engine, Question
from vctl_plans.codec import decode
from vctl_plans.errors import PermanentEngineError, VctlError
from vctl_plans.golden import Golden, GoldenPrompt, measured, problem
from vctl_plans.keys import Keys
from vctl_plans.prompt import Template, applied_to
from vctl_plans.store.port import Store

_MOST_KEPT = 64
_MOST_TOLD = 3


class GoldenReader:
    """Reads golden prompts, each once.

    Args:
        store: Where they lie.
        keys: The fleet's keys.
    """

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._kept: dict[str, Golden] = {}

    async def read(self, digest: str) -> Golden:
        """Return the golden prompts of *digest*.

        Raises:
            StoreError: The store does not answer.
            VctlError: Nothing lies there, or others: also what a newer vctl wrote, with what this
                one would not ask.
        """
        if digest not in self._kept:
            golden = await self._from_store(digest)
            while len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[digest] = golden
        return self._kept[digest]

    async def _from_store(self, digest: str) -> Golden:
        key = self._keys.golden(digest)
        entry = await self._store.get(key)
        if entry is None:
            raise VctlError(f"there are no golden prompts at {key}")
        golden = decode(entry.value, Golden, key=key)
        if golden.digest != digest:
            raise VctlError(f"the golden prompts at {key} are others: {golden.digest}")
        return golden


async def ask_golden(
    engine: Engine, model: str, golden: Golden, *, template: Template | None = None
) -> str:
    """Ask *model* all of the golden prompts, each under a salt of its own.

    Args:
        engine: The engine.
        model: An adapter, or the base model.
        golden: What is asked.
        template: What is applied to chats.

    Returns:
        How many passed, and the numbers of those that have one.

    Raises:
        PermanentEngineError: Some fail, with what was expected and what came, cut short.
    """
    problems, numbers = [], []
    for n, asked in enumerate(golden.prompts, start=1):
        answer = await engine.answer(model, question(asked, template), salt=secrets.token_hex(16))
        found = problem(asked, answer.text)
        if found:
            problems.append(f"prompt {n}: {found}")
        else:
            numbers.append(measured(asked, answer.text))
    count = len(golden.prompts)
    if problems:
        told = "; ".join(problems[:_MOST_TOLD])
        more = f"; and {len(problems) - _MOST_TOLD} more" if len(problems) > _MOST_TOLD else ""
        raise PermanentEngineError(f"golden prompts: {len(problems)} of {count} fail: {told}{more}")
    alike = ", ".join(number for number in numbers if number)
    return f"golden prompts: {count} of {count} pass" + (f" (similarity {alike})" if alike else "")


def question(asked: GoldenPrompt, template: Template | None = None) -> Question:
    """Return the question as the engine gets it; a template is applied to chats only."""
    if not asked.messages:
        return Question(prompt=asked.prompt, max_tokens=asked.max_tokens)
    messages = [{"role": m.role, "content": m.content} for m in asked.messages]
    chat = applied_to(template or Template(), messages)
    return Question(messages=tuple(chat.pop("messages")), chat=chat, max_tokens=asked.max_tokens)
