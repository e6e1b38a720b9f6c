"""`vctl config set`: a context's fields."""

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
        typer.Option(metavar="FIELD", help="A field to take away: fleet, endpoints or service."),
    ] = None,
) -> ExitCode:
    """Make or change a context.

    --fleet, --endpoints and --service are kept under its name; what is not given stays. The first
    context becomes the current one.
    """
    from vctl_cli.configfile import FIELDS, written  # noqa: PLC0415  writes YAML

    session = session_of(ctx)
    given = {
        "fleet": session.shared.fleet,
        "endpoints": session.shared.endpoints,
        "service": service,
    }
    fields = {field: value for field, value in given.items() if value}
    unknown = [field for field in unset or () if field not in FIELDS]
    if unknown:
        raise PlanError(
            f"a context has no field {unknown[0]!r}", path="--unset", hint=", ".join(FIELDS)
        )
    fields |= dict.fromkeys(unset or (), "")
    if not fields:
        hint = "give --fleet, --endpoints or --service, or --unset FIELD"
        raise PlanError("nothing to set", path="context", hint=hint)
    is_new = written(session.world.config_path, name, fields)
    session.screen.say(f"context {name} {'made' if is_new else 'changed'}")
    return ExitCode.DONE
