"""`vctl agent init`: what it writes starts the programs, and tells all that they can be told."""

import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.cli.support import Vctl
from tests.etcd.conftest import ServerMaker
from tests.etcd.servers import free_port
from vctl_agent.gateway import settings as gateway
from vctl_agent.settings import read_settings
from vctl_cli import nodefiles
from vctl_cli.programs import command_of

ROOT = Path(__file__).parent.parent.parent
WISHES = nodefiles.Wishes(
    fleet="prod",
    node="gpu-1",
    engine="vllm",
    engine_url="http://127.0.0.1:8000",
    endpoints="http://127.0.0.1:2379",
)


def init(folder: Path, *arguments: str):
    return Vctl()("agent", "init", "--dir", str(folder), *arguments)


def test_files_are_written_and_never_over_others(tmp_path: Path):
    said = init(
        tmp_path / "vctl", "--node", "gpu-1", "--fleet", "prod", "--endpoints", "http://e:1"
    )
    assert said.code == 0, said
    assert [Path(line).name for line in said.out.splitlines()] == [
        *("agent.yaml", "gateway.yaml", "vctl.env", "vctl-agent.service", "vctl-gateway.service")
    ]
    assert "systemctl enable --now vctl-gateway vctl-agent" in said.err
    assert (tmp_path / "vctl" / "vctl.env").stat().st_mode & 0o777 == 0o600
    assert "VCTL_ENDPOINTS=http://e:1\n" in (tmp_path / "vctl" / "vctl.env").read_text()
    again = init(tmp_path / "vctl")
    assert (again.code, again.out) == (2, "")
    assert "has agent.yaml" in again.err
    assert init(tmp_path / "vctl", "--force").code == 0


def test_it_asks_nothing_where_no_terminal_is_and_prints_what_it_would_write(tmp_path: Path):
    said = init(tmp_path / "x", "--print")
    assert (said.code, said.err) == (0, "")
    assert "engine: vllm" in said.out
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["agent.yaml", "gateway.yaml"])
def test_every_setting_that_is_named_there_is_one_with_that_default(name: str):
    """Also those that stand as comments: they are taken as they are."""
    text = nodefiles.files(WISHES)[name]
    whole = re.sub(r"^#(\w+:)", r"\1", text, flags=re.MULTILINE)
    given, named = yaml.safe_load(text), yaml.safe_load(whole)
    assert set(given) < set(named)
    options = gateway._OPTIONS if name == "gateway.yaml" else _agent_options()
    known = {option.field: option for option in options}
    examples = {
        "label",
        "allowed_root",
        "allowed_source",
        "artifact_space",
        "fleet_key_file",
        "gateway_url",
    }
    for field, value in named.items():
        assert field in known
        shown = "on" if value is True else "off" if value is False else str(value)
        default = known[field].default
        if field not in given and field not in examples:
            assert known[field].read(shown) == known[field].read(default or ""), field


def _agent_options():
    from vctl_agent import settings

    return settings._OPTIONS


def test_values_come_back_as_they_were_given(tmp_path: Path):
    roots = ("/models/a b", "/data")
    init(
        *(tmp_path, "--node", "0123", "--engine", "sglang", "--fleet", "on"),
        *(part for root in roots for part in ("--allowed-root", root)),
        *("--gateway-url", "http://gpu-1:8080", "--no-conduct"),
    )
    found = read_settings(["--config", str(tmp_path / "agent.yaml")], {})
    assert (found.node, found.fleet, found.engine) == ("0123", "on", "sglang")
    assert (found.engine_url, found.gateway_url) == ("http://127.0.0.1:30000", "http://gpu-1:8080")
    assert found.allowed_root == tuple(map(Path, roots))
    assert not found.conduct


def test_the_units_in_deploy_are_those_that_it_writes():
    made = nodefiles.files(WISHES)
    for name in (nodefiles.AGENT_UNIT, nodefiles.GATEWAY_UNIT):
        assert (ROOT / "deploy" / "systemd" / name).read_text() == made[name]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd")
def test_systemd_takes_the_units(tmp_path: Path):
    init(tmp_path, "--user", "root")
    units = [str(tmp_path / name) for name in (nodefiles.AGENT_UNIT, nodefiles.GATEWAY_UNIT)]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.etcd
def test_the_programs_start_with_what_was_written(
    tmp_path: Path, binary: Path, make_server: ServerMaker
):
    """As systemd would: the variables of the file, and the command of the unit."""
    server, port, admin = make_server(binary), free_port(), free_port()
    said = init(
        *(tmp_path, "--node", "gpu-1", "--fleet", "prod", "--endpoints", server.endpoint),
        *("--engine", "torch", "--engine-url", "http://127.0.0.1:1", "--listen"),
        f"127.0.0.1:{port}",
    )
    assert said.code == 0, said
    own = {"state": str(tmp_path / "state"), "socket": str(tmp_path / "g.sock")}
    for name in ("agent", "gateway"):
        file = tmp_path / f"{name}.yaml"
        more = {**own, "state": f"{own['state']}-{name}", "admin": f"127.0.0.1:{admin}"}
        more |= {"admin": "127.0.0.1:0"} if name == "agent" else {}
        file.write_text(file.read_text() + yaml.safe_dump(more))
    programs = [_as_unit(tmp_path, name) for name in ("gateway", "agent")]
    try:
        _until_live(f"http://127.0.0.1:{admin}/livez")
        _until(lambda: b"gpu-1" in server.ctl("get", "--prefix", "/vctl/v1/prod/nodes/").encode())
    finally:
        for program in programs:
            program.send_signal(signal.SIGKILL)
            program.communicate()


def _as_unit(folder: Path, part: str) -> "subprocess.Popen[bytes]":
    unit = (folder / f"vctl-{part}.service").read_text()
    command = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert command
    assert command[1].split()[0] == command_of(f"vctl-{part}")
    variables = dict(
        line.split("=", 1)
        for line in (folder / "vctl.env").read_text().splitlines()
        if line and not line.startswith("#")
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("VCTL_", "ETCD"))}
    return subprocess.Popen(
        command[1].split(),
        env=clean | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def _until_live(url: str) -> None:
    def is_live() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    _until(is_live)


def _until(holds) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
