"""`vctl release diff`: what two releases of a service do not share."""

from contextlib import closing
from typing import Annotated

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.reading import read_fleet, service_of
from vctl_cli.remote import credentials
from vctl_cli.render.differences import DifferenceView, difference_view
from vctl_cli.render.document import show
from vctl_cli.session import Session, session_of
from vctl_plans import sources, weights
from vctl_plans.errors import ArtifactError, PlanError
from vctl_plans.phase import Component
from vctl_plans.release import Artifact, Release
from vctl_plans.snapshot import Service as KnownService
from vctl_plans.units import bytes_text
from vctl_plans.wishing import existing_release

DIGITS = 15
PAIR = 2


class PartDiff(msgspec.Struct, frozen=True, kw_only=True):
    """One component in two releases."""

    component: str
    change: str  # same, changed, added or removed
    a_root: str  # empty: it is not in A
    b_root: str
    a_source: str
    b_source: str
    a_counter: int  # of the version vector; 0: it is not in A
    b_counter: int
    is_compared: bool  # whether both manifests could be read
    why_not: str  # empty: it was compared, or there is nothing to compare
    move_bytes: int  # to make B's from A's, where it was compared
    size_bytes: int  # of B's; 0: not known
    differences: tuple[DifferenceView, ...]  # tensors or files, where it was compared


class ReleaseDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Two releases of a service."""

    service: str
    a: int
    b: int
    a_vector: str
    b_vector: str
    is_equal: bool  # whether both serve the same bytes
    components: tuple[PartDiff, ...]


def diff(
    ctx: typer.Context,
    what: Annotated[
        list[str], typer.Argument(metavar="[SERVICE] A B", help="Numbers of two releases.")
    ],
    *,
    service: Service = "",
) -> ExitCode:
    """Show what two releases do not share.

    Components with their roots and counters; of those that differ the tensors, or files, where the
    manifests of both can be read here: nothing is hashed. Exit code 0: they serve the same bytes;
    1: they differ.
    """
    session = session_of(ctx)
    given, numbers = _given(what)
    if given and service and given != service:
        hint = "leave one of them out"
        raise PlanError(f"{given} and --service {service} both name one", path="service", hint=hint)
    name = session.service(given or service)
    known = service_of(session.target.keys, read_fleet(session), name)
    view = release_diff(session, known, *numbers)
    show(session, view, kind="release-diff", table=lambda: _text(view), is_paged=True)
    return ExitCode.DONE if view.is_equal else ExitCode.FAILED


def _given(what: list[str]) -> tuple[str, tuple[int, int]]:
    """Return the service, or "", and both numbers.

    Raises:
        PlanError: They are not one or two words and two numbers.
    """
    name, numbers = (what[0], what[1:]) if len(what) == PAIR + 1 else ("", what)
    if len(numbers) != PAIR or not all(each.isdecimal() and int(each) for each in numbers):
        hint = "as in vctl release diff support 7 8"
        raise PlanError(f"{' '.join(what)!r} is not [SERVICE] A B", path="A B", hint=hint)
    return name, (int(numbers[0]), int(numbers[1]))


def release_diff(session: Session, service: KnownService, a: int, b: int) -> ReleaseDiff:
    """Return what releases *a* and *b* do not share.

    Raises:
        PlanError: One of them does not exist.
    """
    before, after = (existing_release(service, number) for number in (a, b))
    names = [n for n in Component if n in before.components or n in after.components]
    parts = tuple(_part(session, name, before, after) for name in names)
    return ReleaseDiff(
        service=service.name,
        a=a,
        b=b,
        a_vector=before.vector_text,
        b_vector=after.vector_text,
        is_equal=all(part.change == "same" for part in parts),
        components=parts,
    )


def _part(session: Session, name: Component, before: Release, after: Release) -> PartDiff:
    old, new = before.components.get(name), after.components.get(name)
    part = PartDiff(
        component=name.value,
        change=_change(old, new),
        a_root=old.root if old else "",
        b_root=new.root if new else "",
        a_source=old.source if old else "",
        b_source=new.source if new else "",
        a_counter=before.vector.get(name, 0),
        b_counter=after.vector.get(name, 0),
        is_compared=False,
        why_not="",
        move_bytes=0,
        size_bytes=new.size_bytes if new else 0,
        differences=(),
    )
    return _compared(session, part, old, new) if old and new and part.change == "changed" else part


def _change(old: Artifact | None, new: Artifact | None) -> str:
    if old and new:
        return "same" if old.root == new.root else "changed"
    return "added" if new else "removed"


def _compared(session: Session, part: PartDiff, old: Artifact, new: Artifact) -> PartDiff:
    """Return *part* with what differs, where both manifests can be read."""
    try:
        found = weights.diff(_manifest(session, old), _manifest(session, new))
    except ArtifactError as problem:
        return msgspec.structs.replace(part, why_not=problem.message)
    return msgspec.structs.replace(
        part,
        is_compared=True,
        move_bytes=sum(each.move_bytes for each in found),
        differences=tuple(map(difference_view, found)),
    )


def _manifest(session: Session, artifact: Artifact) -> weights.Manifest:
    """Return the manifest beside an artifact, which must be that of its root.

    Raises:
        ArtifactError: It cannot be read here, or is of other bytes.
    """
    if artifact.adopted:
        raise ArtifactError(f"nobody has read the files of {artifact.adopted}")
    with closing(sources.connect(artifact.source, credentials(session))) as source:
        manifest = source.manifest(root=artifact.root)
    if manifest is None:
        raise ArtifactError(f"no manifest lies beside {artifact.source}")
    return manifest


def _text(view: ReleaseDiff) -> str:
    lines = [
        f"release {view.a} -> {view.b} of {view.service}",
        f"{view.a_vector} -> {view.b_vector}",
    ]
    lines += [line for part in view.components for line in _lines(part)]
    return "\n".join(lines)


def _lines(part: PartDiff) -> list[str]:
    a, b = part.a_root[:DIGITS] or "none", part.b_root[:DIGITS] or "none"
    if part.change == "same":
        return [f"{part.component:<9} same      {b}"]
    lines = [f"{part.component:<9} {part.change:<9} {a} -> {b}"]
    lines += [f"          A  {part.a_source}"] * bool(part.a_source)
    lines += [f"          B  {part.b_source}"] * bool(part.b_source)
    if part.why_not:
        lines.append(f"          not compared: {part.why_not}")
    if part.is_compared:
        lines += [f"          {each.text}" for each in part.differences]
        whole = f" of {bytes_text(part.size_bytes)}" if part.size_bytes else ""
        lines.append(f"          {bytes_text(part.move_bytes)}{whole} to move")
    return lines
