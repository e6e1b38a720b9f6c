"""`status --watch`: the whole fleet, drawn or written anew at every change."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager

import msgspec

from vctl_cli.commands.status import status_view
from vctl_cli.ending import exit_code, has_ended
from vctl_cli.exitcodes import ExitCode
from vctl_cli.merging import merged
from vctl_cli.options import Output
from vctl_cli.reading import fleet_of, fleet_prefixes
from vctl_cli.render.document import line
from vctl_cli.render.table import status_lines, status_text
from vctl_cli.session import Session
from vctl_plans.rollout import Rollout
from vctl_plans.snapshot import Fleet
from vctl_plans.status import StatusView
from vctl_plans.store.port import Store

LATE_S = 2.0
"""Without an answer for so long, it is said what is waited for."""

Show = Callable[[StatusView], None]


async def watch_fleet(session: Session, store: Store, service: str) -> ExitCode:
    """Show the fleet until Ctrl-C, `--timeout`, or the end of *service*'s rollout.

    Raises:
        PlanError: The service does not exist.
        StoreError: The store refused to be watched.
    """
    try:
        async with asyncio.timeout(session.target.timeout_s):
            return await _shown_to_end(session, store, service)
    except TimeoutError:
        return ExitCode.TIMED_OUT if service else ExitCode.DONE


async def _shown_to_end(session: Session, store: Store, service: str) -> ExitCode:
    keys = session.target.keys
    where = ", ".join(session.target.settings.endpoints)
    loop = asyncio.get_running_loop()
    late = loop.call_later(
        LATE_S, session.screen.say, f"etcd does not answer yet: {where}; waiting for it"
    )
    async with aclosing(merged(store, fleet_prefixes(keys))) as states:
        with _view(session) as show:
            async for parts in states:
                late.cancel()
                known = fleet_of(keys, [tuple(part.entries.values()) for part in parts])
                view = status_view(known, fleet=keys.fleet, service=service)
                is_live = all(part.is_live for part in parts)
                show(msgspec.structs.replace(view, is_live=is_live))
                rollout = _rollout(known, service)
                if rollout and has_ended(rollout):
                    return exit_code(rollout, asked_back=rollout.strategy == "rollback")
    raise AssertionError  # the states have no end of their own


def _rollout(known: Fleet, service: str) -> Rollout | None:
    return known.services[service].rollout if service else None


@contextmanager
def _view(session: Session) -> Iterator[Show]:
    screen = session.screen
    if session.output is not Output.TABLE:
        yield lambda view: screen.data(line(view, kind="status"))
    elif screen.is_terminal:
        from vctl_cli.render.live import Picture  # noqa: PLC0415  rich costs time

        with Picture(screen) as picture:
            yield lambda view: picture.draw(status_text(view))
    else:
        yield _line_writer(session)


def _line_writer(session: Session) -> Show:
    last: set[str] = set()

    def show(view: StatusView) -> None:
        nonlocal last
        lines = status_lines(view)
        for text in lines:
            if text not in last:
                session.screen.data(f"{session.world.now():%H:%M:%S}  {text}")
        last = set(lines)

    return show
