"""`vctl verify-weights`: the root of what lies at a path, and whether it is the right one."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Root
from vctl_cli.render.document import show
from vctl_cli.render.progress import hashing
from vctl_cli.session import session_of
from vctl_plans import weights
from vctl_plans.errors import PlanError
from vctl_plans.names import check_root
from vctl_plans.units import bytes_text


class VerifyView(msgspec.Struct, frozen=True, kw_only=True):
    """What lies at a path."""

    path: str
    artifact: str  # adapter, weights or plain
    root: str
    content_root: str
    size_bytes: int
    files: int
    tensors: int
    expected: str  # what it was compared with; empty: with nothing
    is_verified: bool
    differences: tuple[str, ...]
    left_out: tuple[str, ...]


def verify_weights(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A directory, or one file.")],
    *,
    root: Root = "",
    manifest: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A manifest to compare with.")
    ] = None,
) -> ExitCode:
    """Hash weights and compare them with their root.

    The root covers every byte that is served; a manifest tells in which tensors and bytes a copy
    differs. Without --root and --manifest the root is printed and nothing is compared.
    """
    session = session_of(ctx)
    expected = expectation(path, root=root, manifest=manifest)
    with hashing(session.screen, path.name) as progress:
        actual = weights.scan(path, progress=progress)
    view = verify_view(path, actual, expected)
    show(session, view, kind="verification", table=lambda: _text(view))
    return ExitCode.FAILED if view.differences else ExitCode.DONE


def expectation(path: Path, *, root: str, manifest: Path | None) -> weights.Manifest | str:
    """Return what *path* must be: a manifest, a root, or "" for nothing.

    Raises:
        PlanError: There is nothing at a path, or the root is none.
        ArtifactError: The manifest is damaged, or not of that root.
    """
    if root:
        check_root(root, what="--root")
    for wanted in (path, manifest):
        if wanted is not None and not wanted.exists():
            raise PlanError(f"there is no {wanted}")
    return weights.load(manifest, root=root) if manifest else root


def verify_view(
    path: Path, actual: weights.Manifest, expected: weights.Manifest | str
) -> VerifyView:
    """Compare what was found with what was expected."""
    if isinstance(expected, weights.Manifest):
        wanted = expected.root
        differences = tuple(str(d) for d in weights.diff(expected, actual))
    else:
        wanted = expected
        differs = expected and expected != actual.root
        differences = (f"its root is not {expected}",) if differs else ()
    return VerifyView(
        path=str(path),
        artifact=actual.kind,
        root=actual.root,
        content_root=actual.content_root,
        size_bytes=sum(file.size for file in actual.files),
        files=len(actual.files),
        tensors=len(actual.tensors),
        expected=wanted,
        is_verified=bool(wanted) and not differences,
        differences=differences,
        left_out=tuple(f"{item.path}: {item.reason}" for item in actual.left_out),
    )


def _text(view: VerifyView) -> str:
    size = f"{bytes_text(view.size_bytes)}, {view.files} files, {view.tensors} tensors"
    lines = [
        f"{view.path}: {view.artifact}, {size}",
        f"root      {view.root}",
        *([f"content   {view.content_root}"] if view.tensors else []),
        *(f"left out  {item}" for item in view.left_out),
        *(f"differs   {difference}" for difference in view.differences),
    ]
    if view.expected:
        verdict = "verified" if view.is_verified else "NOT what was expected"
        lines.append(f"{verdict}: {view.expected}")
    return "\n".join(lines)
