"""Asks an engine what the probe judges, whatever its kind.

The order that a change must keep: a model is asked without a salt first, where an earlier adapter's
entries could lie; then again, so that the cache answers; then under a salt that nobody used.
"""

import secrets

from vctl_agent.engines.port import Answer, Engine, Question
from vctl_agent.engines.probe import CEILING, Finding, coherence, effect, noise, shapeless
from vctl_plans.capability import Capability
from vctl_plans.errors import PermanentEngineError

_TOKENS = 8

_LONG = (
    "The same question asked twice must get the same answer, whether or not the engine has"
    " computed some of it before. This text is longer than a few blocks of a prefix cache, so"
    " that whole blocks of it are kept, and the second answer goes on from them. One, two,"
    " three, four, five, six, seven, eight, nine, ten, eleven, twelve, and so on:"
)
_PROMPTS = (
    _LONG,
    "A customer writes: my order has not arrived, and nobody answers. We reply:",
    "def median(values):\n    ",
)
QUESTIONS = tuple(
    Question(prompt=prompt, max_tokens=_TOKENS, ignore_eos=True) for prompt in _PROMPTS
)
"""The first, of more than 64 tokens, is asked for coherence; all are, to tell an adapter."""


class Prover:
    """Asks one engine; keeps what its base answered and how noisy it is, for its present run.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._incarnation = ""
        self._noise: float | None = None
        self._of_base: dict[int, Answer] = {}  # by question

    async def prove(self, name: str) -> str:
        """Prove that a model answers from its own cache only, and otherwise than the base.

        Args:
            name: An adapter; empty: the base model itself.

        Returns:
            What was measured, in a few words.

        Raises:
            PermanentEngineError: It does not, with what was seen.
        """
        now = await self._engine.describe()
        if not now.facts.can(Capability.LOGPROBS):
            return "not probed: the engine tells no log-probabilities"
        base = now.facts.base
        if now.incarnation != self._incarnation:
            self._incarnation, self._noise = now.incarnation, None
            self._of_base.clear()
        if self._noise is None:
            self._noise = await self._measured(base)
        model = name or base
        first = await self._engine.answer(model, QUESTIONS[0])
        again = await self._engine.answer(model, QUESTIONS[0])
        fresh = await self._fresh(model, QUESTIONS[0])
        found = coherence(first=first, again=again, fresh=fresh, noise=self._noise)
        if name and not found.problem:
            differs = await self._effect(name, base, fresh)
            found = Finding(differs.problem, f"{found.note}; {differs.note}")
        if found.problem:
            raise PermanentEngineError(f"{model}: {found.problem}")
        return found.note

    async def _measured(self, base: str) -> float:
        """Return the engine's noise: twice under each of two salts, so once from the cache each."""
        salts = [secrets.token_hex(16) for _ in range(2)]
        answers = [
            await self._engine.answer(base, QUESTIONS[0], salt=salt)
            for salt in salts
            for _ in range(2)
        ]
        problem = shapeless(answers)
        measured = noise(answers)
        if measured > CEILING:
            problem = (
                f"its own answers to one prompt differ by {measured:.4f}: the cache is at fault"
            )
        if problem:
            raise PermanentEngineError(f"{base}: {problem}")
        self._of_base[0] = answers[0]
        return measured

    async def _effect(self, name: str, base: str, answer: Answer) -> Finding:
        """Ask one prompt after the other until the adapter's answer is not the base's.

        Args:
            name: The adapter.
            base: The base model.
            answer: What the adapter answers to the first.
        """
        pairs: list[tuple[Answer, Answer]] = []
        found = Finding()
        for n, question in enumerate(QUESTIONS):
            if n not in self._of_base:
                self._of_base[n] = await self._fresh(base, question)
            own = await self._fresh(name, question) if n else answer
            pairs.append((own, self._of_base[n]))
            found = effect(pairs, noise=self._noise or 0.0)
            if not found.problem:
                break
        return found

    async def _fresh(self, model: str, question: Question) -> Answer:
        return await self._engine.answer(model, question, salt=secrets.token_hex(16))
