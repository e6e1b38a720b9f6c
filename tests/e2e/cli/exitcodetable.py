"""The table of docs/exit-codes.md, read."""

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[3] / "docs" / "exit-codes.md"
_ROW = re.compile(r"\| (\d+) \|([^|]*)\| `([^`]+)` \| [^|]+ \| `(\w+)` \|")


class Row(NamedTuple):
    """One line."""

    code: int
    means: str
    command: str
    test: str


def rows() -> tuple[Row, ...]:
    """Return all lines of the table."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [match for line in lines if (match := _ROW.fullmatch(line))]
    return tuple(Row(int(m[1]), m[2].strip(), m[3], m[4]) for m in found)


def command_of(test: str) -> str:
    """Return the command that a test is to run."""
    (row,) = [row for row in rows() if row.test == test]
    return row.command
