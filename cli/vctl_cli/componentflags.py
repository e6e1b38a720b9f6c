"""Flags that name the components of a release: the same for a rollout and for a release."""

from pathlib import Path
from typing import Annotated

import typer

from vctl_cli.planfile import source_uri
from vctl_plans.errors import PlanError
from vctl_plans.names import check_root

Prompt = Annotated[
    str, typer.Option(metavar="PATH", help="Prompt to bring in: a directory, or one file.")
]
Index = Annotated[
    str, typer.Option(metavar="PATH", help="Index to bring in: a directory, or one file.")
]
PromptRoot = Annotated[
    str, typer.Option(metavar="b3:...", help="The Merkle root that the prompt must have.")
]
IndexRoot = Annotated[
    str, typer.Option(metavar="b3:...", help="The Merkle root that the index must have.")
]

Weights = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="Base model to bring in: a directory. Nodes change to it a few at a time.",
    ),
]
WeightsRoot = Annotated[
    str, typer.Option(metavar="b3:...", help="The Merkle root that the base model must have.")
]

Given = tuple[str, str]
"""A path or URI, and a root; each may be empty."""


def release_content(
    *, adapter: Given, prompt: Given, index: Given, weights: Given
) -> dict[str, dict[str, str]]:
    """Return the components that the flags name, as a plan file would; empty where they name none.

    Raises:
        PlanError: A root is none, or stands without what must have it.
    """
    content: dict[str, dict[str, str]] = {}
    parts = {"adapter": adapter, "prompt": prompt, "index": index, "weights": weights}
    for name, (path, root) in parts.items():
        flag = "--root" if name == "adapter" else f"--{name}-root"
        if root:
            check_root(root, what=flag)
        if root and not path:
            raise PlanError(f"without --{name}: of what is it the root?", path=flag)
        if path:
            source = source_uri(path, Path.cwd())
            content[name] = {"source": source} | ({"root": root} if root else {})
    return content
