"""Flags that name the components of a release: the same for a rollout and for a release."""

from pathlib import Path
from typing import Annotated, Any

import typer

from vctl_cli.planfile import source_uri
from vctl_plans.errors import PlanError
from vctl_plans.names import check_root

Prompt = Annotated[
    str,
    typer.Option(metavar="SOURCE", help="Prompt to bring in: a directory, one file, or its URI."),
]
Index = Annotated[
    str,
    typer.Option(metavar="SOURCE", help="Index to bring in: a directory, one file, or its URI."),
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
        metavar="SOURCE",
        help="Base model to bring in: a directory, or its URI. Nodes change to it a few at a time.",
    ),
]
WeightsRoot = Annotated[
    str, typer.Option(metavar="b3:...", help="The Merkle root that the base model must have.")
]

HashOnNodes = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Have N nodes hash what is brought in, and require that they agree:"
        " for what only nodes can read.",
    ),
]
Push = Annotated[
    str,
    typer.Option(
        metavar="URI",
        help="Copy what is brought in to a place of its own below URI (s3://, https:// or a path),"
        " with its manifest; nodes read it there.",
    ),
]

Given = tuple[str, str]
"""A path or URI, and a root; each may be empty."""


def release_content(
    *,
    adapter: Given,
    prompt: Given,
    index: Given,
    weights: Given,
    hash_on_nodes: int | None = None,
    push: str = "",
) -> dict[str, dict[str, Any]]:
    """Return the components that the flags name, as a plan file would; empty where they name none.

    Raises:
        PlanError: A root is none, or a flag stands without what it is about.
    """
    content: dict[str, dict[str, Any]] = {}
    shared: dict[str, Any] = {"hash_on_nodes": hash_on_nodes} if hash_on_nodes else {}
    shared |= {"push": source_uri(push, Path.cwd())} if push else {}
    parts = {"adapter": adapter, "prompt": prompt, "index": index, "weights": weights}
    for name, (path, root) in parts.items():
        flag = "--root" if name == "adapter" else f"--{name}-root"
        if root:
            check_root(root, what=flag)
        if root and not path:
            hint = f"add --{name} with where the bytes are"
            raise PlanError(f"without --{name}: of what is it the root?", path=flag, hint=hint)
        if path:
            source = source_uri(path, Path.cwd())
            content[name] = {"source": source} | ({"root": root} if root else {}) | shared
    if shared and not content:
        flag = "--push" if push else "--hash-on-nodes"
        hint = "add --adapter, --prompt, --index or --weights"
        raise PlanError("without a component: of what?", path=flag, hint=hint)
    return content


def elsewhere_hint(component: str) -> str:
    """Return what to do about a source that this command cannot read."""
    flag = "--root" if component == "adapter" else f"--{component}-root"
    return f"where only nodes can read it, add {flag}, or --hash-on-nodes N to have N of them do it"
