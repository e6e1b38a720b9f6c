"""What was done for good, by engine incarnation: kept on disk for the next agent process.

Which adapters were probed, by their names, and what was measured; how noisy the engine's own
answers are; for which releases the hook was done, by their digests. Each is a fact about one run of
the engine's process: a name is its content, and neither changes under it. Another incarnation makes
the file void. A probe is of what was cached as well: once caches were dropped it is due again, and
counts until then, for the weights are the same (see `engines.epochs`).
"""

from pathlib import Path

import msgspec

from vctl_agent import noting

BASE = "base model"
"""The name under which the base was probed; no adapter's holds a space."""


def golden_name(model: str, release: str, golden: str) -> str:
    """Return the name under which golden prompts were passed.

    Args:
        model: The adapter's name; empty: the base model.
        release: The release's digest.
        golden: The golden prompts'.
    """
    return f"{model or BASE} {release} {golden}"


class _Record(msgspec.Struct):
    incarnation: str = ""
    names: list[str] = []
    due: list[str] = []  # of these names: done before the engine's caches were dropped
    notes: dict[str, str] = {}  # by name: what was measured
    noise: float | None = None  # None: not measured yet


class Probed:
    """The names for which it was done: adapters that have passed their probe, above all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = _Record()
        self.drops = 0  # of the engine's caches, as far as this process was told

    def open(self) -> None:
        """Read what an earlier process noted; what cannot be read counts as nothing."""
        self._record = noting.noted(self._path, _Record) or _Record()

    def has(self, incarnation: str, name: str) -> bool:
        """Whether it was done for *name* in this run of the engine."""
        return self._record.incarnation == incarnation and name in self._record.names

    def is_current(self, incarnation: str, name: str) -> bool:
        """Whether that, and the engine's caches were not dropped since: else it is due again."""
        return self.has(incarnation, name) and name not in self._record.due

    def note(self, incarnation: str, name: str) -> str:
        """Return what was measured for *name* in this run of the engine; empty: nothing."""
        return self._record.notes.get(name, "") if self._record.incarnation == incarnation else ""

    def noise(self, incarnation: str) -> float | None:
        """Return how far this run's own answers lie apart; None: it was not measured."""
        return self._record.noise if self._record.incarnation == incarnation else None

    def add(self, incarnation: str, name: str, note: str = "", *, drops: int | None = None) -> None:
        """Note that it was done for *name*; on disk when this returns, if the disk takes it.

        Args:
            incarnation: In which run of the engine.
            name: For whom.
            note: What was measured.
            drops: How many there were when it was begun: after another it is no word any more.
        """
        if drops not in {None, self.drops}:
            return
        record = self._of(incarnation)
        record.names = sorted({*record.names, name})
        record.due = [each for each in record.due if each != name]
        if note:
            record.notes[name] = note
        self._save()

    def measure(self, incarnation: str, noise: float) -> None:
        """Note how far this run's own answers lie apart."""
        self._of(incarnation).noise = noise
        self._save()

    def expire(self) -> None:
        """Take it that the engine's caches are dropped: all is due again; on disk when it returns.

        Also what is being probed just now.
        """
        self.drops += 1
        if self._record.due != self._record.names:
            self._record.due = list(self._record.names)
            self._save()

    def discard(self, name: str) -> None:
        """Forget *name*, which is loaded anew, or goes, and what was found of it for releases."""
        gone = {each for each in self._record.names if each == name or each.startswith(f"{name} ")}
        if gone:
            self._record.names = [each for each in self._record.names if each not in gone]
            self._record.due = [each for each in self._record.due if each not in gone]
            self._record.notes = {
                n: note for n, note in self._record.notes.items() if n not in gone
            }
            self._save()

    def _of(self, incarnation: str) -> _Record:
        """Return the record of this run; what is noted of another is void."""
        if self._record.incarnation != incarnation:
            self._record = _Record(incarnation)
        return self._record

    def _save(self) -> None:
        """Write the record; where that fails, the next agent's process does it once more."""
        noting.note(self._path, self._record)  # else none: it is better than an old one
