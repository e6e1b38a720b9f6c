"""`vctl doctor`: what is wrong with the fleet, or may become so, and what mends it."""

from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.render.document import show
from vctl_cli.session import session_of


def doctor(
    ctx: typer.Context,
    *,
    artifacts: Annotated[
        bool,
        typer.Option(
            "--artifacts",
            help="Have every node look whether it can still read, at its source, what is served or"
            " may be gone back to.",
        ),
    ] = False,
) -> ExitCode:
    """Look for what is wrong, and say what mends it.

    Reads what etcd and the nodes say of themselves, and asks nodes for nothing but with
    --artifacts. Each finding says how bad it is, where, and the next thing to do; what an engine
    lacks is named with the setting that turns it on. Exit status 1: there is an error; warnings
    alone are 0.
    """
    from vctl_cli.diagnosing import read_diagnosis  # noqa: PLC0415  few commands need it
    from vctl_cli.render.diagnosis import diagnosis_text  # noqa: PLC0415

    session = session_of(ctx)
    view = read_diagnosis(session, asks_nodes=artifacts)
    show(session, view, kind="diagnosis", table=lambda: diagnosis_text(view))
    return view.exit_code
