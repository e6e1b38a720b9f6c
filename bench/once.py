"""What is measured by itself and has no rival: memory, start-up, one tensor, two manifests."""

import math
import os
import pty
import resource
import select
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from blake3 import blake3

from bench.contestants import VCTL, quietly
from vctl_plans import weights
from vctl_plans.weights.manifest import FileRecord, TensorRecord, compose
from vctl_plans.weights.manifest import file_digest as digest_of_file
from vctl_plans.weights.manifest import tensor_digest as digest_of_tensor

_TENSORS = 1000
_SHAPE = (2048, 4096)
_REPEATS = 9
_PROGRESS_DEADLINE_S = 60.0


def measure(path: Path, folder: Path) -> dict[str, object]:
    """Measure everything here on one file, which is read first.

    Args:
        path: The file.
        folder: For the manifests.
    """
    path.stat()
    document = folder / "bench.vctl.json"
    figures: dict[str, object] = {
        "cli_start_s": _median_s(lambda: quietly([VCTL, "version"])),
        "cli_peak_mb": _peak_mb(path),
        "cli_first_progress_s": _first_progress_s(path),
    }
    weights.save(weights.scan(path), document)
    figures |= _tensor(path, document)
    figures |= _diff(folder)
    return figures


def _peak_mb(path: Path) -> float:
    """Run the command as the first big child of this process: then its peak is the children's."""
    quietly([VCTL, "verify-weights", str(path)])
    return round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, 1)


def _first_progress_s(path: Path) -> float | None:
    """Time until the command first writes to its terminal; None if it ended without a word."""
    ours, theirs = pty.openpty()
    begun = time.perf_counter()
    command = [VCTL, "verify-weights", str(path)]
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=theirs, stdin=theirs, env=environment
    ) as running:
        os.close(theirs)
        ready, _, _ = select.select([ours], [], [], _PROGRESS_DEADLINE_S)
        took = time.perf_counter() - begun
        shown = bool(ready) and running.poll() is None
        while _drain(ours):
            pass
    os.close(ours)
    return round(took, 3) if shown else None


def _drain(fd: int) -> bytes:
    """Read what a terminal holds; empty when its other side is closed."""
    try:
        return os.read(fd, 1 << 16)
    except OSError:
        return b""


def _tensor(path: Path, document: Path) -> dict[str, object]:
    """Time one tensor: the smallest shows what its proof costs, as hashing it costs nothing."""
    manifest = weights.load(document)
    tensors = sorted(manifest.tensors, key=lambda tensor: tensor.size)
    figures: dict[str, object] = {}
    for which, tensor in (("smallest", tensors[0]), ("largest", tensors[-1])):
        alone = partial(_verify_tensor, path, document, tensor.name)
        command = [VCTL, "verify-weights", str(path), "--manifest", str(document)]
        figures[f"{which}_tensor_mb"] = round(tensor.size / 1e6, 3)
        figures[f"{which}_tensor_library_s"] = _median_s(alone)
        figures[f"{which}_tensor_cli_s"] = _median_s(
            partial(quietly, [*command, "--tensor", tensor.name])
        )
    return figures


def _verify_tensor(path: Path, document: Path, name: str) -> None:
    """Do what `--tensor` does, the manifest's reading included.

    Raises:
        RuntimeError: It found a difference.
    """
    manifest = weights.load(document, is_shallow=True)
    proof = weights.prove(manifest, name)
    if weights.verify_tensor(path, proof, manifest.root):
        raise RuntimeError(f"{name} differs from what was just read")


def _diff(folder: Path) -> dict[str, object]:
    """Time the difference of two manifests of 1,000 tensors, one of them changed."""
    one, other = folder / "one.vctl.json", folder / "other.vctl.json"
    weights.save(_manifest(changed=-1), one)
    weights.save(_manifest(changed=_TENSORS // 2), other)
    first, second = weights.load(one), weights.load(other)
    found = weights.diff(first, second)
    figures: dict[str, object] = {
        "diff_found": [str(difference) for difference in found],
        "diff_s": _median_s(lambda: weights.diff(first, second)),
        "diff_with_loading_s": _median_s(
            lambda: weights.diff(
                weights.load(one, is_shallow=True), weights.load(other, is_shallow=True)
            )
        ),
    }
    command = [VCTL, "weights", "diff", str(one), str(other)]
    figures["diff_cli_s"] = _median_s(partial(_differing, command))
    return figures


def _differing(command: list[str]) -> None:
    """Run a command whose exit status must be 1.

    Raises:
        RuntimeError: It found nothing, or failed.
    """
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 1:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")


def _manifest(*, changed: int) -> weights.Manifest:
    """Describe a model of 1,000 tensors of 16 MiB, without its bytes."""
    size = math.prod(_SHAPE) * 2
    tensors = []
    for number in range(_TENSORS):
        seed = f"{number}!" if number == changed else str(number)
        leaves = blake3(str(number).encode()).digest(length=size // weights.LEAF_BYTES * 32)
        leaves = blake3(seed.encode()).digest() + leaves[32:]
        name = f"model.layers.{number:04}.weight"
        digest = digest_of_tensor(name, "BF16", _SHAPE, size=size, leaves=leaves)
        tensors.append(TensorRecord(name, "BF16", _SHAPE, size, digest, leaves))
    header = weights.scan(__file__).files[0].digest
    total = 100_000 + _TENSORS * size
    digest = digest_of_file(total, header, (tensor.digest for tensor in tensors))
    names = tuple(tensor.name for tensor in tensors)
    file = FileRecord("model.safetensors", total, digest, header, 100_000, names)
    return compose("model", [file], tensors)


def _median_s(run: Callable[[], object]) -> float:
    taken = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return round(statistics.median(taken), 4)
