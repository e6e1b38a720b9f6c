"""`vctl config get-contexts`: the contexts, and which one is current."""

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.render.document import show
from vctl_cli.session import session_of


class ContextView(msgspec.Struct, frozen=True, kw_only=True):
    """One context."""

    name: str
    fleet: str
    endpoints: str
    service: str
    is_current: bool


class ContextsView(msgspec.Struct, frozen=True):
    """All contexts."""

    file: str
    contexts: tuple[ContextView, ...]


def get_contexts(ctx: typer.Context) -> ExitCode:
    """List the contexts; * marks the current one."""
    from vctl_cli.configfile import load  # noqa: PLC0415  reads YAML

    session = session_of(ctx)
    path = session.world.config_path
    config = load(path)
    current = session.world.env.get("VCTL_CONTEXT") or config.current_context
    view = ContextsView(
        file=str(path),
        contexts=tuple(
            ContextView(
                name=name,
                fleet=each.fleet,
                endpoints=each.endpoints
                if isinstance(each.endpoints, str)
                else ",".join(each.endpoints),
                service=each.service,
                is_current=name == current,
            )
            for name, each in sorted(config.contexts.items())
        ),
    )
    show(session, view, kind="contexts", table=lambda: _text(view))
    return ExitCode.DONE


def _text(view: ContextsView) -> str:
    if not view.contexts:
        return f"{view.file} has no context: make one with vctl config set NAME --fleet F"
    rows = [("", "NAME", "FLEET", "ENDPOINTS", "SERVICE")]
    rows += [
        ("*" if c.is_current else "", c.name, c.fleet or "-", c.endpoints or "-", c.service or "-")
        for c in view.contexts
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
