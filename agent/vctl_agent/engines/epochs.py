"""Every drop of an engine's caches: counted, and followed by probes.

The cache epoch of an engine is a number that grows whenever all that it had cached is gone for
sure: with every incarnation (a start of its process, another base), and with every flush that it
confirmed. Nothing that was cached in one epoch answers in a later one. It counts as long as the
agent's state directory lives.

Whoever changes an engine has it through `Epochs`, so no flush goes unnoticed, whoever asks for it
and why. The order that a change must keep: what was probed is due again, on disk, before the engine
is asked, and once more when it has answered, for a probe may have begun in between; the epoch
grows only after the engine has confirmed. So an agent that dies on the way costs probes, and leaves
no proof that is older than the caches.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from vctl_agent.engines.port import Answer, Description, Engine, Question
from vctl_agent.noting import note, noted
from vctl_agent.probed import Probed


class _Record(msgspec.Struct, frozen=True):
    incarnation: str = ""  # empty: none was seen yet
    epoch: int = 0


class EpochFile:
    """The epoch, kept on disk for the next agent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = _Record()

    def open(self) -> None:
        """Read what an earlier process noted; without it, counting begins again."""
        self._record = noted(self._path, _Record) or _Record()

    @property
    def epoch(self) -> int:
        """The present epoch; 0: the engine was never seen."""
        return self._record.epoch

    def see(self, incarnation: str) -> None:
        """Take the engine's run as it is now; another one has nothing cached of the one before."""
        if incarnation != self._record.incarnation:
            self._take(_Record(incarnation, self._record.epoch + 1))

    def grow(self) -> None:
        """Take it that the engine has confirmed a flush."""
        self._take(_Record(self._record.incarnation, self._record.epoch + 1))

    def _take(self, record: _Record) -> None:
        self._record = record
        self._save()

    def _save(self) -> None:
        note(self._path, self._record)


class Epochs:
    """An engine as `port.Engine` says, whose descriptions tell the cache epoch.

    Args:
        engine: The engine.
        probed: What was probed on it.
        file: Keeps the epoch.
    """

    def __init__(self, engine: Engine, probed: Probed, file: EpochFile) -> None:
        self._engine = engine
        self._probed = probed
        self._file = file

    async def describe(self) -> Description:
        """Read what the engine holds now, and which epoch that is."""
        seen = await self._engine.describe()
        self._file.see(seen.incarnation)
        return msgspec.structs.replace(seen, cache_epoch=self._file.epoch)

    async def load(self, name: str, path: str) -> None:
        """Load an adapter."""
        await self._engine.load(name, path)

    async def unload(self, name: str) -> None:
        """Forget an adapter."""
        await self._engine.unload(name)

    async def answer(self, model: str, question: Question, *, salt: str = "") -> Answer:
        """Answer greedily."""
        return await self._engine.answer(model, question, salt=salt)

    async def swap_base(self, path: str) -> None:
        """Put another base in the place of the present one: its incarnation is another epoch."""
        with self._dropping():
            await self._engine.swap_base(path)

    async def flush(self) -> None:
        """Drop whatever is cached."""
        with self._dropping():
            await self._engine.flush()
            self._file.grow()

    async def replace(self, name: str, path: str) -> None:
        """Give *name* other bytes, with nothing of the former ones left in any cache."""
        with self._dropping():
            await self._engine.replace(name, path)
            self._file.grow()

    async def close(self) -> None:
        """Drop connections."""
        await self._engine.close()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        self._probed.expire()
        try:
            yield
        finally:
            self._probed.expire()
