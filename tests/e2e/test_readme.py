"""What the README tells people to type works as it stands there."""

import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.etcd, pytest.mark.torch]

README = Path(__file__).parents[2] / "README.md"
BIN = Path(sys.executable).parent
_PORTS_IN_A_ROW = 20


def _commands() -> list[str]:
    """Return the commands of the README's console blocks, in order."""
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


@pytest.fixture
def base_port() -> int:
    """Return the first of enough free ports in a row, where no other test takes any."""
    starts = range(14_000, 19_000, _PORTS_IN_A_ROW)
    return next(start for start in random.sample(starts, len(starts)) if _are_free(start))


def _are_free(start: int) -> bool:
    try:
        for port in range(start, start + _PORTS_IN_A_ROW):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


@pytest.fixture
def running_fleet(tmp_path: Path, base_port: int) -> Iterator[None]:
    """Run the README's `vctl dev up` until the test has ended, as a second terminal would."""
    command = _commands()[0].replace(".venv/bin/", f"{BIN}/").replace("7400", str(base_port))
    with (tmp_path / "up.log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"], cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 90
        while "the fleet runs" not in (tmp_path / "up.log").read_text():
            assert time.monotonic() < deadline, (tmp_path / "up.log").read_text()
            assert process.poll() is None, (tmp_path / "up.log").read_text()
            time.sleep(0.1)
        yield
        process.send_signal(2)
        assert 0 == process.wait(timeout=30)
    finally:
        process.kill()
        process.wait()


def test_commands_of_the_readme_work_in_their_order(
    running_fleet: None, tmp_path: Path, base_port: int
) -> None:
    """Each exits 0."""
    lines = [line.replace("7400", str(base_port)) for line in _commands()[1:]]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("VCTL_", "ETCD"))}
    env = kept | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}

    done = subprocess.run(
        ["sh", "-e", "-x", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert len(lines) >= 7
