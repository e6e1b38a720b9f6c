"""What docs/plans.md shows works as it stands there."""

import re
import shlex
from pathlib import Path

import pytest

from tests.builders import NODES, a_report, a_route
from tests.cli.support import CONVERGES, KEYS, Vctl, a_fleet, conductor
from vctl_cli.schemas import KINDS
from vctl_plans.phase import NodePhase

DOCS = Path(__file__).parents[2] / "docs" / "plans.md"
TEXT = DOCS.read_text()
COMMANDS = [
    shlex.split(line.removeprefix("$ vctl "))
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def vctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vctl:
    """Return a fleet on which release 1 served before release 2, beside the plan of the page."""
    plan = re.findall(r"```yaml\n(service:.*?)```", TEXT, re.DOTALL)[0]
    (tmp_path / "canary.yaml").write_text(plan)
    monkeypatch.chdir(tmp_path)
    made = a_fleet(releases=2)
    made.conduct = conductor(*CONVERGES)
    assert 0 == made("rollout", "start", "--release", "2").code
    made.conduct = None
    made.put(KEYS.route("support"), a_route(stable=2, good=(1, 2), instant=(1,)))
    for node in NODES:
        report = a_report(node, route_revision=999, r1=NodePhase.READY, r2=NodePhase.READY)
        made.put(KEYS.report(node), report)
    return made


def test_commands_of_the_page_do_what_it_says(vctl: Vctl, tmp_path: Path):
    assert 7 == len(COMMANDS)
    for words in COMMANDS:
        said = vctl(*words)
        expected = 1 if words[:2] == ["release", "diff"] else 0  # they differ
        assert expected == said.code, (words, said.err)
    assert (tmp_path / "report.html").is_file()
    assert () == vctl.service().current_route.overrides


def test_page_names_what_there_is():
    named = set(re.findall(r"--[a-z-]+", TEXT)) - {"--set"}
    assert {"--print-plan", "--html", "--hash-on-nodes", "--root"} <= named
    assert "docs/schemas/" in TEXT
    assert len(KINDS) == len(list((DOCS.parent / "schemas").glob("*.json"))) - 1
