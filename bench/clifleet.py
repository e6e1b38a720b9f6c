"""A fleet's keys in a real etcd, as agents and a conductor leave them, for `bench.cli`.

Nothing runs there: what is measured is a command and the store, not nodes.
"""

import asyncio
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import msgspec

from bench.ports import free_ports
from vctl_plans.capability import Capability, EngineFacts
from vctl_plans.codec import encode
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport, ReleaseReport
from vctl_plans.phase import Component, NodePhase
from vctl_plans.release import Actor, Artifact, Release, compose
from vctl_plans.rollout import ServiceSpec
from vctl_plans.route import Route
from vctl_plans.snapshot import Fleet, read_nodes, read_services
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.gateway import GatewayReader
from vctl_plans.store.port import MAX_TXN_OPS, Delete, KeyValue, Operation, Put, Txn
from vctl_plans.store.settings import StoreSettings
from vctl_plans.summary import summary

SERVICE = "support"
_START_S = 20.0
_FACTS = EngineFacts(
    kind="vllm",
    version="0.10.2",
    base="meta-llama/Llama-3.1-8B-Instruct",
    capabilities=tuple(Capability),
    max_adapters=8,
    max_resident=16,
    max_rank=64,
)


@contextmanager
def etcd(binary: Path, folder: Path) -> Iterator[str]:
    """Run an etcd on loopback inside the block; yield its address."""
    client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    command = [
        *(str(binary), "--data-dir", str(folder / "data"), "--logger", "zap"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"default={peer}"),
    ]
    with (folder / "etcd.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with GatewayReader(StoreSettings((client,)), budget_s=_START_S) as reader:
            reader.get("/started")
        yield client
    finally:
        running.kill()
        running.wait()


def fill(endpoint: str, fleet: str, *, nodes: int) -> Keys:
    """Write a fleet of so many nodes on which release 2 serves and release 1 is instant."""
    keys = Keys(fleet)
    names = [f"node-{number:05}" for number in range(nodes)]
    operations: list[Operation] = [
        *(Put(keys.node(name), encode(_record(name))) for name in names),
        *(Put(keys.report(name), encode(_report(name))) for name in names),
        *service(keys),
    ]
    asyncio.run(_write(endpoint, keys, operations))
    return keys


def service(keys: Keys) -> list[Operation]:
    """Return the writes that bring the service to where release 1 can be gone back to at once."""
    route = Route(
        service=SERVICE, stable=2, salt=SERVICE, good=(1, 2), instant=(1,), pinnable=(1, 2)
    )
    return [
        Put(keys.spec(SERVICE), encode(ServiceSpec(service=SERVICE))),
        *(Put(keys.release(SERVICE, r.number), encode(r)) for r in _RELEASES),
        Delete(keys.rollout(SERVICE)),
        Put(keys.route(SERVICE), encode(route)),
    ]


def _releases() -> list[Release]:
    made: list[Release] = []
    for number in (1, 2):
        root = f"b3:{number:064x}"
        wish = {Component.ADAPTER: Artifact(root=root, source=f"s3://models/support/v{number}")}
        stable = made[-1] if made else None
        made.append(compose(SERVICE, wish, known=made, stable=stable, by=Actor(user="ann")))
    return made


_RELEASES = _releases()


def _record(node: str) -> NodeRecord:
    return NodeRecord(
        node=node,
        boot_id=f"{crc32(node.encode()):032x}",
        gateway_url=f"http://{node}.gpu.internal:8080",
        admin_url=f"http://{node}.gpu.internal:9090",
        engine="vllm",
        facts=_FACTS,
    )


def _report(node: str) -> NodeReport:
    said = (
        ReleaseReport(
            service=SERVICE,
            number=release.number,
            digest=release.digest,
            phase=NodePhase.READY,
            attempt="20260101-120000-abcdef",
        )
        for release in _RELEASES
    )
    return NodeReport(
        node=node,
        boot_id=f"{crc32(node.encode()):032x}",
        incarnation=secrets.token_hex(8),
        releases=tuple(said),
        routes={SERVICE: 1 << 40},
        gateway_ok=True,
        kv_used=0.35,
        adapters=2,
        disk_used=0.4,
    )


async def _write(endpoint: str, keys: Keys, operations: list[Operation]) -> None:
    store = EtcdStore(StoreSettings((endpoint,)))
    try:
        for start in range(0, len(operations), MAX_TXN_OPS):
            await store.commit(Txn(operations=tuple(operations[start : start + MAX_TXN_OPS])))
        parts = [(await store.list(p)).entries for p in (keys.services, keys.nodes, keys.reports)]
        await store.put(keys.summary, encode(summary(_fleet(keys, *parts))))
    finally:
        await store.close()


def _fleet(keys: Keys, *parts: tuple[KeyValue, ...]) -> Fleet:
    services, records, reports = parts
    nodes = read_nodes(keys, records, reports)
    return msgspec.structs.replace(nodes, services=read_services(keys, services).services)
