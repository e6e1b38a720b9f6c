"""`vctl rollout show`: one rollout in full, also as a page to keep."""

from pathlib import Path
from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.recounting import RolloutRecord, read_record
from vctl_cli.render.document import show as show_document
from vctl_cli.render.record import record_text
from vctl_cli.session import Session, session_of
from vctl_plans.errors import PlanError


def show(
    ctx: typer.Context,
    rollout: Annotated[
        str,
        typer.Argument(
            metavar="[ID]", help="The rollout, or the beginning of its id. [default: the last]"
        ),
    ] = "",
    *,
    service: Service = "",
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a page that needs nothing else, with plots."
        ),
    ] = None,
) -> ExitCode:
    """Show one rollout in full.

    Its plan, each decision with who asked for it and why, how traffic was split, and what gateways
    counted for its guardrails. The page of --html shows the same over time: traffic by release,
    nodes that hold each release, failures and latency by release, and when each node had followed.
    """
    session = session_of(ctx)
    record = read_record(session, session.service(service), rollout)
    if html:
        _write(session, record, html)
    else:
        show_document(session, record, kind="rollout-record", table=lambda: record_text(record))
    return ExitCode.DONE


def _write(session: Session, record: RolloutRecord, place: Path) -> None:
    from vctl_cli.render.report import page  # noqa: PLC0415  few want it

    try:
        place.write_text(page(record), encoding="utf-8")
    except OSError as cause:
        hint = "name a file that this user may write"
        raise PlanError(
            f"{place} cannot be written: {cause.strerror or cause}", path="--html", hint=hint
        ) from cause
    session.screen.say(f"written: {place}")
