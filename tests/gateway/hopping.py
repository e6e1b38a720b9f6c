"""Gateways of one fleet in this process, each with its own store, so that each has its own news."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.gateway.support import (
    KEYS,
    SERVICE,
    Bench,
    StubEngine,
    a_release,
    a_route,
    bench,
    eventually,
)
from vctl_agent.gateway.fleetkey import FleetKey
from vctl_plans.codec import encode
from vctl_plans.peers import Peer, Peers, ReleasePeers

KEY = FleetKey([b"0123456789abcdef" * 2])
OTHER_KEY = FleetKey([b"fedcba9876543210" * 2])


@contextlib.asynccontextmanager
async def gateways(folder: Path, count: int, **fields: Any) -> AsyncIterator[list[Bench]]:
    """Run gateways n1, n2 ... that route release 1; all but n1 have releases 1 and 2 ready."""
    given: dict[str, Any] = {"fleet_key": KEY, "has_access_log": False}
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for n in range(1, count + 1):
            own = folder / f"n{n}"
            own.mkdir()
            each = await stack.enter_async_context(bench(own, node=f"n{n}", **(given | fields)))
            await each.route(a_route(1), a_release(1), a_release(2))
            await each.ready(*([] if n == 1 else [a_release(1), a_release(2)]))
            made.append(each)
        await name_peers(made[0], *made)
        yield made
        for each in made:
            await eventually(lambda each=each: each.gateway.references.listing() == ())  # type: ignore[misc]


async def name_peers(gateway: Bench, *peers: Bench | StubEngine) -> None:
    """Have *gateway* learn who serves releases 1 and 2; its own name is n1, theirs follow."""
    await name_urls(gateway, [each.url for each in peers])


def peers_at(urls: Sequence[str]) -> Peers:
    """Return the peers n1, n2 ... of releases 1 and 2."""
    listing = tuple(Peer(node=f"n{n}", url=url) for n, url in enumerate(urls, 1))
    releases = (
        ReleasePeers(number=n, digest=a_release(n).digest, gateways=listing) for n in (1, 2)
    )
    return Peers(service=SERVICE, releases=tuple(releases))


async def name_urls(gateway: Bench, urls: Sequence[str]) -> None:
    revision = await gateway.store.put(KEYS.peers(SERVICE), encode(peers_at(urls)))
    known = gateway.gateway.live
    await eventually(lambda: known.acted.known.revision >= revision)


async def hops(gateway: Bench) -> dict[tuple[str, str], int]:
    """Return how often each outcome was counted, by (direction, outcome)."""
    found: dict[tuple[str, str], int] = {}
    for line in (await gateway.metrics()).splitlines():
        if line.startswith("vctl_gateway_hops_total{"):
            labels, value = line.removeprefix("vctl_gateway_hops_total{").split("} ")
            pairs = dict(part.replace('"', "").split("=") for part in labels.split(","))
            name = (pairs["direction"], pairs["outcome"])
            found[name] = found.get(name, 0) + int(float(value))
    return found
