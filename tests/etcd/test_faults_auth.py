"""F16 and certificates: who may read what, and tokens that run out."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.etcd.certificates import Authority
from tests.etcd.conftest import ServerMaker, StoreMaker
from tests.etcd.servers import EtcdServer
from tests.etcd.waiting import next_update, update_where
from vctl_plans.errors import Rejected, StoreUnavailable
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.gateway import GatewayReader, GatewayUnsuitable
from vctl_plans.store.gateway_http import GatewayHttp
from vctl_plans.store.port import Delete, ModRevisionIs, Put, Txn
from vctl_plans.store.settings import StoreSettings

pytestmark = pytest.mark.etcd
TOKEN_TTL_S = 2


def enable_auth(server: EtcdServer, prefix: str, *flags: str) -> None:
    """Let *ann* read and write *prefix* only; she may come with password or certificate."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    for command in (
        ("user", "add", "root:root"),
        ("user", "grant-role", "root", "root"),
        ("user", "add", "ann:secret"),
        ("role", "add", "writer"),
        ("role", "grant-permission", "writer", "readwrite", prefix, end),
        ("user", "grant-role", "ann", "writer"),
        ("auth", "enable"),
    ):
        server.ctl(*flags, *command)


@pytest.fixture
def guarded(binary: Path, make_server: ServerMaker, prefix: str) -> EtcdServer:
    """A server that knows ann, and forgets idle tokens after two seconds."""
    server = make_server(binary, args=["--auth-token-ttl", str(TOKEN_TTL_S)])
    enable_auth(server, prefix)
    return server


async def test_f16_expired_tokens_are_never_seen(
    guarded: EtcdServer, make_store: StoreMaker, prefix: str
):
    store = make_store(guarded.endpoint, user="ann", password="secret")
    updates = store.watch(prefix)
    await next_update(updates)
    lease = await store.grant(3)
    for number in range(2):
        await asyncio.sleep(TOKEN_TTL_S + 1.5)
        await store.put(f"{prefix}{number}", b"", lease_id=lease.id)
        assert (await next_update(updates)).changed == {f"{prefix}{number}"}
        assert len((await next_update(store.watch(prefix))).entries) == number + 1
    assert lease.valid_for_s() > 0


async def test_f16_a_restarted_server_is_authenticated_to_again(
    guarded: EtcdServer, make_store: StoreMaker, prefix: str
):
    store = make_store(guarded.endpoint, user="ann", password="secret")
    updates = store.watch(prefix)
    await next_update(updates)
    guarded.kill()
    await asyncio.to_thread(guarded.start)
    await store.put(prefix + "a", b"")
    await update_where(updates, lambda update: update.is_live and bool(update.entries))


async def test_f16_a_denied_prefix_is_a_hard_error(
    guarded: EtcdServer, make_store: StoreMaker, prefix: str
):
    store = make_store(guarded.endpoint, user="ann", password="secret")
    with pytest.raises(Rejected) as caught:
        await next_update(store.watch("/elsewhere/"))
    assert caught.value.code == "PERMISSION_DENIED"
    assert caught.value.message == "etcd does not let user 'ann' read /elsewhere/*"
    assert "grant-permission ROLE --prefix=true read /elsewhere/" in caught.value.hint
    with pytest.raises(Rejected, match=r"write /elsewhere/a$"):
        await store.put("/elsewhere/a", b"")
    txn = Txn((ModRevisionIs(prefix + "a", 0),), (Put("/elsewhere/a", b""), Delete(prefix + "b")))
    with pytest.raises(Rejected, match=f"read {prefix}a and write /elsewhere/a, {prefix}b$"):
        await store.commit(txn)
    await store.put(prefix + "a", b"")


async def test_without_user_or_with_a_wrong_password_it_is_said(
    guarded: EtcdServer, make_store: StoreMaker, prefix: str
):
    with pytest.raises(Rejected, match="who asks") as caught:
        await make_store(guarded.endpoint).get(prefix)
    assert "ETCDCTL_USER" in caught.value.hint
    with pytest.raises(Rejected, match="'ann', or the password is wrong"):
        await make_store(guarded.endpoint, user="ann", password="wrong").get(prefix)
    reader = GatewayReader(StoreSettings((guarded.endpoint,), user="ann", password="wrong"))
    with reader, pytest.raises(Rejected, match="'ann', or the password is wrong"):
        reader.get(prefix)


async def test_a_user_is_no_harm_where_authentication_is_off(
    newest: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(newest)
    store = make_store(server.endpoint, user="ann", password="secret")
    await store.put(prefix + "a", b"1")
    enable_auth(server, prefix)
    await store.put(prefix + "a", b"2")
    settings = StoreSettings((server.endpoint,), user="ann", password="secret")
    with GatewayReader(settings) as reader:
        entry = reader.get(prefix + "a")
    assert entry is not None
    assert entry.value == b"2"


async def test_the_gateway_reader_authenticates_and_again(
    guarded: EtcdServer, make_store: StoreMaker, prefix: str
):
    store = make_store(guarded.endpoint, user="ann", password="secret")
    await store.put(prefix + "a", b"1")
    settings = StoreSettings((guarded.endpoint,), user="ann", password="secret")
    with GatewayReader(settings) as reader:
        listing = reader.list(prefix)
        await asyncio.sleep(TOKEN_TTL_S + 1.5)
        assert reader.list(prefix).entries == listing.entries
        with pytest.raises(Rejected) as caught:
            reader.get("/elsewhere/a")
    assert caught.value.code == "PERMISSION_DENIED"
    stranger = GatewayReader(StoreSettings((guarded.endpoint,)))
    with stranger, pytest.raises(Rejected, match="who asks"):
        stranger.get(prefix + "a")


async def get_over_new_channel(store: EtcdStore, key: str) -> None:
    """Let *store* connect anew, which reads its certificate files again."""
    channels = store._connection.channels
    channels.rotate(channels.generation)
    await store.get(key)


async def test_a_certificate_names_the_user_over_grpc_and_not_over_the_gateway(
    binary: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str, tmp_path: Path
):
    authority = Authority(tmp_path / "tls")
    server_files = (*authority.issue("server"), authority.certificate)
    server = make_server(binary, tls=server_files)
    flags = {}
    for user in ("root", "ann"):
        certificate, key = map(str, authority.issue(user))
        files = {"ca_file": str(authority.certificate), "cert_file": certificate, "key_file": key}
        flags[user] = files
    root = flags["root"]
    enable_auth(
        server,
        prefix,
        *("--cacert", root["ca_file"], "--cert", root["cert_file"], "--key", root["key_file"]),
    )
    store = make_store(server.endpoint, timeout_s=0.5, **flags["ann"])
    await store.put(prefix + "a", b"1")
    assert set((await next_update(store.watch(prefix))).entries) == {prefix + "a"}
    with pytest.raises(Rejected) as caught:
        await store.get("/elsewhere/a")
    assert caught.value.code == "PERMISSION_DENIED"

    ann = StoreSettings((server.endpoint,), **flags["ann"])  # type: ignore[arg-type]
    with GatewayReader(ann) as reader, pytest.raises(GatewayUnsuitable):
        reader.get(prefix + "a")
    (tmp_path / "tls" / "ann.key").unlink()
    with pytest.raises(StoreUnavailable, match=r"ann\.key: No such file"):
        await get_over_new_channel(store, prefix + "a")
    stranger = make_store(server.endpoint, timeout_s=0.3, ca_file=root["ca_file"])
    with pytest.raises(StoreUnavailable):
        await stranger.get(prefix + "a")


def bought(server: EtcdServer) -> str:
    """Return a token of ann's, as somebody else would get it for us."""
    request: dict[str, object] = {"name": "ann", "password": "secret"}
    http = GatewayHttp(StoreSettings((server.endpoint,)), 5.0)
    try:
        return str(http.ask("/v3/auth/authenticate", request)["token"])
    finally:
        http.close()


async def test_given_token_lets_in_and_its_file_is_read_again_when_it_runs_out(
    guarded: EtcdServer, make_store: StoreMaker, prefix: str, tmp_path: Path
):
    """Reads over the gateway and writes over gRPC: who renews the file need restart nothing."""
    file = tmp_path / "token"
    file.write_text(f"{await asyncio.to_thread(bought, guarded)}\n")
    store = make_store(guarded.endpoint, token_file=str(file))
    await store.put(prefix + "a", b"1")

    def read() -> object:
        settings = StoreSettings((guarded.endpoint,), token_file=str(file))
        with GatewayReader(settings) as reader:
            return reader.get(prefix + "a")

    assert await asyncio.to_thread(read) == await store.get(prefix + "a")
    await asyncio.sleep(TOKEN_TTL_S + 1.5)
    with pytest.raises(Rejected, match="does not accept the token") as caught:
        await store.put(prefix + "a", b"2")
    assert "VCTL_TOKEN_FILE" in caught.value.hint
    with pytest.raises(Rejected, match="does not accept the token"):
        await asyncio.to_thread(read)

    file.write_text(await asyncio.to_thread(bought, guarded))
    await store.put(prefix + "a", b"3")
    assert await asyncio.to_thread(read) == await store.get(prefix + "a")


async def test_token_file_that_went_is_told(
    guarded: EtcdServer, make_store: StoreMaker, prefix: str, tmp_path: Path
):
    file = tmp_path / "token"
    file.write_text(" ")
    store = make_store(guarded.endpoint, token_file=str(file))
    with pytest.raises(Rejected, match="is empty"):
        await store.get(prefix)
    file.unlink()
    with pytest.raises(Rejected, match="cannot be read"):
        await store.get(prefix)


async def test_user_learns_whether_they_may_do_everything(guarded: EtcdServer):
    """Each may ask for their own roles, and `doctor` says when there are too many."""

    def superuser(name: str, password: str) -> bool | None:
        settings = StoreSettings((guarded.endpoint,), user=name, password=password)
        with GatewayReader(settings) as reader:
            return reader.status(now=time.time).is_superuser

    assert await asyncio.to_thread(superuser, "root", "root") is True
    assert await asyncio.to_thread(superuser, "ann", "secret") is False
