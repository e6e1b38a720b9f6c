"""`vctl config init-auth`: the commands of etcdctl that make a fleet's users and roles."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.reading import read_fast
from vctl_cli.render.document import show
from vctl_cli.session import Session, session_of
from vctl_plans.access import Role, commands, roles
from vctl_plans.errors import StoreError
from vctl_plans.keys import Keys
from vctl_plans.names import check_name
from vctl_plans.store.port import Store


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """One user, its role of the same name, and how both are made."""

    user: str
    about: str
    commands: tuple[str, ...]


class AuthView(msgspec.Struct, frozen=True, kw_only=True):
    """All users of a fleet."""

    fleet: str
    prefix: str
    users: tuple[UserView, ...]


def init_auth(
    ctx: typer.Context,
    *,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="A node. [default: those that are present]"),
    ] = None,
    certificates: Annotated[
        bool,
        typer.Option(
            "--certificates", help="Users come with certificates that name them; no passwords."
        ),
    ] = False,
    passwords: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Has a file of each user's password. [default: etcdctl asks]"
        ),
    ] = "",
) -> ExitCode:
    """Print what makes etcd's users for this fleet.

    One user each for people who look, people who operate, and conductors; one for each node. Each
    may do what its work needs and no more. Nothing is changed: read it, then run it as a user that
    may, with ETCDCTL_ENDPOINTS set.
    """
    session = session_of(ctx)
    keys = session.target.keys
    made = roles(keys, _nodes(session, node))
    view = auth_view(keys, made, has_password=not certificates, passwords=passwords)
    show(session, view, kind="auth", table=lambda: _text(view))
    return ExitCode.DONE


def auth_view(keys: Keys, made: Sequence[Role], *, has_password: bool, passwords: str) -> AuthView:
    """Return the users of *made*."""
    return AuthView(
        fleet=keys.fleet,
        prefix=keys.prefix,
        users=tuple(
            UserView(
                user=role.name,
                about=role.about,
                commands=tuple(commands(role, has_password=has_password, passwords=passwords)),
            )
            for role in made
        ),
    )


def _nodes(session: Session, given: Sequence[str] | None) -> list[str]:
    """Return the nodes that were named, else those that are present; a fleet may be yet to come."""
    if given:
        return [check_name(name, what="node") for name in given]
    prefix = session.target.keys.nodes

    async def listed(store: Store) -> list[str]:
        return [entry.key for entry in (await store.list(prefix)).entries]

    try:
        found = read_fast(session, lambda reader: list(reader.names(prefix, most=100_000)), listed)
    except StoreError as problem:
        session.screen.say(f"which nodes there are cannot be read: {problem.message}")
        found = []
    if not found:
        session.screen.say("no node is named: --node NAME for each that the fleet will have")
    return [key.removeprefix(prefix) for key in found]


_HEAD = """\
# Users and roles of etcd for fleet {fleet}, below {prefix}.
# Once for each etcd, before the rest; root may do all, keep its password apart:
#   etcdctl user add root && etcdctl user grant-role root root"""

_TAIL = """\
# At last, and from then on etcdctl needs ETCDCTL_USER=root:PASSWORD:
#   etcdctl auth enable
# Then give each program its user: VCTL_USER=NAME:PASSWORD, or VCTL_CERT and VCTL_KEY; agents of
# nodes need --conduct off, as only a conductor may write what rollouts decide."""


def _text(view: AuthView) -> str:
    parts = [_HEAD.format(fleet=view.fleet, prefix=view.prefix)]
    parts += ["\n".join([f"# {u.user}: {u.about}", *u.commands]) for u in view.users]
    return "\n\n".join([*parts, _TAIL])
