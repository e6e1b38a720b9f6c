"""`status --watch`: the whole fleet, drawn or written anew at every change."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import msgspec

from vctl_cli.commands.status import status_view
from vctl_cli.ending import exit_code, has_ended
from vctl_cli.exitcodes import ExitCode
from vctl_cli.follow import Follow, scenes
from vctl_cli.merging import merged
from vctl_cli.options import Output
from vctl_cli.reading import Only, fleet_of, fleet_prefixes, read_known_service
from vctl_cli.render.document import document, line, yaml_document
from vctl_cli.render.summary import summary_lines
from vctl_cli.render.table import status_lines
from vctl_cli.render.views import is_drawn
from vctl_cli.reporting import report_rollout, wants_report
from vctl_cli.session import Session
from vctl_cli.summing import SummaryView, sees_large, summary_view
from vctl_cli.ticking import ticking
from vctl_cli.watching import watch
from vctl_plans.keys import Keys
from vctl_plans.rollout import Rollout
from vctl_plans.snapshot import read_services
from vctl_plans.status import StatusView
from vctl_plans.store.port import KeyValue, Store


class Form(msgspec.Struct, frozen=True):
    """What is watched, and how it is shown: every node, or a large fleet's summary."""

    kind: str
    prefixes: tuple[str, ...]  # the first is that of the services
    view: Callable[[Sequence[Sequence[KeyValue]]], Any]  # of the entries under each prefix
    lines: Callable[[Any], list[str]]


Show = Callable[[Any], None]
Tick = Callable[[], None]


def _form(keys: Keys, only: Only, *, is_summary: bool) -> Form:
    if is_summary:

        def summed(parts: Sequence[Sequence[KeyValue]]) -> SummaryView:
            held = next((entry for entry in parts[1] if entry.key == keys.summary), None)
            return summary_view(keys, parts[0], held, only=only)

        prefixes = (keys.services, keys.summary)
        return Form("summary", prefixes, summed, summary_lines)

    def whole(parts: Sequence[Sequence[KeyValue]]) -> StatusView:
        return status_view(keys, fleet_of(keys, parts), only=only)

    return Form("status", fleet_prefixes(keys), whole, status_lines)


async def watch_fleet(
    session: Session, store: Store, only: Only, *, wants_summary: bool, junit: str = ""
) -> ExitCode:
    """Show the fleet until Ctrl-C, `--timeout`, or the end of the named service's rollout.

    On a terminal one service's rollout is the same picture as its tail.
    Whether it is shown whole or by its summary is chosen once, when it is first seen. How the
    rollout was left is told to the CI system and written to *junit*, as by `rollout watch`.

    Raises:
        PlanError: The service does not exist, or the tenant has none.
        StoreError: The store refused to be watched.
    """
    if only.service and is_drawn(session):
        follow = await rollout_of(store, session.target.keys, only.service)
        if follow:
            return await watch(session, store, follow, junit=junit)
    try:
        async with asyncio.timeout(session.target.timeout_s):
            code = await _shown_to_end(session, store, only, wants_summary=wants_summary)
    except TimeoutError:
        code = ExitCode.TIMED_OUT if only.service else ExitCode.DONE
    if only.service:
        await _report(session, store, only.service, code, junit=junit)
    return code


async def _report(
    session: Session, store: Store, service: str, code: ExitCode, *, junit: str
) -> None:
    keys = session.target.keys
    follow = await rollout_of(store, keys, service)
    if not (follow and wants_report(session, junit)):
        return
    try:
        async with (
            asyncio.timeout(session.target.settings.budget_s),
            aclosing(scenes(store, keys, follow)) as stream,
        ):
            report_rollout(session, await anext(stream), code, junit=junit)
    except TimeoutError:
        session.screen.complain(
            f"vctl: no report: the last decision of rollout {follow.rollout} is not in its history"
        )


async def rollout_of(store: Store, keys: Keys, service: str) -> Follow | None:
    """Return the service's rollout, running or last; None: it never had one.

    Raises:
        PlanError: The service does not exist.
    """
    rollout = (await read_known_service(store, keys, service)).service.rollout
    return Follow(service, rollout.id, since=rollout.seq + 1) if rollout else None


async def _shown_to_end(
    session: Session, store: Store, only: Only, *, wants_summary: bool
) -> ExitCode:
    keys = session.target.keys
    form = _form(keys, only, is_summary=wants_summary or await sees_large(store, keys))
    with _view(session, form) as (show, tick):
        async with aclosing(merged(store, form.prefixes)) as states, ticking(tick):
            async for parts in states:
                entries = [tuple(part.entries.values()) for part in parts]
                is_live = all(part.is_live for part in parts)
                show(msgspec.structs.replace(form.view(entries), is_live=is_live))
                rollout = _rollout(keys, entries[0], only.service)
                if rollout and has_ended(rollout):
                    return exit_code(rollout, asked_back=rollout.strategy == "rollback")
    raise AssertionError  # the states have no end of their own


def _rollout(keys: Keys, services: Sequence[KeyValue], service: str) -> Rollout | None:
    return read_services(keys, services).services[service].rollout if service else None


@contextmanager
def _view(session: Session, form: Form) -> Iterator[tuple[Show, Tick]]:
    """Yield what shows a view, and what is to be called now and then."""
    screen = session.screen
    if session.output is Output.JSON:
        yield lambda view: screen.exact(line(view, kind=form.kind)), _nothing
    elif session.output is Output.YAML:
        yield lambda view: screen.exact(yaml_document(document(view, kind=form.kind))), _nothing
    elif screen.can_draw:
        from vctl_cli.render.livefleet import LiveFleet  # noqa: PLC0415  rich costs time

        with LiveFleet(screen) as live:
            yield live.show, live.tick
    else:
        yield _line_writer(session, form), _nothing


def _nothing() -> None:
    """Do nothing: lines change with what they tell only."""


def _line_writer(session: Session, form: Form) -> Show:
    last: set[str] = set()

    def show(view: Any) -> None:
        nonlocal last
        lines = form.lines(view)
        for text in lines:
            if text not in last:
                session.screen.data(f"{session.world.now():%H:%M:%S}  {text}")
        last = set(lines)

    return show
