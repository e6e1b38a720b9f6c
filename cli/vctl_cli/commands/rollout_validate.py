"""`vctl rollout validate`: whether a plan file says what vctl can do, without asking anybody."""

from typing import Annotated

import typer

from vctl_cli import variables
from vctl_cli.commands.rollout_start import checked, plan_file
from vctl_cli.exitcodes import ExitCode
from vctl_cli.planfile import Variables, to_yaml
from vctl_cli.planflags import Values
from vctl_cli.session import session_of
from vctl_plans.document import plan_steps


def validate(
    ctx: typer.Context,
    plans: Annotated[list[str], typer.Argument(metavar="PLAN...", help="Plan files; - for stdin.")],
    *,
    set_: Values = None,
    show: Annotated[bool, typer.Option("--show", help="Print each plan as it was read.")] = False,
) -> ExitCode:
    """Check plan files, without etcd and without a fleet.

    Fields, values and what goes together are checked; whether services, releases and bytes are
    there is seen when a rollout is started. The first plan that is wrong ends it with exit code 2.
    """
    session, given = session_of(ctx), Variables(variables.given(set_ or ()))
    contents = [plan_file(plan, session, given) for plan in plans]
    given.refuse_unused(", ".join(plans))
    for plan, content in zip(plans, contents, strict=True):
        document = checked(content)
        plan_steps(document)
        session.screen.say(f"{plan}: valid")
        if show:
            session.screen.exact(to_yaml(content))
    return ExitCode.DONE
