"""`vctl`: from arguments to an exit code. `main` is the only place that exits.

What is raised on purpose becomes one line on stderr and one more with what to try; everything else
is a bug of vctl, said so. Tracebacks are for `--debug`.
"""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from vctl_cli.exitcodes import ExitCode, of_error
from vctl_cli.group import Group, ReaderLeft, params_of
from vctl_cli.render.screen import Screen
from vctl_cli.session import Session, session_of
from vctl_cli.verbs import ROOT
from vctl_cli.world import World
from vctl_plans.errors import InvariantError, VctlError

PROGRAM = "vctl"
COMPLETE_VARIABLE = "_VCTL_COMPLETE"

# Where this class is differs between Typer's versions; what `BadParameter` derives from does not.
_Refusal: Any = typer.BadParameter.__mro__[2]


def main() -> None:
    """Run `vctl` and exit."""
    arguments = sys.argv[1:]
    if isinstance(sys.stdout, TextIOWrapper):
        # What somebody gave as a reason may have characters that a terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = run(arguments, World.real())
    except ReaderLeft:
        # Nothing more can be said, at the interpreter's end either, and nobody saw how it ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.INTERRUPTED
    sys.exit(code)


def run(arguments: Sequence[str], world: World) -> ExitCode:
    """Run one command and return how it ended; errors are told on *world*'s stderr.

    Raises:
        ReaderLeft: Nobody reads stdout any more.
    """
    is_debug = "--debug" in arguments
    try:
        return _dispatch(arguments, world)
    except ReaderLeft:
        raise
    except KeyboardInterrupt:
        _tell(world, "interrupted", hint="a rollout that was started goes on: vctl rollout watch")
        return ExitCode.INTERRUPTED
    except typer.Abort:
        _tell(world, "nothing was done")
        return ExitCode.USAGE
    except VctlError as error:
        _trace(is_debug)
        is_bug = isinstance(error, InvariantError)
        prefix = "a bug in vctl: " if is_bug else ""
        _tell(world, f"{prefix}{error.message}", hint=error.hint)
        return of_error(error)
    except Exception as error:  # noqa: BLE001  the one place where everything ends
        _trace(is_debug)
        what = f"a bug in vctl: {type(error).__name__}: {error}"
        _tell(world, what, hint="run it again with --debug, and report what it shows")
        return ExitCode.BUG


def _dispatch(arguments: Sequence[str], world: World) -> ExitCode:
    try:
        code = command().main(
            list(arguments),
            prog_name=PROGRAM,
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
            obj=Session(world),
        )
    except _Refusal as error:
        return _refuse(error, world)
    except typer.Exit as stop:
        return ExitCode(stop.exit_code)
    if code == ExitCode.INTERRUPTED and not isinstance(code, ExitCode):
        raise KeyboardInterrupt  # Typer made a number of it, and nobody has told of it
    return ExitCode(code or 0)


def command() -> Group:
    """Return the whole program as a command."""
    return Group(PROGRAM, ROOT, more=params_of(_root))


def _print_version(ctx: typer.Context, value: bool) -> None:  # noqa: FBT001  Typer calls it so
    if value:
        from vctl_cli.commands.version import text  # noqa: PLC0415

        session_of(ctx).screen.data(text())
        raise typer.Exit


def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Declare what only `vctl` itself takes."""


def _refuse(error: Any, world: World) -> ExitCode:
    """Tell what is wrong with the arguments, and where help is."""
    text = error.format_message().rstrip(".")
    if text.startswith("Usage:"):  # a group without a command: its help is the message
        print(text, file=world.err)
        return ExitCode.USAGE
    context = getattr(error, "ctx", None)
    where = context.command_path if context else PROGRAM
    text = text.replace("Value error, ", "")  # pydantic's word for its own kind of error
    _tell(world, text[:1].lower() + text[1:], hint=f"see {where} --help")
    return ExitCode.USAGE


def _tell(world: World, message: str, *, hint: str = "") -> None:
    if world.env.get("GITHUB_ACTIONS") == "true":
        from vctl_cli.render.ci import annotation  # noqa: PLC0415  only there

        text = f"{message}\n{hint}" if hint else message
        print(annotation("error", text), file=world.err)
        return
    screen = Screen(world.out, world.err)
    screen.complain(f"{PROGRAM}: {message}")
    if hint:
        screen.complain(f"  {hint}")


def _trace(is_wanted: bool) -> None:  # noqa: FBT001
    if is_wanted:
        import traceback  # noqa: PLC0415

        traceback.print_exc()
