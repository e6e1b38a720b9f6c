"""Probes a release: its model by itself, and then with the golden prompts that its plan names.

Each is noted by itself, for the run of the engine that was asked, and not asked again. A word about
an adapter counts only of the run that it is loaded in.
"""

from vctl_agent.application import Application
from vctl_agent.engines.port import Description, Engine
from vctl_agent.engines.proving import Prover
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.golden import GoldenReader, ask_golden
from vctl_agent.probed import BASE, Probed, golden_name
from vctl_plans.errors import EngineError, PermanentEngineError, TemporaryEngineError
from vctl_plans.release import Release


class Probing:
    """Probes what one engine holds.

    Args:
        engine: The engine.
        watch: Its latest description.
        probed: Takes what was proven, and of which run.
        golden: Reads golden prompts.
        application: Has the prompts that releases answer with.
    """

    def __init__(
        self,
        engine: Engine,
        watch: EngineWatch,
        *,
        probed: Probed,
        golden: GoldenReader,
        application: Application,
    ) -> None:
        self._engine = engine
        self._watch = watch
        self._probed = probed
        self._golden = golden
        self._application = application
        self._prover = Prover(engine, probed)

    async def probe(self, release: Release, golden: str, *, under: str) -> None:
        """Prove the model, and then the release.

        Args:
            release: The release.
            golden: Digest of the golden prompts that it must pass; empty: none.
            under: The name of its adapter in the engine; empty: its identity's.

        Raises:
            PermanentEngineError: It failed.
            VctlError: It could not be asked; trying again may help.
        """
        name, before = release.engine_name, self._watch.latest
        asked = under or name
        drops = self._probed.drops
        is_proven = before is not None and self._probed.is_current(before.incarnation, name or BASE)
        noted = golden_name(name, release.digest, golden) if is_proven and golden else name or BASE
        try:
            if noted == (name or BASE):
                note = await self._prover.prove(asked)
            else:
                note = await self._asked(before, release, golden, under=under)
        except PermanentEngineError as refusal:
            await self._same_engine(before, asked, refusal)
            raise
        after = await self._same_engine(before, asked)
        self._probed.add(after.incarnation, noted, note, drops=drops)

    async def _asked(
        self, engine: Description | None, release: Release, golden: str, *, under: str
    ) -> str:
        """Ask what the plan says, as a client would be answered: with the release's prompt."""
        model = under or release.engine_name or (engine.facts.base if engine else "")
        prompts, template = await self._golden.read(golden), self._application.template(release)
        return await ask_golden(self._engine, model, prompts, template=template)

    async def _same_engine(
        self, before: Description | None, name: str, cause: EngineError | None = None
    ) -> Description:
        """Return the engine as it is now.

        Raises:
            TemporaryEngineError: It was restarted meanwhile, or does not list *name* any more.
        """
        after = await self._watch.refresh()
        if not before or not after or before.incarnation != after.incarnation:
            raise TemporaryEngineError("the engine was restarted while it was probed") from cause
        if name and all(resident.name != name for resident in after.adapters):
            raise TemporaryEngineError(f"{name} was unloaded while it was probed") from cause
        return after
