"""`vctl rollout validate`: whether a plan file says what vctl can do, without asking anybody."""

from typing import Annotated

import typer

from vctl_cli.commands.rollout_start import Flags, checked, plan_content
from vctl_cli.exitcodes import ExitCode
from vctl_cli.planfile import to_yaml
from vctl_cli.session import session_of
from vctl_plans.document import plan_steps


def validate(
    ctx: typer.Context,
    plans: Annotated[list[str], typer.Argument(metavar="PLAN...", help="Plan files; - for stdin.")],
    *,
    show: Annotated[bool, typer.Option("--show", help="Print each plan as it was read.")] = False,
) -> ExitCode:
    """Check plan files, without etcd and without a fleet.

    Fields, values and what goes together are checked; whether services, releases and bytes are
    there is seen when a rollout is started. The first plan that is wrong ends it with exit code 2.
    """
    session = session_of(ctx)
    for plan in plans:
        content = plan_content(Flags(plan=plan), session)
        document = checked(content)
        plan_steps(document)
        session.screen.say(f"{plan}: valid")
        if show:
            session.screen.data(to_yaml(content))
    return ExitCode.DONE
