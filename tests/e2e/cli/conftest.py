"""One fleet for all tests of commands as people and pipelines use them; each leaves it at rest."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.support import Fleet, Said, a_fleet, begin_serving

BIN = Path(sys.executable).parent


@dataclass
class Shell:
    """A shell in the folder where the adapters lie, with `vctl` on its path."""

    fleet: Fleet
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        more = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "LANG": "C.UTF-8"}
        kept = {k: v for k, v in self.fleet.env.items() if not k.startswith(("GITHUB_", "CI_"))}
        return kept | more

    def begin(self, script: str, *, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a script and do not wait for it."""
        return subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.env | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, script: str, *, env: Mapping[str, str] | None = None) -> Said:
        """Run a script to its end."""
        process = self.begin(script, env=env)
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{script} did not end:\n{out}\n{err}") from None
        return Said(process.returncode, out, err)

    def write(self, name: str, text: str) -> None:
        """Write a file beside the adapters."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def another(self) -> str:
        """Return an adapter that the stable release does not have."""
        return f"adapters/{self.fleet.another()}"

    def plan(self, name: str, *lines: str, strategy: str = "weighted") -> None:
        """Write a plan that brings another adapter than the one that serves."""
        head = ("service: support", f"strategy: {strategy}")
        release = f"release: {{adapter: {{source: ./{self.another()}}}}}"
        self.write(name, "\n".join([*head, release, *lines, ""]))


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes that serve release 1."""
    with a_fleet(tmp_path_factory.mktemp("fleet"), nodes=2) as made:
        begin_serving(made, "--adapter", str(made.adapter("v1")))
        yield made


@pytest.fixture
def shell(fleet: Fleet) -> Shell:
    """A shell on the fleet, on which nothing moves."""
    fleet.come_to_rest()
    return Shell(fleet, fleet.adapter("v1").parents[1])
