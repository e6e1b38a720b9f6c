"""`vctl config accept-restore`: have all take etcd as it is after a backup was restored."""

from datetime import UTC
from typing import TYPE_CHECKING

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Reason
from vctl_cli.render.document import show
from vctl_cli.session import Session, session_of
from vctl_plans.codec import decode, encode
from vctl_plans.errors import VctlError
from vctl_plans.inspection import ACCEPT_RESTORE, AcceptRestore
from vctl_plans.snapshot import read_services
from vctl_plans.units import utc_text

if TYPE_CHECKING:
    from vctl_plans.keys import Keys
    from vctl_plans.store.port import Store


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was accepted."""

    id: str
    revision: int  # of etcd, at which the word was written
    services: dict[str, str]  # what each serves from now on


def accept_restore(ctx: typer.Context, *, reason: Reason = "") -> ExitCode:
    """Go on with etcd as a restored backup left it.

    Agents, gateways and conductors that see etcd go back keep the last route and advance nothing,
    until this is said. Then they forget what they knew and follow what the backup holds: routes,
    releases and rollouts as they were when it was made. Look at vctl status first.
    """
    session = session_of(ctx)
    return session.run(lambda store: accepted(session, store, reason))


async def accepted(session: Session, store: "Store", reason: str) -> ExitCode:
    """Show what will serve, ask, and say it."""
    keys, request = session.target.keys, session.request(reason)
    serving = read_services(keys, (await store.list(keys.services)).entries).services
    services = {
        name: f"release {each.current_route.stable or 'none'}" for name, each in serving.items()
    }
    shown = ", ".join(f"{name}: {what}" for name, what in sorted(services.items()))
    session.confirm(f"fleet {keys.fleet} goes on as this etcd has it ({shown or 'no service'})?")
    at = utc_text(session.world.now().astimezone(UTC))
    word = AcceptRestore(
        id=request.id, by=request.by, reason=reason, at=at, earlier=await _used_up(store, keys)
    )
    revision = await store.put(keys.request(ACCEPT_RESTORE), encode(word))
    session.screen.say(
        f"accepted: fleet {keys.fleet} goes on as this etcd has it ({shown or 'no service'})\n"
        "  who waits for it follows within seconds: vctl nodes"
    )
    view = Restored(id=request.id, revision=revision, services=services)
    show(session, view, kind="restored", table=request.id)
    return ExitCode.DONE


async def _used_up(store: "Store", keys: "Keys") -> tuple[str, ...]:
    """Return the words before this one; one that cannot be read is replaced all the same."""
    found = await store.get(keys.request(ACCEPT_RESTORE))
    try:
        return decode(found.value, AcceptRestore, key=found.key).used_up if found else ()
    except VctlError:
        return ()
