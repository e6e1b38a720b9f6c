"""Lines that fit: cut off or wrapped by the cells that characters take, never by their number."""

from rich.console import Console
from rich.text import Text

from vctl_cli.render.terminal import Glyphs

_ANY = Console()  # `Text.wrap` asks one for defaults that are always given here


def cut(text: Text, columns: int, glyphs: Glyphs) -> Text:
    """Return *text* with what is beyond *columns* cut off, and said to be."""
    if text.cell_len <= columns:
        return text
    shorter = text.copy()
    shorter.truncate(max(0, columns - len(glyphs.more)))
    shorter.rstrip()
    return shorter.append(glyphs.more)


def wrapped(
    text: Text, columns: int, *, lines: int, glyphs: Glyphs, lead: Text | None = None
) -> list[Text]:
    """Return *text* after *lead* in at most so many lines, the later ones as far in as it is."""
    lead = lead or Text()
    width = max(10, columns - lead.cell_len)
    found = list(text.wrap(_ANY, width, overflow="fold"))
    for line in found:
        line.rstrip()
    kept = found[:lines]
    if len(found) > lines:
        kept[-1] = cut(Text(" ").join(found[lines - 1 :]), width, glyphs)
    indent = Text(" " * lead.cell_len)
    return [
        Text().append_text(indent if n else lead).append_text(line) for n, line in enumerate(kept)
    ]


def bar(share: float, cells: int, glyphs: Glyphs) -> str:
    """Return a bar of so many cells, of which a *share* from 0 to 1 is full.

    What is begun shows a cell, and what is not whole lacks one.
    """
    filled = round(cells * min(1.0, max(0.0, share)))
    if share > 0:
        filled = max(1, filled)
    if share < 1:
        filled = min(cells - 1, filled)
    return glyphs.full * filled + glyphs.empty * (cells - filled)
