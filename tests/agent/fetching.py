"""Artifacts of several MiB, a web server that has them, and a process that fetches and is killed.

    python -m tests.agent.fetching STATE URL ROOT WHEN

fetches in a real process that kills itself with SIGKILL at WHEN: `fetching:BYTES` and
`verifying:BYTES` when so much was told, `chmod:N`, `rename:N` and `truncate:N` before the Nth such
call.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.weights.building import fill, pack, u8
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_plans import weights
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact

MIB = 1 << 20


def noise(seed: int, size: int) -> bytes:
    """Return bytes that are no others'."""
    return random.Random(seed).randbytes(size)  # noqa: S311  no secret


def make_model(folder: Path, seeds: tuple[int, ...], *, url: str = "") -> Artifact:
    """Write a model of one tensor of 2.5 MiB a seed, and its manifest; return the artifact."""
    tensors = [u8(f"t{n}", noise(seed, 2 * MIB + MIB // 2)) for n, seed in enumerate(seeds)]
    fill(folder, {"config.json": "{}", "model.safetensors": pack(tensors)})
    return published(folder, url=url, kind="model")


def published(folder: Path, *, url: str = "", kind: weights.Kind) -> Artifact:
    """Write the manifest of what lies there; return the artifact."""
    manifest = weights.scan(folder, kind=kind)
    weights.save(manifest, weights.manifest_path(folder))
    return Artifact(root=manifest.root, source=f"{url}/{folder.name}" if url else folder.as_uri())


def size_of(folder: Path) -> int:
    """Return the bytes of an artifact's files."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != weights.MANIFEST_NAME)
    return sum(path.stat().st_size for path in files)


def silent(_phase: NodePhase, _done: int, _size: int) -> None:
    """Tell nobody."""


def run_until_killed(state: Path, artifact: Artifact, when: str) -> int:
    """Fetch in a process of its own; return its exit code."""
    command = [sys.executable, "-m", __name__, str(state), artifact.source, artifact.root, when]
    return subprocess.run(command, check=False, timeout=60).returncode


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _main(state: str, url: str, root: str, when: str) -> None:
    what, _, text = when.partition(":")
    limit = int(text or 0)
    calls = 0

    def progress(phase: NodePhase, done: int, _size: int) -> None:
        if phase.value == what and done >= limit:
            _kill()

    def watch(event: str, _arguments: object) -> None:
        nonlocal calls
        if event == f"os.{what}":
            calls += 1
            if calls == limit:
                _kill()

    sys.addaudithook(watch)
    store = ArtifactStore(Path(state), [Path("/")])
    store.open()
    store.stage(Artifact(root=root, source=url), progress, kind="model")


if __name__ == "__main__":
    _main(*sys.argv[1:])
