"""`vctl release list`: a service's releases."""

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.reading import read_fleet, service_of
from vctl_cli.render.document import show
from vctl_cli.render.table import table
from vctl_cli.session import session_of
from vctl_plans.phase import Component
from vctl_plans.release import Release
from vctl_plans.snapshot import Service as KnownService

_SHOWN_DIGITS = 15  # b3: and 12 of the root's


class ReleaseLine(msgspec.Struct, frozen=True, kw_only=True):
    """One release, and what it is to the service now."""

    number: int
    vector: str
    state: str  # serves, candidate, instant, good, revoked, or empty
    adapter_root: str
    roots: dict[Component, str]
    reason: str


class ReleaseList(msgspec.Struct, frozen=True, kw_only=True):
    """A service's releases by number."""

    service: str
    releases: tuple[ReleaseLine, ...]


def list_releases(ctx: typer.Context, *, service: Service = "") -> ExitCode:
    """List a service's releases."""
    session = session_of(ctx)
    known, name = read_fleet(session), session.service(service)
    view = releases_view(service_of(session.target.keys, known, name))
    show(session, view, kind="releases", table=lambda: _text(view), is_paged=True)
    return ExitCode.DONE


def releases_view(service: KnownService) -> ReleaseList:
    """Return the view of a service's releases."""
    lines = (_line(service, release) for _, release in sorted(service.releases.items()))
    return ReleaseList(service=service.name, releases=tuple(lines))


def _line(service: KnownService, release: Release) -> ReleaseLine:
    return ReleaseLine(
        number=release.number,
        vector=release.vector_text,
        state=release_state(service, release.number),
        adapter_root=release.adapter.root if release.adapter else "",
        roots={name: made.root for name, made in sorted(release.components.items())},
        reason=release.reason,
    )


def release_state(service: KnownService, number: int) -> str:
    """Return what a release is to its service now."""
    route = service.current_route
    states = (
        ("serves", route.stable == number),
        ("candidate", route.candidate == number),
        ("override", number in route.serving),
        ("revoked", number in route.revoked),
        ("instant", number in route.instant),
        ("good", number in route.good),
    )
    return next((state for state, holds in states if holds), "")


def _text(view: ReleaseList) -> str:
    rows = [
        (str(r.number), r.vector, r.state or "-", r.adapter_root[:_SHOWN_DIGITS] or "-", r.reason)
        for r in view.releases
    ]
    return table(("RELEASE", "VECTOR", "STATE", "ADAPTER", "REASON"), rows)
