"""What docs/gateway.md shows of API keys works as it stands there."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from vctl_agent.gateway.apikeys import parse
from vctl_agent.gateway.settings import read_settings

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
KEYS, COMMANDS = re.findall(r"```\n(.*?)```", PAGE, re.DOTALL)


def test_file_of_the_page_is_one() -> None:
    """Two keys of one tenant, and one of another."""
    assert ["acme", "acme", "blue"] == sorted(parse(KEYS).values())


def test_commands_of_the_page_make_a_line(tmp_path: Path) -> None:
    """With a shell, as they are typed; and the other way comes to the same."""
    program = tmp_path / "vctl-gateway"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m vctl_agent.gateway "$@"\n')
    program.chmod(0o755)
    env = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run(["sh", "-ec", COMMANDS], cwd=tmp_path, env=env, check=True, timeout=60)
    key = (tmp_path / "acme.key").read_text().strip()
    line = (tmp_path / "api-keys").read_text()
    assert {hashlib.sha256(key.encode()).digest(): "acme"} == parse(line)
    (other,) = re.findall(r"`(printf [^`]*)`", PAGE)
    made = subprocess.run(["sh", "-ec", other], env=env | {"KEY": key}, capture_output=True,
                          check=True, text=True, timeout=60)  # fmt: skip
    assert line.split()[1] == made.stdout.split()[0]


def test_settings_that_the_page_names_exist(tmp_path: Path) -> None:
    """As flag, variable and field of the YAML file."""
    keys, config = tmp_path / "keys", tmp_path / "gateway.yaml"
    keys.write_text(KEYS)
    config.write_text(f"api_keys_file: {keys}\n")
    needed = ["--fleet", "dev", "--node", "n1"]
    for flags, environment in (
        (["--api-keys-file", str(keys)], {}),
        (["--config", str(config)], {}),
        ([], {"VCTL_GATEWAY_API_KEYS_FILE": str(keys)}),
    ):
        found = read_settings([*needed, *flags], environment).api_keys
        assert found is not None
        assert parse(KEYS) == found.held
        for name in (*flags[:1], *environment):
            assert name == "--config" or name in PAGE
