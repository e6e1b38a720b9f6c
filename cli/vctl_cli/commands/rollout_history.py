"""`vctl rollout history`: what was decided and why, of all rollouts of a service."""

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.reading import read_known_service
from vctl_cli.render.document import show
from vctl_cli.session import session_of
from vctl_plans.codec import decode
from vctl_plans.keys import Keys
from vctl_plans.rollout import Entry
from vctl_plans.store.port import KeyValue, Store


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A service's decisions in the order in which they were written."""

    service: str
    decisions: tuple[Entry, ...]


def history(ctx: typer.Context, *, service: Service = "") -> ExitCode:
    """Show the decisions of rollouts.

    Of each rollout of the service, in order, with who asked for it and why; where another person
    steered it, with who that was.
    """
    session = session_of(ctx)
    name = session.service(service)
    view = session.run(lambda store: read_history(store, session.target.keys, name))
    show(session, view, kind="history", table=lambda: _text(view), is_paged=True)
    return ExitCode.DONE


async def read_history(store: Store, keys: Keys, service: str) -> History:
    """Return all decisions of a service.

    Raises:
        PlanError: The service does not exist.
    """
    await read_known_service(store, keys, service)
    found = (await store.list(keys.history(service))).entries
    ordered = sorted(found, key=lambda entry: entry.create_revision)
    return History(
        service=service,
        decisions=tuple(_entry(entry) for entry in ordered if not _is_archive(keys, entry)),
    )


def _is_archive(keys: Keys, entry: KeyValue) -> bool:
    service, rollout = entry.key.split("/")[-3:-1]
    return entry.key == keys.archive(service, rollout)


def _entry(entry: KeyValue) -> Entry:
    return decode(entry.value, Entry, key=entry.key)


def _text(view: History) -> str:
    lines: list[str] = []
    rollout = said = ""
    for entry in view.decisions:
        asked, note = _asked(entry), ""
        if entry.rollout != rollout:
            head = f"rollout {entry.rollout}{', ' * bool(asked)}{asked}"
            lines += [""] * bool(lines) + [head]
        elif asked != said:
            note = f"  [{asked}]"
        rollout, said = entry.rollout, asked
        lines.append(f"  {entry.at}{'  ' * bool(entry.at)}{entry.phase:<12} {entry.sentence}{note}")
    return "\n".join(lines) or f"service {view.service} had no rollout yet"


def _asked(entry: Entry) -> str:
    """Return who asked last, and why."""
    by = "@".join(part for part in (entry.by.user, entry.by.host) if part)
    who = f"by {by}" if by else ""
    return ": ".join(part for part in (who, entry.reason) if part)
