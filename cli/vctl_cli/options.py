"""Options that more than one command takes, each declared once.

`Shared` holds what every command takes, and `shared` declares it for Typer (see `group`). The
variables that stand in for an option are read in `context`, where all sources meet.
"""

from enum import StrEnum
from typing import Annotated, NamedTuple

import typer


class Output(StrEnum):
    """The form of what goes to stdout."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Shared(NamedTuple):
    """What every command takes; empty where it was not given."""

    fleet: str = ""
    endpoints: str = ""
    context: str = ""
    output: Output | None = None
    timeout: str = ""
    quiet: bool = False
    yes: bool = False
    debug: bool = False

    def refined(self, nearer: "Shared") -> "Shared":
        """Return these options with those that *nearer* gives in their place."""
        return self._replace(**{k: v for k, v in nearer._asdict().items() if v})


def shared(
    *,
    fleet: Annotated[
        str, typer.Option(metavar="NAME", help="The fleet. [VCTL_FLEET; default: default]")
    ] = "",
    endpoints: Annotated[
        str,
        typer.Option(
            metavar="URL,...", help="etcd's addresses. [VCTL_ENDPOINTS or ETCDCTL_ENDPOINTS]"
        ),
    ] = "",
    context: Annotated[
        str, typer.Option(metavar="NAME", help="A context of ~/.config/vctl/config.yaml.")
    ] = "",
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help="The form of stdout. [default: table]")
    ] = None,
    timeout: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="The longest that the command takes, as in 30s or 10m; a rollout goes on.",
        ),
    ] = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask no question.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Declare the options of every command."""


Service = Annotated[
    str, typer.Option("--service", "-s", metavar="NAME", help="The service. [VCTL_SERVICE]")
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the history.")]
AllowDowntime = Annotated[
    bool,
    typer.Option(
        "--allow-downtime",
        help="Where engines have no place for both releases: unload what serves before loading.",
    ),
]
NoWatch = Annotated[
    bool, typer.Option("--no-watch", help="Return once it is written; do not follow it.")
]
Junit = Annotated[
    str, typer.Option("--junit", metavar="FILE", help="Write a JUnit test report of how it went.")
]
NewService = Annotated[
    bool, typer.Option("--new-service", help="The service does not exist yet: make it.")
]
OwnerTenant = Annotated[
    str,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="Of a new service: whose it is, so whose API keys reach it. [default: default]",
    ),
]
OnlyTenant = Annotated[
    str, typer.Option("--tenant", metavar="NAME", help="Only this tenant's services.")
]
DirectService = Annotated[
    bool,
    typer.Option("--direct", help="Of a new service: its clients call the engines themselves."),
]
KindOption = Annotated[
    str,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="adapter or model; prompt, index or plain: any files. [default: told from the files]",
    ),
]
MaxHeader = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="The longest safetensors header accepted, as in 64MiB; the format ends at 100 MB."
        " [default: 25 MB]",
    ),
]
Threads = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Threads. [default: one a core]")
]
Direct = Annotated[
    bool,
    typer.Option("--direct", help="Read past the page cache: it is left to the engine."),
]
Root = Annotated[
    str, typer.Option(metavar="b3:...", help="The Merkle root that the bytes must have.")
]
