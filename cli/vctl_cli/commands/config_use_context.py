"""`vctl config use-context`: where commands act from now on."""

from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.session import session_of


def use_context(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The context.")],
) -> ExitCode:
    """Act on a context from now on."""
    from vctl_cli.configfile import used  # noqa: PLC0415  writes YAML

    session = session_of(ctx)
    used(session.world.config_path, name)
    session.screen.say(f"commands act on context {name} now")
    return ExitCode.DONE
