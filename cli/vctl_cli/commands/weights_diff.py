"""`vctl weights diff`: what differs between two versions, and what it takes to move."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Direct, MaxHeader, Threads
from vctl_cli.render.differences import Changed, DiffView, SideView, diff_text, difference_view
from vctl_cli.render.document import show
from vctl_cli.render.progress import hashing
from vctl_cli.scanning import Scanning, header_bytes, manifest_beside, require
from vctl_cli.session import session_of
from vctl_plans import weights

DOCUMENT_SUFFIX = ".json"


class Side(NamedTuple):
    """One version."""

    path: Path
    manifest: weights.Manifest
    place: str  # of the manifest that was read; empty: the files were hashed
    has_bytes: bool


def weights_diff(
    ctx: typer.Context,
    a: Annotated[Path, typer.Argument(metavar="A", help="A directory, a file, or a manifest.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The version to compare with it.")],
    *,
    hash_files: Annotated[
        bool, typer.Option("--hash", help="Hash the files also where a manifest lies with them.")
    ] = False,
    no_values: Annotated[
        bool, typer.Option("--no-values", help="Do not read how much the numbers changed.")
    ] = False,
    direct: Direct = False,
    threads: Threads = None,
    max_header: MaxHeader = "",
) -> ExitCode:
    """Show what differs between two versions.

    Tensors, blocks and byte ranges that differ, how many bytes have to be moved to make B from A,
    and for each tensor of floating-point numbers its largest relative change, |b-a| / max(|a|,|b|),
    where the bytes of both are at hand and numpy is installed. A file that ends in .json is read as
    a manifest; else the manifest that lies with the files is taken, and only where there is none
    are they hashed. Exit status 0: equal; 1: they differ.
    """
    session = session_of(ctx)
    require(a, b)
    how = Scanning(session.screen, threads, header_bytes(max_header), direct)
    sides = tuple(side(path, how, is_hashed=hash_files) for path in (a, b))
    view = diff_view(*sides, how=how, has_values=not no_values)
    show(session, view, kind="weights-diff", table=lambda: diff_text(view), is_paged=True)
    return ExitCode.DONE if view.is_equal else ExitCode.FAILED


def side(path: Path, how: Scanning, *, is_hashed: bool) -> Side:
    """Read one version's manifest, or make it.

    Raises:
        ArtifactError: The manifest is damaged, or the files may not be served.
    """
    if path.is_file() and path.name.endswith(DOCUMENT_SUFFIX):
        return Side(path, weights.load(path, is_shallow=True), str(path), has_bytes=False)
    place = None if is_hashed else manifest_beside(path)
    if place:
        return Side(path, weights.load(place, is_shallow=True), str(place), has_bytes=True)
    return Side(path, how.scan(path), "", has_bytes=True)


def diff_view(before: Side, after: Side, *, how: Scanning, has_values: bool) -> DiffView:
    """Compare two versions.

    Raises:
        ArtifactError: A manifest is not genuine, or not that of the files that lie with it.
    """
    found = weights.diff(before.manifest, after.manifest)
    has_values = has_values and before.has_bytes and after.has_bytes
    changes = _changes(before, after, found, how) if has_values else {}
    return DiffView(
        a=_side_view(before),
        b=_side_view(after),
        is_equal=not found,
        differing_tensors=sum(bool(one.tensor) for one in found),
        tensors=len(after.manifest.tensors),
        move_bytes=sum(one.move_bytes for one in found),
        size_bytes=sum(file.size for file in after.manifest.files),
        differences=tuple(map(difference_view, found)),
        changes=tuple(changes.values()),
    )


def _side_view(one: Side) -> SideView:
    return SideView(
        path=str(one.path),
        manifest=one.place,
        root=one.manifest.root,
        content_root=one.manifest.content_root,
    )


def _changes(
    before: Side, after: Side, found: tuple[weights.Difference, ...], how: Scanning
) -> dict[str, Changed]:
    from vctl_plans.weights import change  # noqa: PLC0415  few want it

    old, new = (change.Version(one.path, one.manifest) for one in (before, after))
    try:
        with hashing(how.screen, "what differs", doing="reading") as progress:
            measured = change.largest_changes(old, new, found, progress=progress)
            return {
                one.tensor: Changed(
                    tensor=one.tensor, largest_relative=one.largest, is_broken=one.is_broken
                )
                for one in measured
            }
    except ImportError:
        how.screen.say("how much the numbers changed was not read: numpy is not installed")
        return {}
