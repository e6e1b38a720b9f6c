"""`vctl version`: which vctl this is."""

import platform
from typing import NamedTuple

import typer

from vctl_cli import __version__
from vctl_cli.exitcodes import ExitCode
from vctl_cli.session import session_of


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
    """Return this installation's versions."""
    return Version(__version__, platform.python_version())


def text() -> str:
    """Return the version in a line."""
    return f"vctl {of_installation().vctl}"
