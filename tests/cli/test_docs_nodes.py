"""The commands that `docs/etcd.md` and `docs/nodes.md` show, each run as it stands there."""

import re
import shlex
from pathlib import Path

import pytest

from tests.builders import a_report
from tests.cli.support import KEYS, Vctl, a_fleet, a_record
from tests.cli.test_nodes import answering
from vctl_plans.inspection import DrainPhase
from vctl_plans.phase import NodePhase

DOCS = Path(__file__).parents[2] / "docs"


def shown(page: str) -> list[list[str]]:
    """Return the commands of a page, as words."""
    text = (DOCS / page).read_text()
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ vctl ") for line in lines)
    return [shlex.split(line.removeprefix("$ vctl ")) for line in lines]


@pytest.fixture
def vctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vctl:
    """A fleet with the node of the pages, in a folder with their files."""
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "secret"):
        (tmp_path / name).write_text("secret\n")
    made = a_fleet()
    made.env = {"XDG_CONFIG_HOME": str(tmp_path), "VCTL_FLEET": "test"}
    made.put(KEYS.node("n1"), a_record("n1"))
    made.put(KEYS.report("n1"), a_report("n1", route_revision=99, r1=NodePhase.READY))
    return made


def test_commands_about_etcd(vctl: Vctl):
    commands = shown("etcd.md")
    said = {tuple(command[:2]): vctl(*command) for command in commands}
    assert [each.code for each in said.values()] == [0] * len(said), said
    assert "*  eu" in said["config", "get-contexts"].out
    assert "etcdctl user add vctl-prod-node-gpu-2" in said["config", "init-auth"].out
    assert "accepted: fleet test" in said["config", "accept-restore"].err


def test_commands_about_nodes(vctl: Vctl):
    ran = 0
    for command in shown("nodes.md"):
        end = None if "undrain" in command else DrainPhase.DRAINED
        is_of_drain = command[0] == "node"
        vctl.conduct = answering((end, ""), node="n1") if is_of_drain else None
        said = vctl(*command)
        assert said.code == 0, (command, said)
        assert "n1" in said.out
        ran += 1
    assert ran == 5
    assert (Path.cwd() / "n1" / "vctl-agent.service").exists()
