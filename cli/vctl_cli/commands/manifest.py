"""`vctl manifest`: what an artifact is, written down with it."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Direct, KindOption, MaxHeader, Threads
from vctl_cli.render.document import show
from vctl_cli.scanning import Scanning, header_bytes, kind_of, require
from vctl_cli.session import session_of
from vctl_plans import weights
from vctl_plans.errors import ArtifactError, PlanError
from vctl_plans.units import bytes_text

STDOUT = Path("-")


class ManifestView(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest that was written."""

    path: str
    manifest: str  # where it is
    artifact: weights.Kind
    root: str
    content_root: str
    size_bytes: int
    files: int
    tensors: int
    left_out: tuple[str, ...]


def manifest(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A directory, or one file.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Where to write it; - is stdout."),
    ] = None,
    kind: KindOption = "",
    direct: Direct = False,
    threads: Threads = None,
    max_header: MaxHeader = "",
) -> ExitCode:
    """Hash weights and write their manifest.

    It holds the roots, and the digests of all files, tensors and blocks, so that a copy can be
    compared with it. It is written as vctl.manifest.json into the directory, or as
    FILE.vctl.manifest.json beside a single file, and is never a part of the artifact. Here -o names
    the file; the form of stdout is --output, or -o before the verb.
    """
    session = session_of(ctx)
    require(path)
    how = Scanning(session.screen, threads, header_bytes(max_header), direct, kind_of(kind))
    made = how.scan(path)
    if out == STDOUT:
        session.screen.exact(weights.encode(made).decode())
        return ExitCode.DONE
    view = write(made, path, out or weights.manifest_path(path))
    show(session, view, kind="manifest", table=lambda: _text(view))
    return ExitCode.DONE


def write(made: weights.Manifest, path: Path, place: Path) -> ManifestView:
    """Write a manifest.

    Raises:
        PlanError: At that place it would be a part of what it describes.
        ArtifactError: The place can't be written.
    """
    is_known = place.name == weights.MANIFEST_NAME or place.name.endswith(weights.MANIFEST_SUFFIX)
    is_within = path.is_dir() and place.resolve().is_relative_to(path.resolve())
    if made.kind == "plain" and is_within and not is_known:
        hint = f"leave -o away, or end the name with {weights.MANIFEST_SUFFIX}"
        raise PlanError(f"{place} would be a part of the artifact", path="--out", hint=hint)
    try:
        weights.save(made, place)
    except ArtifactError as cause:
        hint = f"say where with -o; its root is {made.root}"
        raise ArtifactError(cause.message, hint=hint) from cause
    return ManifestView(
        path=str(path),
        manifest=str(place),
        artifact=made.kind,
        root=made.root,
        content_root=made.content_root,
        size_bytes=sum(file.size for file in made.files),
        files=len(made.files),
        tensors=len(made.tensors),
        left_out=tuple(f"{item.path}: {item.reason}" for item in made.left_out),
    )


def _text(view: ManifestView) -> str:
    size = f"{bytes_text(view.size_bytes)}, {view.files} files, {view.tensors} tensors"
    lines = [
        f"{view.path}: {view.artifact}, {size}",
        f"root      {view.root}",
        *([f"content   {view.content_root}"] if view.tensors else []),
        *(f"left out  {item}" for item in view.left_out),
        f"manifest  {view.manifest}",
    ]
    return "\n".join(lines)
