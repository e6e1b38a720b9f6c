"""Asks an engine what the probe judges, whatever its kind.

The order that a change must keep: a model is asked without a salt first, where an earlier adapter's
entries could lie; then again, so that the cache answers; then twice under a salt that nobody used.
"""

import asyncio
import secrets

from vctl_agent.engines.port import Answer, Description, Engine, Question
from vctl_agent.engines.probe import CEILING, Finding, coherence, effect, noise_of, shapeless
from vctl_agent.probed import BASE, Probed
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
    """Asks one engine.

    Args:
        engine: The engine.
        probed: Takes how noisy this run of it is, and that its base was proven.
    """

    def __init__(self, engine: Engine, probed: Probed) -> None:
        self._engine = engine
        self._probed = probed
        self._of_base: tuple[str, dict[int, Answer]] = ("", {})  # incarnation; by question
        self._measuring = asyncio.Lock()  # once per run of the engine, whoever comes first

    async def prove(self, name: str) -> str:
        """Prove that a model answers from its own cache only, and otherwise than the base.

        The base model is proven first, once per run of the engine: what it holds under an adapter
        that nobody trusts would be nobody's word either. After a flush it is due for its own sake.

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
        async with self._measuring:
            noise = self._probed.noise(now.incarnation)
            is_due = not name and not self._probed.is_current(now.incarnation, BASE)
            if noise is None or is_due:
                noise = await self._prove_base(now, noise)
        if not name:
            return self._probed.note(now.incarnation, BASE)
        fresh, found = await self._coherent(name, noise)
        if not found.problem:
            differs = await self._effect(name, now, fresh, noise)
            found = Finding(differs.problem, f"{found.note}; {differs.note}")
        if found.problem:
            raise PermanentEngineError(f"{name}: {found.problem}")
        return found.note

    async def _prove_base(self, now: Description, noise: float | None) -> float:
        """Prove the base by the engine's noise, which is measured where it is not known; return it.

        The noise stays what it was when caches are dropped.
        """
        drops = self._probed.drops
        measured = await self._measured(now) if noise is None else noise
        _, found = await self._coherent(now.facts.base, measured)
        if found.problem:
            raise PermanentEngineError(f"{now.facts.base}: {found.problem}")
        self._probed.add(now.incarnation, BASE, found.note, drops=drops)
        self._probed.measure(now.incarnation, measured)
        return measured

    async def _measured(self, now: Description) -> float:
        """Measure the engine's noise.

        Twice under each of two salts, so that once each comes from a cache which holds nothing but
        the base's own.
        """
        base, salts = now.facts.base, [secrets.token_hex(16) for _ in range(2)]
        answers = [
            await self._engine.answer(base, QUESTIONS[0], salt=salt)
            for salt in salts
            for _ in range(2)
        ]
        found, measured = Finding(shapeless(answers)), noise_of(answers)
        if not found.problem and measured > CEILING:
            found = Finding(f"its own answers to one prompt are {measured:.4f} apart")
        if found.problem:
            raise PermanentEngineError(f"{base}: {found.problem}")
        self._of_base = (now.incarnation, {0: answers[0]})
        return measured

    async def _coherent(self, model: str, noise: float) -> tuple[Answer, Finding]:
        """Return what a model answers without the cache, and whether it does so with it."""
        first = await self._engine.answer(model, QUESTIONS[0])
        again = await self._engine.answer(model, QUESTIONS[0])
        salt = secrets.token_hex(16)
        fresh = await self._engine.answer(model, QUESTIONS[0], salt=salt)
        warm = await self._engine.answer(model, QUESTIONS[0], salt=salt)
        found = coherence(first=first, again=again, fresh=fresh, warm=warm, noise=noise)
        return fresh, found

    async def _effect(self, name: str, now: Description, answer: Answer, noise: float) -> Finding:
        """Ask one prompt after the other until the adapter's answer is not the base's.

        Args:
            name: The adapter.
            now: The engine.
            answer: What the adapter answers to the first.
            noise: What the engine's own answers differ by.
        """
        if self._of_base[0] != now.incarnation:
            self._of_base = (now.incarnation, {})
        of_base, pairs, found = self._of_base[1], [], Finding()
        for n, question in enumerate(QUESTIONS):
            if n not in of_base:
                of_base[n] = await self._fresh(now.facts.base, question)
            own = await self._fresh(name, question) if n else answer
            pairs.append((own, of_base[n]))
            found = effect(pairs, noise=noise)
            if not found.problem:
                break
        return found

    async def _fresh(self, model: str, question: Question) -> Answer:
        return await self._engine.answer(model, question, salt=secrets.token_hex(16))
