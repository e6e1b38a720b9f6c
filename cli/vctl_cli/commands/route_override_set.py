"""`vctl route override set`: a group is held to a release, at once and without a rollout."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from vctl_cli.deciding import repeated
from vctl_cli.exitcodes import ExitCode
from vctl_cli.groupflags import (
    UNNAMED,
    GroupName,
    GroupTenant,
    Headers,
    Percent,
    Users,
    group_content,
)
from vctl_cli.merging import merged
from vctl_cli.options import NoWatch, Reason, Service
from vctl_cli.reading import read_fleet_from, read_known_service
from vctl_cli.render.document import show
from vctl_cli.session import Session, session_of
from vctl_plans.document import groups_of
from vctl_plans.errors import PlanError
from vctl_plans.gate import acknowledgement
from vctl_plans.groups import Groups
from vctl_plans.keys import Keys
from vctl_plans.operate import Request
from vctl_plans.overriding import hold
from vctl_plans.parsing import parse
from vctl_plans.phase import NodePhase
from vctl_plans.rollout import listed
from vctl_plans.snapshot import read_nodes
from vctl_plans.store.commit import commit_proven, hold_txn
from vctl_plans.store.port import Store
from vctl_plans.units import utc_text

ACTING_WITHIN_S = 30.0
"""For which gateways are waited for, unless --timeout says."""


SHORT = 15
"""Digits of a digest that are enough to name a group by."""


class HoldView(msgspec.Struct, frozen=True, kw_only=True):
    """Groups that are held to a release."""

    service: str
    release: int
    groups: str  # digest
    names: tuple[str, ...]
    route_revision: int
    is_written: bool  # False: they had it already
    acting: int  # present nodes whose gateway acts on that route
    unconfirmed: tuple[str, ...]  # present nodes whose gateway does not say so; not waited for: all


def set_override(
    ctx: typer.Context,
    release: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The release that they get.")
    ] = None,
    *,
    service: Service = "",
    group: GroupName = "",
    user: Users = None,
    tenant: GroupTenant = "",
    header: Headers = None,
    percent: Percent = None,
    reason: Reason = "",
    no_watch: NoWatch = False,
) -> ExitCode:
    """Hold a group to a release, at once.

    For whoever the flags name, ahead of all other groups and of every weight, until `vctl route
    override rm`. Only a release that nodes hold already can be given so: one that serves, or is
    kept for an instant rollback. Any other is brought to them by a user-group rollout. Exit code 8:
    it is written, and a named node's gateway has not confirmed it.
    """
    session = session_of(ctx)
    name, request = session.service(service), session.request(reason)
    content = group_content(name=group, users=user, tenant=tenant, headers=header, percent=percent)
    if release is None:
        hint = "see them: vctl release list"
        raise PlanError("which release are they to get?", path="--release", hint=hint)
    groups = _groups(name, release, content)

    async def act(store: Store) -> HoldView:
        view = await held(store, session.target.keys, name, groups, number=release, request=request)
        return view if no_watch else await _acting(session, store, view)

    view = session.run(act)
    show(session, view, kind="override", table=lambda: _text(view))
    return ExitCode.DONE if no_watch or not view.unconfirmed else ExitCode.UNCONFIRMED


def _groups(service: str, release: int, content: dict[str, Any]) -> Groups:
    """Return the group that the flags name, held to the rules that a plan file's is held to.

    Raises:
        PlanError: They name nobody, or everybody.
    """
    if not content:
        hint = "give --user, --tenant, --header or --percent"
        raise PlanError("who is to be held?", path="group", hint=hint)
    fields = {"service": service, "strategy": "user-group", "release": release}
    groups = groups_of(parse({**fields, "groups": [content]}))
    assert groups is not None  # noqa: S101  the plan is for groups
    return groups


async def held(
    store: Store, keys: Keys, service: str, groups: Groups, *, number: int, request: Request
) -> HoldView:
    """Write the override, unless it is there already.

    Raises:
        PlanError: There is no such service or release.
        TransitionError: A rollout runs, or the release is revoked or not loaded.
    """

    async def once() -> HoldView:
        known = (await read_known_service(store, keys, service)).service
        present = (await read_fleet_from(store, keys)).present()
        found = {node: report.release(service, number) for node, report in present.items()}
        serve = {node for node, report in present.items() if report.drain is None}
        ready = {n for n in serve if (said := found[n]) and said.phase is NodePhase.READY}
        decided = hold(known, groups, number, ready=ready, request=request)
        revision = known.route_revision
        if decided:
            txn = hold_txn(keys, known, decided, at=utc_text(datetime.now(UTC)))
            proof = keys.decision(service, request.id, decided.entry.seq)
            revision = await commit_proven(store, txn, proof=proof)
        return HoldView(
            service=service,
            release=number,
            groups=groups.digest,
            names=tuple(group.name for group in groups.groups),
            route_revision=revision,
            is_written=decided is not None,
            acting=0,
            unconfirmed=tuple(sorted(present)),
        )

    return await repeated(once)


async def _acting(session: Session, store: Store, view: HoldView) -> HoldView:
    """Wait until the gateways of all nodes that are present act on the route, or for so long."""
    keys, now = session.target.keys, view
    try:
        async with asyncio.timeout(session.target.timeout_s or ACTING_WITHIN_S):
            async with aclosing(merged(store, (keys.nodes, keys.reports))) as states:
                async for records, reports in states:
                    nodes = read_nodes(keys, records.entries.values(), reports.entries.values())
                    tally = acknowledgement(
                        sorted(nodes.records), nodes.present(), service=view.service,
                        revision=view.route_revision,
                    )  # fmt: skip
                    now = msgspec.structs.replace(
                        view, acting=len(tally.done), unconfirmed=tally.missing
                    )
                    if tally.is_complete:
                        break
    except TimeoutError:
        session.screen.complain(f"unconfirmed: {listed(now.unconfirmed)}")
    return now


def _text(view: HoldView) -> str:
    names = ", ".join(view.names)
    done = "are held to" if view.is_written else "had already"
    said = f"{names} of {view.service} {done} release {view.release}"
    if view.acting:
        said += f", on {view.acting} of {view.acting + len(view.unconfirmed)} nodes"
    name = view.groups[:SHORT] if view.names == (UNNAMED,) else view.names[0]
    return f"{said}; to end it: vctl route override rm {name} -s {view.service}"
