"""`status --watch`: the whole fleet, drawn or written anew at every change."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import msgspec

from vctl_cli.commands.status import status_view
from vctl_cli.ending import exit_code, has_ended
from vctl_cli.exitcodes import ExitCode
from vctl_cli.merging import merged
from vctl_cli.options import Output
from vctl_cli.reading import Only, fleet_of, fleet_prefixes
from vctl_cli.render.document import line
from vctl_cli.render.summary import summary_lines, summary_text
from vctl_cli.render.table import status_lines, status_text
from vctl_cli.session import Session
from vctl_cli.summing import SummaryView, is_large, summary_view
from vctl_plans.keys import Keys
from vctl_plans.rollout import Rollout
from vctl_plans.snapshot import read_services
from vctl_plans.status import StatusView
from vctl_plans.store.port import KeyValue, Store

LATE_S = 2.0
"""Without an answer for so long, it is said what is waited for."""


class Form(msgspec.Struct, frozen=True):
    """What is watched, and how it is shown: every node, or a large fleet's summary."""

    kind: str
    prefixes: tuple[str, ...]  # the first is that of the services
    view: Callable[[Sequence[Sequence[KeyValue]]], Any]  # of the entries under each prefix
    text: Callable[[Any], str]
    lines: Callable[[Any], list[str]]


Show = Callable[[Any], None]


def _form(keys: Keys, only: Only, *, is_summary: bool) -> Form:
    if is_summary:

        def summed(parts: Sequence[Sequence[KeyValue]]) -> SummaryView:
            held = next((entry for entry in parts[1] if entry.key == keys.summary), None)
            return summary_view(keys, parts[0], held, only=only)

        prefixes = (keys.services, keys.summary)
        return Form("summary", prefixes, summed, summary_text, summary_lines)

    def whole(parts: Sequence[Sequence[KeyValue]]) -> StatusView:
        return status_view(keys, fleet_of(keys, parts), only=only)

    return Form("status", fleet_prefixes(keys), whole, status_text, status_lines)


async def watch_fleet(
    session: Session, store: Store, only: Only, *, wants_summary: bool
) -> ExitCode:
    """Show the fleet until Ctrl-C, `--timeout`, or the end of the named service's rollout.

    Whether it is shown whole or by its summary is chosen once, when it is first seen.

    Raises:
        PlanError: The service does not exist, or the tenant has none.
        StoreError: The store refused to be watched.
    """
    try:
        async with asyncio.timeout(session.target.timeout_s):
            return await _shown_to_end(session, store, only, wants_summary=wants_summary)
    except TimeoutError:
        return ExitCode.TIMED_OUT if only.service else ExitCode.DONE


async def _shown_to_end(
    session: Session, store: Store, only: Only, *, wants_summary: bool
) -> ExitCode:
    keys = session.target.keys
    where = ", ".join(session.target.settings.endpoints)
    loop = asyncio.get_running_loop()
    late = loop.call_later(
        LATE_S, session.screen.say, f"etcd does not answer yet: {where}; waiting for it"
    )
    form = _form(keys, only, is_summary=wants_summary or await _is_large(store, keys))
    async with aclosing(merged(store, form.prefixes)) as states:
        with _view(session, form) as show:
            async for parts in states:
                late.cancel()
                entries = [tuple(part.entries.values()) for part in parts]
                is_live = all(part.is_live for part in parts)
                show(msgspec.structs.replace(form.view(entries), is_live=is_live))
                rollout = _rollout(keys, entries[0], only.service)
                if rollout and has_ended(rollout):
                    return exit_code(rollout, asked_back=rollout.strategy == "rollback")
    raise AssertionError  # the states have no end of their own


async def _is_large(store: Store, keys: Keys) -> bool:
    """Look at the summary once etcd answers: a watch waits for it too."""
    async with aclosing(store.watch(keys.summary)) as updates:  # type: ignore[type-var]
        async for update in updates:
            if update.is_live:
                return is_large(update.entries.get(keys.summary))
    raise AssertionError  # a watch has no end of its own


def _rollout(keys: Keys, services: Sequence[KeyValue], service: str) -> Rollout | None:
    return read_services(keys, services).services[service].rollout if service else None


@contextmanager
def _view(session: Session, form: Form) -> Iterator[Show]:
    screen = session.screen
    if session.output is not Output.TABLE:
        yield lambda view: screen.data(line(view, kind=form.kind))
    elif screen.is_terminal:
        from vctl_cli.render.live import Picture  # noqa: PLC0415  rich costs time

        with Picture(screen) as picture:
            yield lambda view: picture.draw(form.text(view))
    else:
        yield _line_writer(session, form)


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
