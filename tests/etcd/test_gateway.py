"""Reads over the JSON gateway: the same as over gRPC, with other endpoints and time limits."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.etcd.conftest import ServerMaker, StoreMaker
from tests.etcd.servers import EtcdServer, find_binaries, free_port
from vctl_plans.errors import Rejected, StoreUnavailable
from vctl_plans.store.gateway import GatewayReader, GatewayUnsuitable
from vctl_plans.store.port import MAX_TXN_OPS, Put, Txn
from vctl_plans.store.settings import StoreSettings


@pytest.fixture(params=sorted(find_binaries()))
def endpoint(request: pytest.FixtureRequest, shared_servers: Callable[[str], str]) -> str:
    return shared_servers(request.param)


@pytest.mark.etcd
async def test_the_gateway_reads_what_grpc_wrote(
    endpoint: str, make_store: StoreMaker, prefix: str
):
    store = make_store(endpoint)
    lease = await store.grant(30)
    for name in ("a", "a/ü", "\udcff", "z z"):
        await store.put(prefix + name, name.encode(errors="replace"), lease_id=lease.id)
    await store.put(prefix + "empty", b"")
    await store.put(prefix + "empty", b"")
    with GatewayReader(StoreSettings((endpoint,))) as reader:
        assert reader.list(prefix).entries == (await store.list(prefix)).entries
        assert reader.get(prefix + "empty") == await store.get(prefix + "empty")
        assert reader.get(prefix + "none") is None
        assert reader.list(prefix + "none").entries == ()
        with pytest.raises(Rejected, match="empty"):
            reader.get("")
    await lease.revoke()


@pytest.mark.etcd
def test_a_member_tells_how_it_is(endpoint: str):
    with GatewayReader(StoreSettings((endpoint,))) as reader:
        told = reader.status(time.time)
    assert (told.endpoint, told.has_leader, told.alarms, told.problem) == (endpoint, True, (), "")
    assert told.version.startswith("3.")
    assert told.has_users is False
    assert told.has_compacted is False
    assert told.clock_ahead_s is not None
    assert abs(told.clock_ahead_s) < 2  # it is this machine's own clock
    assert told.size_bytes > 0


@pytest.mark.etcd
def test_a_member_that_compacts_tells_so(newest: Path, make_server: ServerMaker):
    server = make_server(newest)
    for number in range(3):
        server.ctl("put", "/a", str(number))
    server.ctl("compact", "3")
    with GatewayReader(StoreSettings((server.endpoint,))) as reader:
        assert reader.status(time.time).has_compacted is True


@pytest.mark.etcd
async def test_the_gateway_reads_more_than_a_thousand_keys_at_one_revision(
    endpoint: str, make_store: StoreMaker, prefix: str
):
    store = make_store(endpoint)
    names = [f"{prefix}{number:04}" for number in range(1_100)]
    for start in range(0, len(names), MAX_TXN_OPS):
        batch = names[start : start + MAX_TXN_OPS]
        await store.commit(Txn(operations=tuple(Put(name, b"x") for name in batch)))
    with GatewayReader(StoreSettings((endpoint,))) as reader:
        listing = reader.list(prefix)
    assert listing.entries == (await store.list(prefix)).entries
    assert [entry.key for entry in listing.entries] == names


@pytest.mark.etcd
def test_a_dead_endpoint_is_passed_over(endpoint: str, prefix: str):
    dead = f"http://127.0.0.1:{free_port()}"
    for _ in range(4):  # the order is random
        with GatewayReader(StoreSettings((dead, endpoint))) as reader:
            assert reader.get(prefix + "a") is None


def test_all_endpoints_are_named_when_none_answers():
    endpoints = tuple(f"127.0.0.1:{free_port()}" for _ in range(3))
    start = time.monotonic()
    reader = GatewayReader(StoreSettings(endpoints, timeout_s=0.2))
    with reader, pytest.raises(StoreUnavailable) as caught:
        reader.list("/a")
    assert time.monotonic() - start < 2
    for endpoint in endpoints:
        assert f"http://{endpoint}" in caught.value.message


@pytest.mark.etcd
def test_a_stopped_server_is_given_up_in_time(newest: Path, make_server: ServerMaker):
    server = make_server(newest)
    with GatewayReader(StoreSettings((server.endpoint,), timeout_s=0.5), budget_s=1) as reader:
        assert reader.get("/a") is None
        server.pause()
        start = time.monotonic()
        with pytest.raises(StoreUnavailable, match="timed out"):
            reader.get("/a")
        assert time.monotonic() - start < 2
        server.resume()
        assert reader.get("/a") is None


@pytest.mark.etcd
def test_a_restarted_server_is_reached_again(newest: Path, make_server: ServerMaker):
    server: EtcdServer = make_server(newest)
    with GatewayReader(StoreSettings((server.endpoint,))) as reader:
        assert reader.get("/a") is None
        server.kill()
        server.start()
        assert reader.get("/a") is None


@pytest.mark.etcd
def test_a_gateway_that_is_switched_off_is_told_apart(newest: Path, make_server: ServerMaker):
    server = make_server(newest, args=["--enable-grpc-gateway=false"])
    reader = GatewayReader(StoreSettings((server.endpoint,)))
    with reader, pytest.raises(GatewayUnsuitable, match="no JSON gateway"):
        reader.get("/a")


class NoEtcd(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>welcome</html>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def no_etcd() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), NoEtcd)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_no_etcd_is_shown(no_etcd: str):
    reader = GatewayReader(StoreSettings((no_etcd,)), budget_s=0.3)
    with reader, pytest.raises(StoreUnavailable, match="welcome"):
        reader.get("/a")


def test_the_gateway_loads_neither_grpc_nor_asyncio():
    code = (
        "import sys, vctl_plans.store.gateway; "
        "print(sorted({'grpc', 'etcd3', 'httpx', 'asyncio'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip() == "[]"
