"""What docs/releases.md shows works as it stands there."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.cli.support import a_fleet
from tests.cli.test_hash_on_nodes import FOUND, agents
from tests.weights import building
from vctl_plans.document import sources
from vctl_plans.parsing import parse, require_built

PAGE = (Path(__file__).parents[2] / "docs" / "releases.md").read_text()
COMMANDS = re.findall(r"^\$ vctl (.*)$", PAGE, re.MULTILINE)


def test_plan_of_the_page_can_be_carried_out():
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    document = parse(yaml.safe_load(text))
    require_built(document)

    assert ["adapter", "prompt", "index"] == [name.value for name in sources(document)]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_page_makes_a_release(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A bucket and a shared mount are folders here."""
    building.adapter(tmp_path / "support-v9")
    building.fill(tmp_path / "prompt-v12", {"system.txt": "You are kind."})
    monkeypatch.chdir(tmp_path)
    vctl = a_fleet()
    vctl.conduct = agents(lambda _node, _request: FOUND)
    asked = command.replace("s3://ml", str(tmp_path / "ml")).replace(
        "--push /mnt", f"--push {tmp_path}"
    )
    said = vctl(*shlex.split(asked))

    assert 0 == said.code, said
    assert [1, 2] == list(vctl.service().releases)
