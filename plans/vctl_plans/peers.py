"""Peers: the gateways that take a request whose own node is not ready for its release.

One key a service, watched by every agent and gateway, so it must seldom change: what stands stays
for as long as it serves, and is not tidied up. A release is listed only from when some node of the
fleet is not ready for it. A node whose agent died counts as one that is not: its gateway lives on.

The hard decision: which 64 of ten thousand. Those with the lowest hash of (release digest, node),
so that every conductor lists the same ones, and not the same ones for every release. A node that is
to change its base is listed no more, though it says for a moment still that it is ready; nor is one
that is to be drained, which takes no new request once others are listed.
"""

from collections.abc import Mapping
from functools import partial

import msgspec
from blake3 import blake3

from vctl_plans.base import has_place
from vctl_plans.codec import Value
from vctl_plans.phase import NodePhase
from vctl_plans.release import Release
from vctl_plans.snapshot import Fleet, Service

MOST_PEERS = 64
"""Gateways that are listed for a release: enough to share out the load of a few nodes."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway that others can reach."""

    node: str
    url: str


class ReleasePeers(msgspec.Struct, frozen=True, kw_only=True):
    """The gateways that serve one release."""

    number: int
    digest: str
    gateways: tuple[Peer, ...]  # by name; not empty
    unconfirmed: bool = False  # nobody says that it is ready: these did last


class Peers(Value, frozen=True, kw_only=True):
    """The gateways that serve a service's releases."""

    service: str
    releases: tuple[ReleasePeers, ...] = ()  # by number

    def of(self, number: int, digest: str) -> tuple[Peer, ...]:
        """Return who serves exactly this release."""
        found = (r.gateways for r in self.releases if (r.number, r.digest) == (number, digest))
        return next(found, ())

    def confirmed(self, number: int, digest: str) -> frozenset[str]:
        """Return the nodes that said, when this was written, that they serve exactly this one."""
        is_guess = any(
            r.unconfirmed for r in self.releases if (r.number, r.digest) == (number, digest)
        )
        return frozenset() if is_guess else frozenset(p.node for p in self.of(number, digest))


class Standing(msgspec.Struct, frozen=True):
    """What all nodes say of all releases, read once for all services."""

    nodes: int  # of which anything is known, dead agents' among them
    draining: frozenset[str]  # that are to be drained, or are
    ready: dict[tuple[str, int, str], dict[str, str]]
    """Service, number and digest -> each node that is ready, and its gateway's address."""


def standing(nodes: Fleet) -> Standing:
    """Return what the records and reports of a fleet come to."""
    ready: dict[tuple[str, int, str], dict[str, str]] = {}
    for node, report in nodes.present().items():
        serves = report.gateway_ok and report.drain is None
        for said in report.releases if serves else ():
            if said.phase is NodePhase.READY:
                found = ready.setdefault((said.service, said.number, said.digest), {})
                found[node] = nodes.records[node].gateway_url
    draining = frozenset(node for node, said in nodes.reports.items() if said.drain)
    return Standing(len(nodes.records.keys() | nodes.reports.keys()), draining, ready)


def listed(service: Service, nodes: Standing, before: Peers) -> Peers:
    """Return the peers that should stand in the key: equal to *before* where it is still right.

    Args:
        service: The service.
        nodes: What all nodes say.
        before: What stands there now.
    """
    held = {(r.number, r.digest): r for r in before.releases}
    releases = []
    serving = frozenset() if service.is_direct else service.current_route.serving
    for number in sorted(serving & service.releases.keys()):
        release = service.releases[number]
        ready = nodes.ready.get((service.name, number, release.digest), {})
        ready = {n: url for n, url in ready.items() if has_place(service, number, n)}
        entry = held.get((number, release.digest))
        if len(ready) < nodes.nodes:
            named = entry.gateways if entry else ()
            staying = tuple(
                peer
                for peer in named
                if has_place(service, number, peer.node) and peer.node not in nodes.draining
            )
            entry = _entry(release, ready, staying)
        if entry and entry.gateways:
            releases.append(entry)
    return Peers(service=service.name, releases=tuple(releases))


def _entry(release: Release, ready: Mapping[str, str], before: tuple[Peer, ...]) -> ReleasePeers:
    """Return the release's peers: those of *before* that still serve it, filled up.

    *ready* says where each ready node is reached; empty: nowhere but on its own host. While nobody
    says that it is ready, *before* stays: it may be that only agents died, or have just begun, and
    a peer looks for itself before it serves.
    """
    if not ready:
        return ReleasePeers(
            number=release.number, digest=release.digest, gateways=before, unconfirmed=True
        )
    able = {node: Peer(node=node, url=url) for node, url in ready.items() if url}
    kept = [peer for peer in before if able.get(peer.node) == peer]
    missing = min(MOST_PEERS, len(able)) - len(kept)
    if missing > 0:
        rest = able.keys() - {peer.node for peer in kept}
        kept += [able[node] for node in sorted(rest, key=partial(_rank, release.digest))[:missing]]
    gateways = tuple(sorted(kept, key=lambda peer: peer.node))
    return ReleasePeers(number=release.number, digest=release.digest, gateways=gateways)


def _rank(digest: str, node: str) -> bytes:
    return blake3(f"{digest}/{node}".encode()).digest()
