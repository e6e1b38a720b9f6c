"""`vctl version`: which vctl this is."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import NamedTuple

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.session import session_of

DISTRIBUTION = "vctl-rollout"


class Version(NamedTuple):
    """What can be told of this installation."""

    vctl: str
    python: str


def version(ctx: typer.Context) -> ExitCode:
    """Print the version."""
    from vctl_cli.render.document import show  # noqa: PLC0415

    found = of_installation()
    show(session_of(ctx), found._asdict(), kind="version", table=text())
    return ExitCode.DONE


def of_installation() -> Version:
    """Return the version of the installed distribution."""
    try:
        found = installed_version(DISTRIBUTION)
    except PackageNotFoundError:
        found = "unknown: not installed"
    return Version(found, platform.python_version())


def text() -> str:
    """Return the version in a line."""
    return f"vctl {of_installation().vctl}"
