"""`python -m vctl_cli.manpage`: man pages and completion scripts, made from the commands.

One page for `vctl` and one for each command, in man's own macros (man(7)), and one script a shell.
They are committed and installed as they are: `--check` tells which are stale and exits 1. The same
commands always give the same bytes.
"""

import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vctl_cli.app import PROGRAM, command
from vctl_cli.commands.completion import Shell, script
from vctl_cli.exitcodes import ExitCode
from vctl_cli.generated import Generated
from vctl_cli.group import Group

REVISED = "2026-11-29"
"""The pages' date: man wants one. It is changed with a release, by hand."""

LINE_CHARS = 78

MAN_FOLDER = Path("man")
COMPLETION_FOLDER = Path("completions")
_COMPLETION_FILES = {Shell.BASH: "vctl.bash", Shell.ZSH: "_vctl", Shell.FISH: "vctl.fish"}

Words = tuple[str, ...]

EXIT_CODES: Mapping[ExitCode, str] = {
    ExitCode.DONE: "Converged, rolled back as asked, verified, or done as asked.",
    ExitCode.FAILED: "Failed, or verification found a difference.",
    ExitCode.USAGE: "Wrong usage, or a plan that does not validate.",
    ExitCode.OTHERWISE: "Ended otherwise than asked: rolled back, aborted or superseded.",
    ExitCode.PAUSED: "Paused: it waits for a person.",
    ExitCode.TIMED_OUT: "The command's own --timeout ran out; the rollout goes on.",
    ExitCode.NO_STORE: "etcd could not be reached, or refused.",
    ExitCode.NOT_NOW: "Not allowed in the present phase; the message names what is.",
    ExitCode.UNCONFIRMED: "Done, but the nodes that are named did not confirm it.",
    ExitCode.BUG: "A bug in vctl.",
    ExitCode.INTERRUPTED: "Interrupted; the rollout goes on.",
}

VARIABLES: Mapping[str, str] = {
    "VCTL_FLEET, VCTL_SERVICE, VCTL_CONTEXT": "Stand in for --fleet, --service and --context.",
    "VCTL_ENDPOINTS, ETCDCTL_ENDPOINTS": "etcd's addresses, with commas between them.",
    "ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY": "TLS files; each has a VCTL_ form too.",
    "ETCDCTL_USER": "user:password.",
    "NO_COLOR": "No colour, if set to anything.",
}


def files() -> dict[Path, str]:
    """Return the content of every generated file, by its path below the repository's root."""
    made = {
        MAN_FOLDER / f"{'-'.join(words)}.1": page(words, cmd) for words, cmd in _commands(command())
    }
    for shell, name in _COMPLETION_FILES.items():
        made[COMPLETION_FOLDER / name] = script(shell) + "\n"
    return made


def _commands(group: Group, words: Words = (PROGRAM,)) -> Iterator[tuple[Words, Any]]:
    """Yield `vctl` and every command below it, with the words that a person types."""
    yield words, group
    for verb in group.list_commands(None):
        found = group.get_command(None, verb)
        if isinstance(found, Group):
            yield from _commands(found, (*words, verb))
        else:
            yield (*words, verb), found


def page(words: Words, cmd: Any) -> str:
    """Return the page of one command in roff."""
    name = "-".join(words)
    summary, _, rest = (cmd.help or "").partition("\n\n")
    context = cmd.make_context(" ".join(words), [], resilient_parsing=True)
    lines = [
        f'.TH "{_escaped(name.upper())}" 1 "{REVISED}" "vctl" "vctl manual"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escaped(' '.join(words))}",
        *_text(" ".join(cmd.collect_usage_pieces(context))),
    ]
    if rest:
        lines += [".SH DESCRIPTION", *_paragraphs(rest)]
    lines += _commands_section(name, cmd) if isinstance(cmd, Group) else []
    lines += _options(cmd, context)
    lines += [".SH EXIT STATUS"]
    lines += [part for code, text in EXIT_CODES.items() for part in _item(str(int(code)), text)]
    lines += [".SH ENVIRONMENT"]
    lines += [part for variable, text in VARIABLES.items() for part in _item(variable, text)]
    lines += [".SH FILES", *_item("~/.config/vctl/config.yaml", "Contexts.")]
    return "\n".join([*lines, ""])


def _commands_section(name: str, group: Group) -> list[str]:
    lines = [".SH COMMANDS"]
    for verb, about in group.verbs.members.items():
        lines += [".TP", f".BR {_escaped(f'{name}-{verb}')} (1)", *_text(about.summary)]
    return lines


def _options(cmd: Any, context: Any) -> list[str]:
    records = [
        (param.param_type_name, *record)
        for param in cmd.get_params(context)
        if (record := param.get_help_record(context))
    ]
    lines: list[str] = []
    for kind, title in (("argument", ".SH ARGUMENTS"), ("option", ".SH OPTIONS")):
        own = [(term, text) for of_kind, term, text in records if of_kind == kind]
        lines += [title] * bool(own) + [part for term, text in own for part in _item(term, text)]
    return lines


def _item(term: str, text: str) -> list[str]:
    return [".TP", f".B {_escaped(term)}", *_text(text)]


def _paragraphs(text: str) -> list[str]:
    """Return paragraphs, with a break before each but the first, which follows its heading."""
    return [line for part in text.split("\n\n") for line in (".PP", *_text(part))][1:]


def _text(text: str) -> list[str]:
    """Return running text as lines of the length that mandoc(1) asks for."""
    words = " ".join(text.split())
    lines = textwrap.wrap(
        _escaped(words), LINE_CHARS, break_long_words=False, break_on_hyphens=False
    )
    return [f"\\&{line}" if line.startswith((".", "\\(aq")) else line for line in lines]


def _escaped(text: str) -> str:
    """Return *text* with what roff would read as its own escaped (groff_man(7))."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def _there(root: Path) -> Iterator[Path]:
    for folder in (MAN_FOLDER, COMPLETION_FOLDER):
        for path in (root / folder).glob("*"):
            if path.is_file():
                yield path.relative_to(root)


GENERATED = Generated("vctl_cli.manpage", files, _there)
stale, write, main = GENERATED.stale, GENERATED.write, GENERATED.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
