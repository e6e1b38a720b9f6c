"""A view as JSON, YAML or text; `kind` says which view it is, so that readers can tell."""

from collections.abc import Callable
from typing import Any

from vctl_cli.options import Output
from vctl_cli.session import Session


def show(
    session: Session,
    view: Any,
    *,
    kind: str,
    table: str | Callable[[], str],
    is_paged: bool = False,
) -> None:
    """Write *view* in the form that was asked for.

    Args:
        session: Says which form, and where to.
        view: A struct, or a mapping.
        kind: What the view is, as its first field.
        table: The text for people; a callable where making it costs time.
        is_paged: Whether it is read from its beginning, and may be long.
    """
    if session.output is Output.TABLE:
        text = table if isinstance(table, str) else table()
        if is_paged and session.screen.can_draw:
            from vctl_cli.render.pager import page  # noqa: PLC0415  few are that long

            page(session.screen, text, session.world.env)
        else:
            session.screen.data(text)
        return
    content = document(view, kind=kind)
    if session.output is Output.JSON:
        session.screen.exact(json_text(content, indent=2))
        return
    import yaml  # noqa: PLC0415  few want it

    session.screen.exact(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def line(view: Any, *, kind: str) -> str:
    """Return *view* as JSON on one line."""
    return json_text(document(view, kind=kind))


def json_text(content: Any, *, indent: int = 0) -> str:
    """Return *content* as JSON, on one line unless it is indented.

    JSON leaves DEL and the C1 controls as they are (RFC 8259 section 7), and a terminal acts on
    them: here they are escaped too, and read back the same.
    """
    import msgspec  # noqa: PLC0415  a table needs none of it

    raw = msgspec.json.encode(content)
    text = (msgspec.json.format(raw, indent=indent) if indent else raw).decode()
    return text.translate(_CONTROLS)


_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def yaml_document(content: dict[str, Any]) -> str:
    """Return *content* as one document of a stream."""
    import yaml  # noqa: PLC0415

    return f"---\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}"


def document(view: Any, *, kind: str) -> dict[str, Any]:
    """Return *view* as plain values, its kind first."""
    import msgspec  # noqa: PLC0415

    content: dict[str, Any] = msgspec.to_builtins(view, str_keys=True)
    return {"kind": kind, **content}
