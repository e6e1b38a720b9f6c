"""`vctl agent run`: the node's agent, in this process's place."""

import os
from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.programs import command_of
from vctl_cli.session import session_of

PROGRAM = "vctl-agent"


def run(
    ctx: typer.Context,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of vctl-agent.")
    ] = None,
) -> ExitCode:
    """Start vctl-agent in this process's place.

    All other arguments go to vctl-agent; its own help is at vctl agent run -- --help
    """
    shared = session_of(ctx).shared
    given = [("--fleet", shared.fleet), ("--endpoints", shared.endpoints)]
    options = [part for name, value in given if value for part in (name, value)]
    program = command_of(PROGRAM)
    os.execv(program, [program, *options, *(arguments or [])])  # noqa: S606  no shell is wanted
