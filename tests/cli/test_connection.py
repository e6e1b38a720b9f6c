"""How commands reach etcd: TLS, users, several endpoints, contexts; and what they say when not.

Real processes on a real etcd, as a person runs them.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.builders import SERVICE, a_report, a_route, some_releases
from tests.cli.support import a_record
from tests.etcd.certificates import Authority
from tests.etcd.conftest import ServerMaker
from tests.etcd.servers import EtcdServer, free_port
from vctl_plans.codec import encode
from vctl_plans.keys import Keys
from vctl_plans.phase import NodePhase
from vctl_plans.rollout import ServiceSpec
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.settings import StoreSettings

pytestmark = pytest.mark.etcd
KEYS = Keys("prod")


def vctl(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `vctl` with these variables and no others of its own."""
    mine = ("VCTL_", "ETCDCTL_", "XDG_CONFIG")
    rest = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    return subprocess.run(
        [sys.executable, "-m", "vctl_cli", *arguments],
        env={**rest, "VCTL_FLEET": "prod", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


async def fill(settings: StoreSettings, keys: Keys = KEYS) -> None:
    """Write a fleet of one node on which release 2 serves and 1 is instant."""
    store = EtcdStore(settings)
    route = a_route(stable=2, good=(1, 2), instant=(1,))
    values = {
        keys.spec(SERVICE): ServiceSpec(service=SERVICE),
        keys.route(SERVICE): route,
        keys.node("a"): a_record("a"),
        keys.report("a"): a_report("a", r1=NodePhase.READY, r2=NodePhase.READY),
        **{keys.release(SERVICE, number): each for number, each in some_releases(2).items()},
    }
    try:
        for key, value in values.items():
            await store.put(key, encode(value))
    finally:
        await store.close()


def users(server: EtcdServer, *flags: str) -> None:
    """Let *ann* do all under the fleet's prefix, and *bob* see the services only."""
    for command in (
        ("user", "add", "root:root"),
        ("user", "grant-role", "root", "root"),
        ("user", "add", "ann:secret"),
        ("role", "add", "operator"),
        ("role", "grant-permission", "operator", "--prefix=true", "readwrite", KEYS.root),
        ("user", "grant-role", "ann", "operator"),
        ("user", "add", "bob:secret"),
        ("role", "add", "looker"),
        ("role", "grant-permission", "looker", "--prefix=true", "read", KEYS.services),
        ("user", "grant-role", "bob", "looker"),
        ("auth", "enable"),
    ):
        server.ctl(*flags, *command)


@pytest.fixture
async def guarded(binary: Path, make_server: ServerMaker) -> EtcdServer:
    """A server that knows ann and bob."""
    server = make_server(binary)
    await fill(StoreSettings((server.endpoint,)))
    users(server)
    return server


async def test_a_user_reads_and_writes_with_etcdctl_s_variables(guarded: EtcdServer):
    env = {"ETCDCTL_ENDPOINTS": guarded.endpoint, "ETCDCTL_USER": "ann:secret"}
    seen = vctl("status", **env)
    assert (seen.returncode, seen.stderr) == (0, "")
    assert SERVICE in seen.stdout
    back = vctl("rollback", "--now", "--no-watch", "-s", SERVICE, "--reason", "x", **env)
    assert back.returncode == 0, back.stderr
    apart = {"VCTL_USER": "ann", "ETCDCTL_PASSWORD": "secret"}
    assert vctl("status", VCTL_ENDPOINTS=guarded.endpoint, **apart).returncode == 0


async def test_a_wrong_password_is_called_one(guarded: EtcdServer):
    env = {"VCTL_ENDPOINTS": guarded.endpoint, "ETCDCTL_USER": "ann:wrong"}
    for arguments in (("status",), ("rollback", "--now", "-s", SERVICE)):
        said = vctl(*arguments, **env)
        assert (said.returncode, said.stdout) == (6, "")
        assert said.stderr == (
            "vctl: etcd does not know user 'ann', or the password is wrong\n"
            "  set ETCDCTL_USER=user:password, or VCTL_USER and VCTL_PASSWORD\n"
        )


async def test_a_permission_that_is_lacking_is_named_with_its_keys(guarded: EtcdServer):
    env = {"VCTL_ENDPOINTS": guarded.endpoint, "ETCDCTL_USER": "bob:secret"}
    said = vctl("status", **env)
    assert (said.returncode, said.stdout) == (6, "")
    assert said.stderr.startswith(f"vctl: etcd does not let user 'bob' read {KEYS.summary}\n")
    more = vctl("events", **env)
    assert more.returncode == 6
    lacking = re.search(r"does not let user 'bob' read (\S+)\*\n", more.stderr)
    assert lacking, more.stderr
    assert f"etcdctl role grant-permission ROLE --prefix=true read {lacking[1]}\n" in more.stderr
    assert "vctl config init-auth" in more.stderr


async def test_nobody_is_asked_who_asks(guarded: EtcdServer):
    said = vctl("status", VCTL_ENDPOINTS=guarded.endpoint)
    assert said.returncode == 6
    assert "wants to know who asks" in said.stderr
    assert "ETCDCTL_USER" in said.stderr


@pytest.fixture
async def secured(
    binary: Path, make_server: ServerMaker, tmp_path: Path
) -> tuple[EtcdServer, dict[str, dict[str, str]]]:
    """A server that speaks TLS with clients whose certificate names ann or bob."""
    authority = Authority(tmp_path / "tls")
    server = make_server(binary, tls=(*authority.issue("server"), authority.certificate))
    files = {}
    for name in ("root", "ann", "bob"):
        certificate, key = map(str, authority.issue(name))
        files[name] = {
            "ETCDCTL_ENDPOINTS": server.endpoint,
            "ETCDCTL_CACERT": str(authority.certificate),
            "ETCDCTL_CERT": certificate,
            "ETCDCTL_KEY": key,
        }
    await fill(StoreSettings.from_environment(files["root"]))
    return server, files


def flags(env: Mapping[str, str]) -> tuple[str, ...]:
    names = {"ETCDCTL_CACERT": "--cacert", "ETCDCTL_CERT": "--cert", "ETCDCTL_KEY": "--key"}
    return tuple(part for name, flag in names.items() for part in (flag, env[name]))


async def test_tls_with_a_certificate_of_one_s_own(
    secured: tuple[EtcdServer, dict[str, dict[str, str]]], tmp_path: Path
):
    server, files = secured
    assert SERVICE in vctl("status", **files["ann"]).stdout
    users(server, *flags(files["root"]))  # from now on the certificate's name is the user
    seen = vctl("status", **files["ann"])
    assert (seen.returncode, seen.stderr) == (0, "")
    assert SERVICE in seen.stdout
    refused = vctl("status", **files["bob"])
    assert refused.returncode == 6
    assert f"the user of {files['bob']['ETCDCTL_CERT']} read {KEYS.summary}" in refused.stderr

    ann = files["ann"]
    made = vctl(
        *("config", "set", "eu", "--fleet", "prod", "--endpoints", server.endpoint),
        *flags(ann),
        XDG_CONFIG_HOME=str(tmp_path),
    )
    assert made.returncode == 0, made.stderr
    assert SERVICE in vctl("status", "--context", "eu", XDG_CONFIG_HOME=str(tmp_path)).stdout


async def test_tls_that_cannot_be_is_said_with_the_files_that_are_missing(
    secured: tuple[EtcdServer, dict[str, dict[str, str]]],
):
    server, files = secured
    stranger = vctl("status", ETCDCTL_ENDPOINTS=server.endpoint)
    assert stranger.returncode == 6
    assert f"{server.endpoint} (its certificate is not accepted" in stranger.stderr
    assert "ETCDCTL_CACERT" in stranger.stderr
    bare = {name: files["ann"][name] for name in ("ETCDCTL_ENDPOINTS", "ETCDCTL_CACERT")}
    uncertified = vctl("status", **bare)
    assert uncertified.returncode == 6
    assert "ETCDCTL_CERT and ETCDCTL_KEY" in uncertified.stderr
    plain = vctl("status", ETCDCTL_ENDPOINTS=server.endpoint.replace("https", "http"))
    assert plain.returncode == 6
    missing = vctl("status", **{**files["ann"], "ETCDCTL_KEY": "/nowhere.key"})
    assert missing.returncode == 2
    assert "ETCDCTL_KEY: there is no file /nowhere.key" in missing.stderr


async def test_a_user_with_a_password_over_tls_by_a_context(
    binary: Path, make_server: ServerMaker, tmp_path: Path
):
    authority = Authority(tmp_path / "tls")
    certificate, key = authority.issue("server")
    server = make_server(binary, tls=(certificate, key, authority.certificate), asks_clients=False)
    await fill(StoreSettings((server.endpoint,), ca_file=str(authority.certificate)))
    users(server, "--cacert", str(authority.certificate))
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    made = vctl(
        *("config", "set", "eu", "--fleet", "prod", "--endpoints", server.endpoint),
        *("--cacert", str(authority.certificate), "--user", "ann", "--password-file", str(secret)),
        XDG_CONFIG_HOME=str(tmp_path),
    )
    assert made.returncode == 0, made.stderr
    assert SERVICE in vctl("status", XDG_CONFIG_HOME=str(tmp_path)).stdout
    other = vctl("status", XDG_CONFIG_HOME=str(tmp_path), ETCDCTL_USER="bob:secret")
    assert "user 'bob'" in other.stderr
    secret.unlink()
    lost = vctl("status", XDG_CONFIG_HOME=str(tmp_path))
    assert (lost.returncode, lost.stdout) == (2, "")
    assert f"password-file: {secret} cannot be read" in lost.stderr


async def test_the_first_of_several_endpoints_may_be_down(binary: Path, make_server: ServerMaker):
    server = make_server(binary)
    await fill(StoreSettings((server.endpoint,)))
    both = f"http://127.0.0.1:{free_port()},{server.endpoint}"
    for _ in range(3):  # they are tried in a random order
        assert vctl("status", ETCDCTL_ENDPOINTS=both).returncode == 0
    back = vctl("rollback", "--now", "--no-watch", "-s", SERVICE, "--endpoints", both)
    assert back.returncode == 0, back.stderr


def test_unreachable_endpoints_are_each_named_with_why():
    one, two = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    for arguments in (("status",), ("rollback", "--now", "-s", SERVICE)):
        said = vctl(*arguments, VCTL_ENDPOINTS=f"{one},{two}", VCTL_STORE_TIMEOUT_S="0.6")
        assert (said.returncode, said.stdout) == (6, "")
        for url in (one, two):
            assert f"{url} (" in said.stderr
        assert said.stderr.lower().count("connection refused") >= 2
        assert "check that etcd runs" in said.stderr


async def test_another_root_prefix(binary: Path, make_server: ServerMaker):
    server = make_server(binary)
    await fill(StoreSettings((server.endpoint,)), Keys("prod", "/team/x"))
    assert SERVICE not in vctl("status", VCTL_ENDPOINTS=server.endpoint).stdout
    there = vctl("status", VCTL_ENDPOINTS=server.endpoint, VCTL_PREFIX="/team/x/")
    assert SERVICE in there.stdout
