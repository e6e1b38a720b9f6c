"""What a shell is answered when a person presses the tab key: verbs, options, and what exists.

Rules to keep: a verb is completed without Typer and without etcd, for each key pressed waits for
it; what a fleet knows is read within `BUDGET_S` or not at all; and nothing is ever said on stderr,
in the midst of a line that a person types.

The scripts are Typer's (`vctl completion`), and so are the variables by which they ask.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from vctl_cli.verb import Verbs
from vctl_cli.verbs import ROOT

if TYPE_CHECKING:
    from vctl_cli.known import Kind

BUDGET_S = 0.1
"""For reading what exists; the process itself has begun by then, and all is within 200 ms."""
BUDGET_VARIABLE = "VCTL_COMPLETE_TIMEOUT_S"
"""Gives it more, where etcd is far away."""

MOST = 500
"""Values that are suggested: one page of etcd's."""

_QUOTING = frozenset("'\"\\")


class Item(NamedTuple):
    """One suggestion."""

    value: str
    help: str = ""


def answer(instruction: str, env: Mapping[str, str]) -> tuple[str, int]:
    """Return what the shell is to read, and the exit code.

    Args:
        instruction: ``complete_bash``, ``complete_zsh`` or ``complete_fish``.
        env: The words as the shell's script passes them.
    """
    shell = instruction.removeprefix("complete_")
    args, incomplete = _words(shell, env)
    return _formatted(shell, env, suggestions(args, incomplete))


def suggestions(args: list[str], incomplete: str) -> list[Item]:
    """Return what may stand after *args*, beginning with *incomplete*."""
    group = _group(args)
    if group is None or incomplete.startswith("-"):
        return _of_commands(args, incomplete)
    return [
        Item(name, member.summary)
        for name, member in group.members.items()
        if name.startswith(incomplete)
    ]


def _group(args: Iterable[str]) -> Verbs | None:
    """Return the group whose verb comes next; None: something else may come."""
    at: Any = ROOT
    for word in args:
        at = at.members.get(word) if isinstance(at, Verbs) else None
    return at if isinstance(at, Verbs) else None


def _of_commands(args: list[str], incomplete: str) -> list[Item]:
    """Ask the commands themselves, for options and values."""
    from vctl_cli.app import COMPLETE_VARIABLE, PROGRAM, command  # noqa: PLC0415
    from vctl_cli.session import Session  # noqa: PLC0415
    from vctl_cli.world import World  # noqa: PLC0415

    base = _click_completion()
    asked: Any = type("Asked", (base,), dict.fromkeys(base.__abstractmethods__))
    context = {"obj": Session(World.real())}
    found = asked(command(), context, PROGRAM, COMPLETE_VARIABLE).get_completions(args, incomplete)
    return [Item(str(each.value), each.help or "") for each in found]


def _click_completion() -> Any:
    """Return Click's class; Typer has a Click of its own in newer versions."""
    from importlib import import_module  # noqa: PLC0415

    try:
        return import_module("typer._click.shell_completion").ShellComplete
    except ImportError:
        return import_module("click.shell_completion").ShellComplete


def values(ctx: Any, incomplete: str, *, name: str, verb: str) -> list[Any]:
    """Return what exists for the parameter *name* of *verb*; nothing while etcd is away."""
    from vctl_cli.known import kind_of  # noqa: PLC0415

    kind = kind_of(name, verb)
    if kind is None:
        return []
    budget_s = float(ctx.obj.world.env.get(BUDGET_VARIABLE) or BUDGET_S)
    found = _in_time(lambda: _named(ctx, kind, incomplete), budget_s)
    return [_Suggestion(each) for each in found if each.startswith(incomplete)]


class _Suggestion:
    """What Click calls a completion item: read, never made by it here."""

    type = "plain"
    help = ""

    def __init__(self, value: str) -> None:
        self.value = value


def _in_time(read: Callable[[], list[str]], budget_s: float) -> list[str]:
    """Return what *read* returns, or nothing when it fails or takes too long.

    On a thread, since looking up a host's name can't be given a time limit.
    """
    import threading  # noqa: PLC0415

    found: list[str] = []

    def act() -> None:
        try:
            found.extend(read())
        except Exception:  # noqa: BLE001  a shell's line is no place for any of them
            return

    reading = threading.Thread(target=act, daemon=True)
    reading.start()
    reading.join(budget_s)
    return [] if reading.is_alive() else found


def _named(ctx: Any, kind: "Kind", incomplete: str) -> list[str]:
    from vctl_cli.context import read_config, resolve  # noqa: PLC0415
    from vctl_cli.known import Kind  # noqa: PLC0415

    world = ctx.obj.world
    if kind is Kind.CONTEXT:
        path = world.config_path
        return sorted(read_config(path).contexts) if path.is_file() else []
    target = resolve(_shared(ctx), world.env, world.config_path)
    keys, reader = target.keys, world.open_reader(target.settings)
    try:
        if kind is Kind.NODE:
            return _last_words(reader.names(keys.nodes + incomplete, most=MOST), keys.nodes)
        if kind is Kind.RELEASE:
            releases = keys.releases(ctx.params.get("service") or target.service)
            numbers = _last_words(reader.names(releases, most=MOST), releases)
            return [number.lstrip("0") for number in reversed(numbers)]
        return _services(reader, keys.services, incomplete)
    finally:
        reader.close()


def _services(reader: Any, prefix: str, incomplete: str) -> list[str]:
    """Return the services: each has keys of its own, of which one says enough."""
    found = _last_words(reader.names(prefix + incomplete, most=MOST), prefix)
    return sorted({each.partition("/")[0] for each in found})


def _last_words(keys: Iterable[str], prefix: str) -> list[str]:
    return [key.removeprefix(prefix) for key in keys]


def _shared(ctx: Any) -> Any:
    """Return the shared options of the line so far, those nearer to its end first."""
    from vctl_cli.options import Shared  # noqa: PLC0415

    found = Shared()
    while ctx is not None:
        given = {name: ctx.params.get(name) for name in ("fleet", "endpoints", "context")}
        found = Shared(**{n: v for n, v in given.items() if v}).refined(found)
        ctx = ctx.parent
    return found


# -- the shells --------------------------------------------------------------------------------


def _words(shell: str, env: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the words before the cursor without the program's name, and what is begun there."""
    if shell == "bash":
        words = _split(env.get("COMP_WORDS", ""))
        at = int(env.get("COMP_CWORD", "1"))
        return words[1:at], words[at] if at < len(words) else ""
    line = env.get("_TYPER_COMPLETE_ARGS", "")
    words = _split(line)[1:]
    if words and not line.endswith(" "):
        return words[:-1], words[-1]
    return words, ""


def _split(line: str) -> list[str]:
    if not _QUOTING.intersection(line):
        return line.split()
    import shlex  # noqa: PLC0415  few lines have quotes

    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    found: list[str] = []
    try:
        found.extend(lexer)
    except ValueError:  # a quote is still open: what follows it is the word that is begun
        found.append(lexer.token)
    return found


def _formatted(shell: str, env: Mapping[str, str], items: list[Item]) -> tuple[str, int]:
    if shell == "zsh":
        return _for_zsh(items), 0
    if shell == "fish":
        if env.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
            return "", int(not items)  # 1: fish completes files
        lines = (f"{i.value}\t{' '.join(i.help.split())}" if i.help else i.value for i in items)
        return "\n".join(lines), 0
    return "\n".join(item.value for item in items), 0


def _for_zsh(items: list[Item]) -> str:
    if not items:
        return "_files"
    shown = "\n".join(
        f'"{_escaped(i.value)}":"{_escaped(i.help)}"' if i.help else f'"{_escaped(i.value)}"'
        for i in items
    )
    return f"_arguments '*: :(({shown}))'"


def _escaped(text: str) -> str:
    """Return *text* as it may stand between double quotes within single ones, in `eval`."""
    for plain, escaped in (
        ('"', '""'),
        ("'", "''"),
        ("$", "\\$"),
        ("`", "\\`"),
        (":", r"\\:"),
    ):
        text = text.replace(plain, escaped)
    return text


def main(instruction: str) -> int:
    """Answer the shell that asks through this process's environment."""
    try:
        text, code = answer(instruction, os.environ)
    except Exception:  # noqa: BLE001  a shell's line is no place for any of them
        return 1
    if text:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    return code
