"""`vctl agent init`: the files with which a node runs its agent and its gateway."""

import os
import socket
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.nodefiles import ENGINE_URLS, VARIABLES, Wishes, files
from vctl_cli.programs import command_of
from vctl_cli.render.document import show
from vctl_cli.session import Session, session_of
from vctl_plans.errors import PlanError, VctlError
from vctl_plans.names import check_name

_SECRET_MODE, _MODE = 0o600, 0o644


class NodeFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, or would be."""

    folder: str
    files: dict[str, str]  # content, by name


class Engine(StrEnum):
    """The kinds of engine."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TORCH = "torch"
    HOOK = "hook"


def init(
    ctx: typer.Context,
    *,
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where to write.")] = Path(
        "/etc/vctl"
    ),
    node: Annotated[
        str, typer.Option(metavar="NAME", help="The node. [default: this host's name]")
    ] = "",
    engine: Annotated[Engine | None, typer.Option(help="The engine. [default: vllm]")] = None,
    engine_url: Annotated[
        str, typer.Option(metavar="URL", help="Where it is. [default: as its kind listens]")
    ] = "",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where clients come in.")
    ] = "127.0.0.1:8080",
    gateway_url: Annotated[
        str, typer.Option(metavar="URL", help="Where peers reach this node's gateway.")
    ] = "",
    fleet_key_file: Annotated[
        str, typer.Option(metavar="FILE", help="The key that the fleet's gateways share.")
    ] = "",
    allowed_root: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="A folder that artifacts come from.")
    ] = None,
    user: Annotated[str, typer.Option(metavar="NAME", help="Whom systemd runs them as.")] = "vctl",
    no_conduct: Annotated[
        bool, typer.Option("--no-conduct", help="The agent does not stand for election.")
    ] = False,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the files and write none.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over files that are there.")
    ] = False,
) -> ExitCode:
    """Write what a node needs to run its agent and gateway.

    Settings of both, with every other setting as a comment; the variables by which they reach etcd;
    and units of systemd. On a terminal it asks for what was not given, elsewhere it takes the
    default. Nothing is started.
    """
    session = session_of(ctx)
    kind = engine.value if engine else session.ask("engine", default="vllm", choices=ENGINE_URLS)
    wishes = Wishes(
        fleet=_fleet(session),
        node=check_name(node or session.ask("node", default=_host()), what="--node"),
        engine=kind,
        engine_url=engine_url or session.ask("the engine's address", default=ENGINE_URLS[kind]),
        endpoints=",".join(session.target.settings.endpoints),
        listen=listen,
        gateway_url=gateway_url,
        fleet_key_file=fleet_key_file,
        allowed_roots=tuple(allowed_root or ()),
        conducts=not no_conduct,
        folder=str(directory.absolute()),
        programs=str(Path(command_of("vctl-agent")).parent),
        user=user,
    )
    return made(session, files(wishes), directory, is_printed=print_only, may_replace=force)


def made(
    session: Session,
    content: Mapping[str, str],
    folder: Path,
    *,
    is_printed: bool,
    may_replace: bool,
) -> ExitCode:
    """Write the files, or print them.

    Raises:
        PlanError: One of them is there already.
        VctlError: They cannot be written.
    """
    view = NodeFiles(folder=str(folder), files=dict(content))
    if is_printed:
        text = "\n".join(f"# --- {folder / name}\n{text}" for name, text in content.items())
        show(session, view, kind="node-files", table=text)
        return ExitCode.DONE
    there = [name for name in content if (folder / name).exists()]
    if there and not may_replace:
        raise PlanError(
            f"{folder} has {', '.join(there)} already",
            path="--dir",
            hint="look with --print; write over with --force",
        )
    _write(content, folder)
    show(session, view, kind="node-files", table="\n".join(str(folder / name) for name in content))
    session.screen.say(
        f"next: see {folder / VARIABLES}; then, with systemd:\n"
        f"  systemctl link {folder}/vctl-gateway.service {folder}/vctl-agent.service\n"
        "  systemctl enable --now vctl-gateway vctl-agent"
    )
    return ExitCode.DONE


def _write(content: Mapping[str, str], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in content.items():
            mode = _SECRET_MODE if name == VARIABLES else _MODE
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with os.fdopen(os.open(folder / name, flags, mode), "w") as file:
                os.fchmod(file.fileno(), mode)  # also of a file that was there
                file.write(text)
    except OSError as cause:
        raise VctlError(
            f"{cause.filename or folder} cannot be written: {cause.strerror}",
            hint="give another --dir, or --print",
        ) from cause


def _fleet(session: Session) -> str:
    """Return the fleet that was named, by option, variable or context; else ask."""
    known = session.target.keys.fleet
    return check_name(session.ask("fleet", default=known), what="--fleet")


def _host() -> str:
    """Return this host's name as far as a node's may be one."""
    return socket.gethostname().partition(".")[0].lower() or "node-1"
