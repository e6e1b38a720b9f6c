"""Who may do what in etcd: users and roles of a fleet, each with no more than its work needs.

    reader      sees the fleet, and changes nothing
    operator    what `vctl` writes: services, plans, requests; no node's own keys
    conductor   what decisions write; no release's plan, no operator's request
    node        one a node, for its agent and gateway: its own three keys, and what all watch

The hard decision: a role of etcd is made of ranges of keys, and cannot say "route, not spec" of
every service. So whoever moves traffic may write all that lies under `services`; a node may not.
"""

import shlex
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from vctl_plans.keys import Keys


class Verb(StrEnum):
    """What a grant allows."""

    READ = "read"
    WRITE = "write"
    BOTH = "readwrite"


class Grant(msgspec.Struct, frozen=True):
    """Keys that a role may read or write."""

    verb: Verb
    key: str
    is_prefix: bool = True

    @property
    def arguments(self) -> list[str]:
        """What etcdctl takes after the role's name."""
        return [*(["--prefix=true"] if self.is_prefix else []), self.verb.value, self.key]


class Role(msgspec.Struct, frozen=True):
    """What a kind of user may do; the user of the same name has it."""

    name: str
    about: str
    grants: tuple[Grant, ...]


def roles(keys: Keys, nodes: Iterable[str]) -> tuple[Role, ...]:
    """Return the roles of a fleet: its people's, its conductors', and one for each node."""
    name = f"vctl-{keys.fleet}"
    return (
        Role(f"{name}-reader", "sees the fleet, and changes nothing", (_read(keys.root),)),
        Role(f"{name}-operator", "people and pipelines that run vctl", _of_operators(keys)),
        Role(f"{name}-conductor", "vctl-agent --conductor-only", _of_conductors(keys)),
        *(
            Role(f"{name}-node-{node}", f"agent and gateway of node {node}", _of_node(keys, node))
            for node in nodes
        ),
    )


def _read(key: str) -> Grant:
    return Grant(Verb.READ, key)


def _write(key: str, *, is_prefix: bool = True) -> Grant:
    return Grant(Verb.WRITE, key, is_prefix)


def _of_operators(keys: Keys) -> tuple[Grant, ...]:
    prefixes = (
        keys.services,
        keys.requests,
        keys.histories,
        *(keys.plan(""), keys.roster(""), keys.groups(""), keys.golden("")),
    )
    return (_read(keys.root), *map(_write, prefixes), _write(keys.base, is_prefix=False))


def _of_conductors(keys: Keys) -> tuple[Grant, ...]:
    prefixes = (keys.services, keys.histories, keys.progress(""), keys.alerts)
    exact = (keys.base, keys.conductor, keys.summary)
    return (
        _read(keys.root),
        *map(_write, prefixes),
        *(_write(key, is_prefix=False) for key in exact),
    )


def _of_node(keys: Keys, node: str) -> tuple[Grant, ...]:
    watched = (keys.services, keys.requests, keys.groups(""), keys.golden(""))
    return (
        *map(_read, watched),
        Grant(Verb.BOTH, keys.node(node), is_prefix=False),
        _write(keys.report(node), is_prefix=False),
        _write(keys.statistics_of(node), is_prefix=False),
    )


def commands(role: Role, *, has_password: bool, passwords: str = "") -> list[str]:
    """Return the commands of etcdctl that make a role and its user.

    Args:
        role: The role.
        has_password: False: the user comes with a certificate whose common name is its name.
        passwords: A folder with a file of each user's password; empty: etcdctl asks for it.
    """
    user = f"etcdctl user add {role.name}"
    if not has_password:
        user += " --no-password"
    elif passwords:
        path = shlex.quote(f"{passwords.rstrip('/')}/{role.name}")
        user += f" --interactive=false < {path}"
    return [
        f"etcdctl role add {role.name}",
        *(
            shlex.join(["etcdctl", "role", "grant-permission", role.name, *grant.arguments])
            for grant in role.grants
        ),
        user,
        f"etcdctl user grant-role {role.name} {role.name}",
    ]
