"""`vctl release show`: one release in full."""

from typing import Annotated

import msgspec
import typer

from vctl_cli.commands.release_list import release_state
from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.reading import read_fleet, service_of
from vctl_cli.render.document import show as show_document
from vctl_cli.session import session_of
from vctl_plans.errors import PlanError
from vctl_plans.release import Release
from vctl_plans.snapshot import Service as KnownService
from vctl_plans.units import bytes_text


class ReleaseView(msgspec.Struct, frozen=True, kw_only=True):
    """A release, and what it is to its service now."""

    release: Release
    state: str


def show(
    ctx: typer.Context,
    number: Annotated[int, typer.Argument(metavar="N", min=1, help="The release's number.")],
    *,
    service: Service = "",
) -> ExitCode:
    """Show one release in full."""
    session = session_of(ctx)
    known, name = read_fleet(session), session.service(service)
    view = release_view(service_of(session.target.keys, known, name), number)
    show_document(session, view, kind="release", table=lambda: _text(view))
    return ExitCode.DONE


def release_view(service: KnownService, number: int) -> ReleaseView:
    """Return the view of one release.

    Raises:
        PlanError: It does not exist.
    """
    if number not in service.releases:
        known = ", ".join(str(n) for n in sorted(service.releases)) or "none"
        text = f"{service.name} has no release {number}; known: {known}"
        raise PlanError(text, path="release")
    return ReleaseView(release=service.releases[number], state=release_state(service, number))


def _text(view: ReleaseView) -> str:
    release = view.release
    by = "@".join(part for part in (release.by.user, release.by.host) if part)
    lines = [
        f"release   {release.number} of {release.service}",
        f"state     {view.state or 'never served'}",
        f"vector    {release.vector_text}",
        f"digest    {release.digest}",
        *([f"by        {by}"] if by else []),
        *([f"reason    {release.reason}"] if release.reason else []),
        *([f"note      {release.unverified}"] if release.unverified else []),
    ]
    for name, made in sorted(release.components.items()):
        rank = f", rank {made.rank}" if made.rank else ""
        base = f", of base {made.base_name}" if made.base_name else ""
        lines += [f"{name:<9} {made.root}", f"          {made.source}",
                  f"          {bytes_text(made.size_bytes)}{rank}{base}"]  # fmt: skip
    return "\n".join(lines)
