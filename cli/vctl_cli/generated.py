"""Files that are generated and kept in the repository: written anew, or checked to be right."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple


class Generated(NamedTuple):
    """Files of one kind; paths are below the repository's root."""

    program: str  # the module that writes them
    files: Callable[[], Mapping[Path, str]]
    there: Callable[[Path], Iterable[Path]]  # what lies below a root where they would

    def stale(self, root: Path) -> list[Path]:
        """Return the files that are not what they would be made to, or should not be there."""
        made, there = self.files(), set(self.there(root))
        wrong = [p for p, text in made.items() if p not in there or (root / p).read_text() != text]
        return sorted({*wrong, *(there - set(made))})

    def write(self, root: Path) -> None:
        """Write every file, and remove those that are none of them."""
        made = self.files()
        for path in self.stale(root):
            if path in made:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(made[path])
            else:
                (root / path).unlink()

    def main(self, arguments: list[str], root: Path) -> int:
        """Write the files, or with ``--check`` name those that are stale and return 1."""
        if arguments == ["--check"]:
            found = self.stale(root)
            for path in found:
                sys.stderr.write(f"stale: {path}; run python -m {self.program}\n")
            return 1 if found else 0
        if arguments:
            sys.stderr.write(f"usage: python -m {self.program} [--check]\n")
            return 2
        self.write(root)
        return 0
