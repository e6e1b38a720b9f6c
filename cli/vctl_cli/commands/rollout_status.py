"""`vctl rollout status`: where a service's rollout stands, in one look."""

import msgspec
import typer

from vctl_cli.ending import exit_code, has_ended
from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.reading import read_fleet, read_progress, service_of
from vctl_cli.render.document import show
from vctl_cli.session import session_of
from vctl_cli.watching import tell_next_steps
from vctl_plans.errors import TransitionError
from vctl_plans.keys import Keys
from vctl_plans.rollout import Progress, Rollout, elapsed_s, judged
from vctl_plans.route import Route
from vctl_plans.snapshot import Fleet
from vctl_plans.status import NodeStatus, node_status


class RolloutView(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout and the nodes as they stand to it."""

    rollout: Rollout
    route: Route
    elapsed_s: float  # how long the phase had lasted at the conductor's last checkpoint
    judged: str  # what the guardrails said last in this phase
    nodes: tuple[NodeStatus, ...]


def status(ctx: typer.Context, *, service: Service = "") -> ExitCode:
    """Show a service's rollout.

    The exit code is that of a rollout that has ended or paused; 0 while it runs.
    """
    session = session_of(ctx)
    name = session.service(service)
    view = rollout_view(
        session.target.keys, read_fleet(session), name, read_progress(session, name)
    )
    show(session, view, kind="rollout-status", table=lambda: _text(view))
    tell_next_steps(session, view.rollout, told="vctl rollout status")
    if not has_ended(view.rollout):
        return ExitCode.DONE
    return exit_code(view.rollout, asked_back=view.rollout.strategy == "rollback")


def rollout_view(
    keys: Keys, fleet: Fleet, service: str, progress: Progress | None = None
) -> RolloutView:
    """Return the view of the service's rollout, running or last.

    Raises:
        PlanError: The service does not exist.
        TransitionError: It never had a rollout.
    """
    known = service_of(keys, fleet, service)
    rollout = known.rollout
    if rollout is None:
        raise TransitionError(
            f"service {service} never had a rollout", hint="allowed now: vctl rollout start"
        )
    nodes = tuple(node_status(node, fleet) for node in sorted({*fleet.records, *fleet.reports}))
    return RolloutView(
        rollout=rollout,
        route=known.current_route,
        elapsed_s=elapsed_s(progress, rollout),
        judged=judged(progress, rollout),
        nodes=nodes,
    )


def _text(view: RolloutView) -> str:
    from vctl_cli.render.table import nodes_table  # noqa: PLC0415  not for JSON
    from vctl_cli.render.traffic import phase_text, traffic_text  # noqa: PLC0415

    rollout = view.rollout
    lines = [
        f"rollout   {rollout.id} ({rollout.strategy})",
        f"service   {rollout.service}: {rollout.from_release or 'none'} -> {rollout.to_release}",
        f"phase     {phase_text(rollout, view.elapsed_s)}",
        f"traffic   {traffic_text(view.route)}",
        *([f"judged    {view.judged}"] if view.judged else []),
        f"decision  {rollout.sentence}",
    ]
    by = "@".join(part for part in (rollout.by.user, rollout.by.host) if part)
    lines += [f"by        {by}"] * bool(by) + [f"reason    {rollout.reason}"] * bool(rollout.reason)
    return "\n".join([*lines, "", nodes_table(view.nodes)])
