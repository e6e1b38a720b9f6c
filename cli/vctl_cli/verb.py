"""What a verb is: where its command lies, and its line in a list. Imports nothing that costs."""

from collections.abc import Mapping
from typing import NamedTuple


class Verb(NamedTuple):
    """Where a command is, and its line in the list of commands."""

    target: str  # module:function, below vctl_cli.commands
    summary: str
    passes_options: bool = False  # options that are not its own go to a program that it starts


class Verbs(NamedTuple):
    """Commands under one word."""

    summary: str
    members: Mapping[str, "Verb | Verbs"]
