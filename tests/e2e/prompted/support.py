"""Prompts, and the hook by which an application is told of them."""

from pathlib import Path

from tests.e2e.support import Fleet

HOOK = 'said=$(cat); printf "%s\\n" "$said" >> "$0.log"'
"""Notes what it is told, in one write: all nodes' agents call it."""


def a_script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def a_prompt(fleet: Fleet, number: int) -> Path:
    """Return a directory with prompt *number*."""
    folder = fleet.folder / "prompts" / f"p{number}"
    (folder / "tools").mkdir(parents=True, exist_ok=True)
    (folder / "system.txt").write_text(f"prompt {number}")
    (folder / "tools" / "search.jinja").write_text("{{ query }}")
    return folder
