"""Groups whose commands are imported when they are used, and the options that all commands share.

Rules to keep: `vctl --help` and the completion of a verb import no command module, so `verbs.py`
holds each verb's one line of help. A shared option may stand before or after the verb; the one
nearer to the end wins.

The hard decision is `_Lean`: Typer checks every value with pydantic, whose import takes longer
than all the rest of a start. Text needs no check, and what was not given needs none either.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from vctl_cli.known import is_known
from vctl_cli.options import Shared, shared
from vctl_cli.verb import Verb, Verbs

_SETTINGS = {"help_option_names": ["-h", "--help"]}


class ReaderLeft(Exception):  # noqa: N818  nothing went wrong here
    """Nobody reads stdout any more."""


class Command(TyperCommand):
    """A command that finds the shared options in `ctx.obj.shared`, not among its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, the one for help too."""
        return _lean(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the command and return its exit code.

        Raises:
            ReaderLeft: Nobody reads stdout; Typer would exit with 1 if it saw the pipe break.
        """
        _take_shared(ctx)
        try:
            return super().invoke(ctx)
        except BrokenPipeError as cause:
            raise ReaderLeft from cause


class Group(TyperGroup):
    """A group that knows its commands by name until one is used."""

    def __init__(self, name: str, verbs: Verbs, *, more: Sequence[Any] = ()) -> None:
        super().__init__(
            name=name,
            help=verbs.summary,
            params=[*params_of(shared), *more],
            rich_markup_mode=None,
            no_args_is_help=True,
            context_settings=dict(_SETTINGS),
        )
        self.verbs = verbs

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, the one for help too."""
        return _lean(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the names, in the order in which they are written down."""
        return list(self.verbs.members)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return a command, imported now, or None."""
        if cmd_name not in self.commands and cmd_name in self.verbs.members:
            self.add_command(_built(cmd_name, self.verbs.members[cmd_name]), cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of *args*; close misses of its name are suggested."""
        if args[0] in self.verbs.members:
            return super().resolve_command(ctx, args)
        stub = _bare(args[0])
        self.commands = {name: self.commands.get(name, stub) for name in self.verbs.members}
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, v.summary) for name, v in self.verbs.members.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete a command's name without importing any."""
        members = self.verbs.members.items()
        stand_ins: Any = {name: _bare(name, verb) for name, verb in members}
        group = TyperGroup(name=self.name, commands=stand_ins, params=self.params)
        return group.shell_complete(ctx, incomplete)

    def invoke(self, ctx: Any) -> Any:
        """Note the shared options that stand before the verb, then run the verb."""
        _take_shared(ctx)
        return super().invoke(ctx)


def _built(name: str, verb: Verb | Verbs) -> Any:
    if isinstance(verb, Verbs):
        return Group(name, verb)
    module, _, function = verb.target.partition(":")
    found = getattr(import_module(f"vctl_cli.commands.{module}"), function)
    return command(name, found, passes_options=verb.passes_options)


def _bare(name: str, verb: Verb | Verbs | None = None) -> TyperCommand:
    return TyperCommand(name, short_help=verb.summary if verb else None)


def command(name: str, function: Any, *, passes_options: bool = False) -> Any:
    """Return *function* as a command that takes the shared options too.

    A form that the function's own options have, as `-o` of `vctl manifest`, is not the shared one.
    """
    made = _typer_command(name, function)
    made.context_settings["ignore_unknown_options"] = passes_options
    own = {form for param in made.params for form in param.opts}
    for param in params_of(shared):
        param.opts = [form for form in param.opts if form not in own]
        made.params.append(param)
    return made


def _typer_command(name: str, function: Any) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, cls=Command, context_settings=dict(_SETTINGS))(function)
    made: Any = typer.main.get_command(app)
    for param in made.params:
        if is_known(param.name, name):
            param.shell_complete = _from_fleet(param, name)
    return made


def _from_fleet(param: Any, verb: str) -> Any:
    """Return what completes a parameter's value with what a fleet, or the contexts, have."""

    def complete(ctx: Any, incomplete: str) -> list[Any]:
        from vctl_cli.completing import values  # noqa: PLC0415  only shells ask

        return values(ctx, incomplete, name=param.name, verb=verb)

    return complete


def params_of(function: Any) -> list[Any]:
    """Return the parameters that a function declares, for a command to take too."""
    params: list[Any] = _typer_command("declared", function).params
    return params


def _take_shared(ctx: Any) -> None:
    given = {name: ctx.params.pop(name) for name in Shared._fields}
    ctx.obj = ctx.obj.refined(Shared(**given))


_TAKEN_AS_IS = (str, Path)
"""Any text is one of these; none of our options asks more of a path."""


class _Lean:
    """Checks a value as Typer does, but only where there is something to check."""

    def __init__(self, param: Any) -> None:
        self._param = param

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return *value* as its parameter wants it."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if isinstance(value, str) and param.type_descriptor.annotation in _TAKEN_AS_IS:
            return param.type_descriptor.annotation(value)
        self._param._runtime_param = None  # noqa: SLF001  Typer makes its own now
        return self._param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _lean(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "_runtime_param", _Lean) is None:  # Typer 0.29 and later
            param._runtime_param = _Lean(param)  # noqa: SLF001
    return params
