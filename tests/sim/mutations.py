"""The mutation proof: ``python -m tests.sim.mutations`` breaks the source, each way once.

Each breakage is made in a copy, on which the simulator runs until something does not hold; if all
does, the unit tests that are named for it run. The exit code is 1 when a breakage goes unnoticed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from tests.sim.mutants import Mutant
from tests.sim.mutants_agent import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
_ROOMS = ("cli", "agent", "plans", "tests")
_HISTORIES = 600
_TIMEOUT_S = 900


class Catch(msgspec.Struct, frozen=True):
    """What caught a mutant."""

    mutant: Mutant
    by: str  # empty: nothing did
    said: str
    took_s: float


def mutated(mutant: Mutant, source: str) -> str:
    """Return the source with the breakage in it.

    Raises:
        ValueError: The text to replace does not stand there exactly once.
    """
    count = source.count(mutant.old)
    if count != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} holds {count} of {mutant.old!r}")
    return source.replace(mutant.old, mutant.new)


def proven(mutant: Mutant, *, seed: int, histories: int) -> Catch:
    """Make one breakage in a copy of the source, and see what notices."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vctl-mutant-") as folder:
        copy = Path(folder)
        for room in _ROOMS:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / room, copy / room, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", copy)
        target = copy / mutant.file
        target.write_text(mutated(mutant, target.read_text()))
        by, said = _caught(mutant, copy, seed=seed, histories=histories)
    return Catch(mutant, by, said, time.monotonic() - began)


def _caught(mutant: Mutant, copy: Path, *, seed: int, histories: int) -> tuple[str, str]:
    simulated = [sys.executable, "-m", "tests.sim.run", "--first", "--workers", "1"]
    code, output = _run(copy, [*simulated, "--histories", str(histories), "--seed", str(seed)])
    last = output.strip().rpartition("\n")[2]
    if code == 1 and last.startswith("seed "):
        return "simulator", last
    if code:
        return "", f"the simulator could not run: {output.strip()[-300:]}"
    tests = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests]
    if not mutant.tests:
        return "", ""
    code, output = _run(copy, tests)
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return ("unit test", failed[0]) if code == 1 and failed else ("", output.strip()[-300:])


def _run(copy: Path, command: list[str]) -> tuple[int, str]:
    paths = os.pathsep.join(str(copy / room) for room in ("cli", "agent", "plans", "."))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, "seed ?: it did not end"
    return ran.returncode, ran.stdout + ran.stderr


def _line(catch: Catch) -> str:
    by = catch.by or "NOTHING"
    return f"{by:10} {catch.took_s:5.0f} s  {catch.mutant.name}: {catch.said[:110]}"


def main(argv: list[str] | None = None) -> int:
    """Prove all, or those whose name holds a text; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", help="only those whose name holds one of these")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--histories", type=int, default=_HISTORIES)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    chosen = [m for m in MUTANTS if not given.names or any(n in m.name for n in given.names)]

    def prove(mutant: Mutant) -> Catch:
        return proven(mutant, seed=given.seed, histories=given.histories)

    caught: list[Catch] = []
    with ThreadPoolExecutor(given.workers) as workers:
        for catch in workers.map(prove, chosen):
            caught.append(catch)
            sys.stdout.write(f"{_line(catch)}\n")
            sys.stdout.flush()
    survivors = [catch for catch in caught if not catch.by]
    by_simulator = sum(catch.by == "simulator" for catch in caught)
    sys.stdout.write(
        f"{len(caught)} breakages: {by_simulator} caught by the simulator,"
        f" {len(caught) - by_simulator - len(survivors)} by unit tests,"
        f" {len(survivors)} by nothing\n"
    )
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
