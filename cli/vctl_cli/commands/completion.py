"""`vctl completion`: a shell's completion script."""

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

from vctl_cli.exitcodes import ExitCode
from vctl_cli.session import session_of


class Shell(StrEnum):
    """The shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    ctx: typer.Context,
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> ExitCode:
    """Print a shell's completion script.

    For bash: source <(vctl completion bash)
    """
    session_of(ctx).screen.exact(script(shell))
    return ExitCode.DONE


def script(shell: Shell) -> str:
    """Return the completion script of *shell*."""
    return get_completion_script(prog_name="vctl", complete_var="_VCTL_COMPLETE", shell=shell.value)
