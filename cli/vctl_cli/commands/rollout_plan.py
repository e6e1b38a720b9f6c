"""`vctl rollout plan`: what a start would come to, and what would stop it; nothing is written."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import typer

from vctl_cli.commands.rollout_start import checked, plan_content, wish_of
from vctl_cli.exitcodes import ExitCode
from vctl_cli.foreseeing import PlanView, plan_view
from vctl_cli.planflags import Flags, with_plan_flags
from vctl_cli.reading import read_fleet_from, read_known_service, read_service
from vctl_cli.render.document import show
from vctl_cli.render.foresight import plan_text
from vctl_cli.session import Session, session_of
from vctl_plans import weights
from vctl_plans.document import AnyDocument, Source, sources
from vctl_plans.foresight import foresee
from vctl_plans.phase import Component
from vctl_plans.store.port import Store
from vctl_plans.weights import AdapterFacts


@with_plan_flags
def plan(ctx: typer.Context, *, flags: Flags) -> ExitCode:
    """Show what a rollout would change, take, and be stopped by.

    The plan is given as to `vctl rollout start`, by a file or by flags; nothing is written, neither
    in etcd nor beside the sources. What is at a path is hashed. Bytes are the most that nodes would
    fetch, by what they report to have on disk; time is the least, which is what the steps soak.
    Exit code 0: it would start; else the code that the start, or the rollout, would end with, and
    all that would stop it is listed.
    """
    session = session_of(ctx)
    document = checked(plan_content(flags, session))
    view = session.run(lambda store: foreseen(session, store, document, flags))
    show(session, view, kind="rollout-plan", table=lambda: plan_text(view))
    return ExitCode(view.exit_code)


async def foreseen(session: Session, store: Store, document: AnyDocument, flags: Flags) -> PlanView:
    """Read all that a start would look at, and return what it would come to.

    Raises:
        PlanError: The service does not exist, or nothing is at a source.
        ArtifactError: The bytes may not be served.
    """
    keys, brought = session.target.keys, sources(document)
    if not flags.new_service:
        await read_known_service(store, keys, document.service, can_make=True)
    wish = await wish_of(session, store, document, flags, is_dry=True)
    reading = await read_service(
        store, keys, document.service, brings_base=Component.WEIGHTS in brought, mode=flags.mode
    )
    found = foresee(
        reading.service, wish.plan, wish=wish.wish, roster=reading.present, request=wish.request,
        supersede=flags.supersede, groups=wish.groups, golden=wish.golden,
    )  # fmt: skip
    fleet = await read_fleet_from(store, keys)
    adapter = _adapter_facts(brought.get(Component.ADAPTER))
    return plan_view(reading.service, wish.plan, found, fleet, adapter=adapter)


def _adapter_facts(source: Source | None) -> AdapterFacts | None:
    """Return what an adapter says of itself, where its files lie here."""
    if source is None or not source.source.startswith("file:"):
        return None
    path = Path(unquote(urlsplit(source.source).path))
    return weights.adapter_facts(path) if path.exists() else None
