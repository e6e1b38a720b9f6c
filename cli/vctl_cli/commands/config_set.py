"""`vctl config set`: a context's fields."""

from pathlib import Path
from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.session import session_of
from vctl_plans.errors import PlanError


def set_context(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The context.")],
    *,
    service: Service = "",
    unset: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="A field to take away, as fleet or password-file."),
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="KEY", help="Root of vctl's keys in etcd.")] = "",
    cacert: Annotated[
        str, typer.Option(metavar="FILE", help="The authority of etcd's certificate.")
    ] = "",
    cert: Annotated[str, typer.Option(metavar="FILE", help="Our own certificate.")] = "",
    key: Annotated[str, typer.Option(metavar="FILE", help="Its key.")] = "",
    user: Annotated[str, typer.Option(metavar="NAME", help="The user of etcd.")] = "",
    password_file: Annotated[
        str, typer.Option(metavar="FILE", help="Holds the user's password.")
    ] = "",
    token_file: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Holds a token of etcd's, instead of a user; read when needed."
        ),
    ] = "",
) -> ExitCode:
    """Make or change a context.

    What is given is kept under its name; what is not stays. A password or token is never kept
    there, only the name of the file that holds it. The first context becomes the current one.
    """
    from vctl_cli.configfile import FIELDS, written  # noqa: PLC0415  writes YAML

    session = session_of(ctx)
    given = {
        "fleet": session.shared.fleet,
        "endpoints": session.shared.endpoints,
        "service": service,
        "prefix": prefix,
        "user": user,
        **_files(
            cacert=cacert, cert=cert, key=key, password_file=password_file, token_file=token_file
        ),
    }
    fields = {field: value for field, value in given.items() if value}
    unknown = [field for field in unset or () if field not in FIELDS]
    if unknown:
        raise PlanError(
            f"a context has no field {unknown[0]!r}", path="--unset", hint=", ".join(FIELDS)
        )
    fields |= dict.fromkeys(unset or (), "")
    if not fields:
        hint = "give --fleet, --endpoints, --service or another field, or --unset FIELD"
        raise PlanError("nothing to set", path="context", hint=hint)
    is_new = written(session.world.config_path, name, fields)
    session.screen.say(f"context {name} {'made' if is_new else 'changed'}")
    return ExitCode.DONE


def _files(**given: str) -> dict[str, str]:
    """Return the files by field, each by a path that is the same from everywhere."""
    return {
        name.replace("_", "-"): str(Path(path).expanduser().absolute()) if path else ""
        for name, path in given.items()
    }
