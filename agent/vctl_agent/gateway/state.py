"""What the gateway knows, and what follows from it: pure values in, pure values out.

Routes and releases (from etcd) and the agent's word of what is ready come together here, and
nothing else. A release is a target only when release and agent agree on its digest. A route whose
overrides name groups waits, with the one before it in force, until all of these have been read.

The hard decision: an update is read as a whole, never as events, and a value that cannot be read
keeps the last good one of its own key. So one service's bad write never touches another's.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from vctl_agent.gateway.target import Target
from vctl_agent.local import AgentState, ReadyRelease
from vctl_plans.codec import decode
from vctl_plans.errors import VctlError
from vctl_plans.groups import Groups
from vctl_plans.names import check_name
from vctl_plans.peers import Peer, Peers
from vctl_plans.phase import Component
from vctl_plans.prompt import Template
from vctl_plans.release import Release
from vctl_plans.rollout import DEFAULT_TENANT, ServiceSpec
from vctl_plans.route import Mode, Route
from vctl_plans.routing import cache_salt
from vctl_plans.store.port import KeyValue, Update

NOBODY = ""
"""Whose a service is whose spec cannot be read, and never was: no key is of that tenant."""

ReleaseId = tuple[str, int]
"""Service and number."""

Templates = Mapping[str, Template]
"""What is applied to chats, by the prompt's directory."""

NO_TEMPLATES: Templates = {}

K = TypeVar("K")
V = TypeVar("V")

_RELEASE = re.compile(r"releases/[0-9]{8}", re.ASCII)


class RouteAt(msgspec.Struct, frozen=True):
    """A route and its route revision."""

    revision: int
    route: Route

    @property
    def is_split(self) -> bool:
        """Whether it depends on the request which release it gets."""
        return bool(self.route.candidate or self.route.overrides)

    @property
    def is_plain(self) -> bool:
        """Whether all requests that name no release get the stable one, and no pin."""
        route = self.route
        return not (route.candidate or route.overrides or route.pinnable)

    @property
    def groups(self) -> frozenset[str]:
        """The digests of all groups that it is decided by."""
        return frozenset(override.group for override in self.route.overrides)

    @property
    def is_direct(self) -> bool:
        """Whether clients of the service call the engine itself: nothing of it is served here."""
        return self.route.mode is Mode.DIRECT


class ReleaseAt(msgspec.Struct, frozen=True):
    """A release and the revision at which it was written; 0: read from disk."""

    revision: int
    release: Release


class PeersAt(msgspec.Struct, frozen=True):
    """A service's peers and the revision at which they were written; 0: read from disk."""

    revision: int
    peers: Peers


class TenantAt(msgspec.Struct, frozen=True):
    """A service's tenant and the revision at which its spec was written; 0: read from disk."""

    revision: int
    tenant: str


class Unreadable(msgspec.Struct, frozen=True):
    """A value that was refused; what was known under its key before stays."""

    key: str
    revision: int
    problem: str
    groups: str = ""  # of a route that names groups which were refused: their digest


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Routes and releases, as of one revision of the store, and the groups that routes name."""

    revision: int = 0
    routes: dict[str, RouteAt] = {}
    waiting: dict[str, RouteAt] = {}  # newer than the service's route; not all groups are read
    groups: dict[str, Groups] = {}  # by digest, which is theirs; no others than routes name
    releases: dict[ReleaseId, ReleaseAt] = {}
    peers: dict[str, PeersAt] = {}
    tenants: dict[str, TenantAt] = {}
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def newest(self) -> int:
        """The highest revision seen; a store that is behind it was restored from a backup."""
        return max((self.revision, *(at.revision for at in self.routes.values())))

    def route_revisions(self) -> dict[str, int]:
        """Return each service's route revision."""
        return {service: at.revision for service, at in self.routes.items()}

    def digest(self, release_id: ReleaseId) -> str:
        """Return the digest of a release; empty when it is not known."""
        at = self.releases.get(release_id)
        return at.release.digest if at else ""

    def tenant(self, service: str) -> str:
        """Return whose service it is; one without a spec is of the tenant that specs begin with."""
        at = self.tenants.get(service)
        return at.tenant if at else DEFAULT_TENANT

    def missing(self) -> frozenset[str]:
        """Return the digests of the groups that are still to be read."""
        return _named(self.routes, self.waiting) - self.groups.keys()

    def named_headers(self) -> frozenset[str]:
        """Return the header fields that decide, by lower-case name."""
        return frozenset(
            name
            for groups in self.groups.values()
            for group in groups.groups
            for name in group.header
        )

    def peers_of(self, release_id: ReleaseId) -> tuple[Peer, ...]:
        """Return the gateways that serve exactly this release, our own perhaps among them."""
        service, number = release_id
        listed, at = self.peers.get(service), self.releases.get(release_id)
        return listed.peers.of(number, at.release.digest) if listed and at else ()

    def offered(self) -> list[str]:
        """Return the services of which anything can be served here, in order."""
        return sorted({service for service, _ in self.serving()})

    def serving(self) -> list[ReleaseId]:
        """Return every release that a request may get, in order."""
        return [
            (name, number)
            for name, at in sorted(self.routes.items())
            if not at.is_direct
            for number in sorted(at.route.serving)
        ]


def applied(known: Known, update: Update, prefix: str) -> Known:
    """Return what is known after *update*, the whole state under *prefix* (``Keys.services``).

    Values whose revision is the one already known are not read again.
    """
    routes: dict[str, RouteAt] = {}
    waiting: dict[str, RouteAt] = {}
    releases: dict[ReleaseId, ReleaseAt] = {}
    peers: dict[str, PeersAt] = {}
    tenants: dict[str, TenantAt] = {}
    unreadable: list[Unreadable] = []
    refused = {each.groups: each.problem for each in known.unreadable if each.groups}
    for key, entry in update.entries.items():
        service, _, rest = key.removeprefix(prefix).partition("/")
        try:
            if rest == "route":
                _keep(routes, service, known.routes.get(service))
                at = _route(entry, service, known)
                (routes if at.groups <= known.groups.keys() else waiting)[service] = at
                unreadable += _stopped(key, at, refused)
            elif rest == "peers":
                _keep(peers, service, known.peers.get(service))
                peers[service] = _peers(entry, service, known)
            elif rest == "spec":
                _keep(tenants, service, known.tenants.get(service, TenantAt(0, NOBODY)))
                tenants[service] = _tenant(entry, service, known)
            elif _RELEASE.fullmatch(rest):
                release_id = (service, int(rest.removeprefix("releases/")))
                _keep(releases, release_id, known.releases.get(release_id))
                releases[release_id] = _release(entry, release_id, known)
        except VctlError as cause:
            unreadable.append(Unreadable(key, entry.mod_revision, str(cause)))
    named = _named(routes, waiting)
    return Known(
        revision=update.revision,
        routes=routes,
        waiting=waiting,
        groups={digest: known.groups[digest] for digest in named & known.groups.keys()},
        releases=releases,
        peers=peers,
        tenants=tenants,
        unreadable=tuple(unreadable),
    )


def supplied(known: Known, digest: str, groups: Groups) -> Known:
    """Return what is known once the groups of *digest* have been read, which are its own."""
    if digest not in known.missing():
        return known
    read = known.groups | {digest: groups}
    complete = {s: at for s, at in known.waiting.items() if at.groups <= read.keys()}
    return msgspec.structs.replace(
        known,
        routes=known.routes | complete,
        waiting={s: at for s, at in known.waiting.items() if s not in complete},
        groups=read,
        unreadable=tuple(each for each in known.unreadable if each.groups != digest),
    )


def refused(known: Known, digest: str, problem: str, prefix: str) -> Known:
    """Return what is known while what lies under *digest* cannot be used: no route that names it.

    Such routes count as unreadable until something better is read.
    """
    others = [each for each in known.unreadable if each.groups != digest]
    for service, at in known.waiting.items():
        others += _stopped(f"{prefix}{service}/route", at, {digest: problem})
    return msgspec.structs.replace(known, unreadable=tuple(others))


def _named(*routes: Mapping[str, RouteAt]) -> frozenset[str]:
    return frozenset(digest for each in routes for at in each.values() for digest in at.groups)


def _stopped(key: str, at: RouteAt, refused: Mapping[str, str]) -> list[Unreadable]:
    """Return the route as unreadable, once for each refused value of groups that it names."""
    return [
        Unreadable(key, at.revision, refused[digest], digest)
        for digest in sorted(at.groups & refused.keys())
    ]


def _keep(found: dict[K, V], name: K, last_good: V | None) -> None:
    """Put *last_good* in place first, so that a value that cannot be read leaves it standing."""
    if last_good is not None:
        found[name] = last_good


def _route(entry: KeyValue, service: str, known: Known) -> RouteAt:
    for before in (known.routes.get(service), known.waiting.get(service)):
        # What an earlier run left is read again: it may have been one that knew fewer fields.
        if before is not None and before.revision == entry.mod_revision and known.revision:
            return before
    route = decode(entry.value, Route, key=entry.key)
    if route.service != service:
        raise VctlError(f"the route at {entry.key} is of service {route.service!r}")
    return RouteAt(entry.mod_revision, route)


def _peers(entry: KeyValue, service: str, known: Known) -> PeersAt:
    before = known.peers.get(service)
    if before is not None and before.revision == entry.mod_revision:
        return before
    peers = decode(entry.value, Peers, key=entry.key)
    if peers.service != service:
        raise VctlError(f"the peers at {entry.key} are of service {peers.service!r}")
    return PeersAt(entry.mod_revision, peers)


def _tenant(entry: KeyValue, service: str, known: Known) -> TenantAt:
    before = known.tenants.get(service)
    if before is not None and before.revision == entry.mod_revision:
        return before
    spec = decode(entry.value, ServiceSpec, key=entry.key)
    if spec.service != service:
        raise VctlError(f"the spec at {entry.key} is of service {spec.service!r}")
    return TenantAt(entry.mod_revision, check_name(spec.tenant, what="tenant"))


def _release(entry: KeyValue, release_id: ReleaseId, known: Known) -> ReleaseAt:
    before = known.releases.get(release_id)
    if before is not None and before.revision == entry.mod_revision:
        return before
    release = decode(entry.value, Release, key=entry.key)
    if (release.service, release.number) != release_id:
        raise VctlError(f"the release at {entry.key} is {release.service!r} {release.number}")
    return ReleaseAt(entry.mod_revision, release)


def newly_unreadable(before: Known, after: Known) -> list[Unreadable]:
    """Return what *after* could not read and has not been said of *before*."""
    said = set(before.unreadable)
    return [each for each in after.unreadable if each not in said]


def targets(
    known: Known, agent: AgentState | None, templates: Templates = NO_TEMPLATES
) -> dict[ReleaseId, Target]:
    """Return the releases that are routed and ready here, under the digest that was released."""
    serving = set(known.serving())
    return {i: target for i, target in loaded(known, agent, templates).items() if i in serving}


def loaded(
    known: Known, agent: AgentState | None, templates: Templates = NO_TEMPLATES
) -> dict[ReleaseId, Target]:
    """Return the releases that are ready here, routed or not, under the digest released.

    One whose prompt is to be applied, and could not be read, is not.
    """
    found = {}
    for here in agent.ready if agent else ():
        at = known.releases.get((here.service, here.number))
        template = templates.get(here.prompt)
        if here.prompt and template is None:
            continue
        if at and at.release.digest and at.release.digest == here.digest:
            tenant = known.tenant(here.service)
            found[here.service, here.number] = _target(at.release, here, template, tenant)
    return found


def _target(
    release: Release, ready: ReadyRelease, template: Template | None, tenant: str
) -> Target:
    roots = {name: artifact.root for name, artifact in release.components.items()}
    weights, adapter = roots.get(Component.WEIGHTS, ""), roots.get(Component.ADAPTER, "")
    return Target(
        service=release.service,
        tenant=tenant,
        number=release.number,
        digest=release.digest,
        model=ready.model,
        weights_root=weights,
        adapter_root=adapter,
        salt=cache_salt(tenant=tenant, weights_root=weights, adapter_root=adapter, client_salt=""),
        template=template,
    )


def unready(known: Known, found: Mapping[ReleaseId, Target]) -> list[str]:
    """Return the serving releases that are not ready here, as ``service/number``."""
    return [
        f"{service}/{number}"
        for service, number in known.serving()
        if (service, number) not in found
    ]


def forwardable(known: Known, node: str) -> bool:
    """Whether a peer of *node* serves any release that a request may get."""
    return any(peer.node != node for i in known.serving() for peer in known.peers_of(i))


def is_behind(known: Known, update: Update) -> bool:
    """Whether the store is behind what was already acted on: it was restored from a backup."""
    return update.revision < known.newest
