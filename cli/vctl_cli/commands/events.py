"""`vctl events`: what was decided on the whole fleet, in order."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.reading import read_fast
from vctl_cli.render.document import show
from vctl_cli.render.table import table
from vctl_cli.session import session_of
from vctl_plans.codec import decode
from vctl_plans.keys import Keys
from vctl_plans.rollout import Entry
from vctl_plans.store.port import KeyValue, Store
from vctl_plans.units import duration_s, utc_text


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, and whose."""

    service: str
    at: str  # by its writer's own clock, UTC; empty: it was not told
    rollout: str
    seq: int
    phase: str
    sentence: str
    by: str
    reason: str


class EventsView(msgspec.Struct, frozen=True):
    """Decisions, in the order in which they were written."""

    events: tuple[Event, ...]


def events(
    ctx: typer.Context,
    *,
    service: Service = "",
    since: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Only what is not older, as in 1h. [default: all]"),
    ] = "",
) -> ExitCode:
    """Show what was decided on the fleet, by whom and why.

    Of all services, or of one; in the order of etcd's revisions. Times are those of the clocks of
    whoever wrote them.
    """
    session = session_of(ctx)
    keys = session.target.keys
    prefix = keys.history(service) if service else keys.histories
    found = read_fast(
        session, lambda r: tuple(r.list(prefix).entries), lambda s: _entries(s, prefix)
    )
    oldest = ""
    if since:
        age = timedelta(seconds=duration_s(since, path="--since"))
        oldest = utc_text(session.world.now() - age)
    view = events_view(keys, found, oldest=oldest)
    show(session, view, kind="events", table=lambda: _text(view), is_paged=True)
    return ExitCode.DONE


async def _entries(store: Store, prefix: str) -> tuple[KeyValue, ...]:
    return tuple((await store.list(prefix)).entries)


def events_view(keys: Keys, entries: Iterable[KeyValue], *, oldest: str) -> EventsView:
    """Return the view of history's entries.

    Args:
        keys: The fleet's keys.
        entries: Entries below `Keys.histories`.
        oldest: A time as the entries hold it; older ones are left out. Empty: none is.
    """
    ordered = sorted(entries, key=lambda entry: entry.create_revision)
    made = (_event(keys, entry) for entry in ordered if not entry.key.endswith("/end"))
    return EventsView(tuple(event for event in made if event.at >= oldest))


def _event(keys: Keys, entry: KeyValue) -> Event:
    said = decode(entry.value, Entry, key=entry.key)
    return Event(
        service=entry.key.removeprefix(keys.histories).partition("/")[0],
        at=said.at,
        rollout=said.rollout,
        seq=said.seq,
        phase=said.phase,
        sentence=said.sentence,
        by="@".join(part for part in (said.by.user, said.by.host) if part),
        reason=said.reason,
    )


def _text(view: EventsView) -> str:
    if not view.events:
        return "nothing was decided"
    rows = [
        (e.at or "-", e.service, e.rollout, e.phase, e.by or "-", _said(e)) for e in view.events
    ]
    return table(("TIME", "SERVICE", "ROLLOUT", "PHASE", "BY", "DECISION"), rows)


def _said(event: Event) -> str:
    return f"{event.sentence}  [{event.reason}]" if event.reason else event.sentence
