"""Which artifacts this run of the engine was given: kept on disk for the next agent process.

An engine may read a directory again long after it was told to unload what lay there, and may die
where it is gone. So a root is noted before the engine is asked to load it, and is forgotten only
when another run of the engine was seen. What is not known to have been noted counts as noted: where
there is no file, all that lies on the disk.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from vctl_agent.engines.port import Description
from vctl_agent.noting import note, noted
from vctl_plans.names import is_root


class _Record(msgspec.Struct):
    incarnation: str = ""  # empty: the first that is seen
    roots: list[str] = []


class Registered:
    """The roots that the engine was given, by its present incarnation."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = _Record()
        self._giving: dict[str, int] = {}  # how many calls are under way, by root

    def open(self, lying: Iterable[str]) -> None:
        """Read what an earlier process noted; without it, any run was given all of *lying*."""
        found = noted(self._path, _Record)
        self._record = found or _Record(roots=sorted(lying))
        if found is None:
            self._save()

    @property
    def roots(self) -> frozenset[str]:
        """What the engine's present run was given, as far as anyone can know."""
        return frozenset(self._record.roots) | frozenset(self._giving)

    @contextlib.contextmanager
    def giving(self, root: str) -> Iterator[None]:
        """Note *root* while the engine is asked to read it, and from then on.

        Within, it stays noted whichever run of the engine answers: the one that was asked may be
        gone, and the next be at it.
        """
        self._giving[root] = self._giving.get(root, 0) + 1
        self._note(self._record.incarnation, {*self._record.roots, root})
        try:
            yield
        finally:
            self._giving[root] -= 1
            if not self._giving[root]:
                del self._giving[root]

    def see(self, engine: Description | None) -> None:
        """Take the engine as it is: what it lists it was given; another run was given nothing."""
        if engine is None:
            return
        listed = listed_roots(engine)
        is_same = self._record.incarnation in {"", engine.incarnation}
        before = set(self._record.roots) if is_same else set(self._giving)
        self._note(engine.incarnation, before | listed)

    def _note(self, incarnation: str, roots: set[str]) -> None:
        after = _Record(incarnation, sorted(roots))
        if after != self._record:
            self._record = after
            self._save()

    def _save(self) -> None:
        """Write the record; where that fails, there is none: then nothing goes, see `open`."""
        note(self._path, self._record)


def listed_roots(engine: Description) -> frozenset[str]:
    """Return the roots whose directories the engine lists; its base is one of them."""
    paths = [*(resident.path for resident in engine.adapters), engine.base_path]
    roots = (f"b3:{Path(path).name}" for path in paths if path)
    return frozenset(root for root in roots if is_root(root))
