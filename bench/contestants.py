"""Who is timed on one safetensors file: vctl, what a user would take instead, and two ceilings."""

import inspect
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from blake3 import blake3

from bench.measuring import Case
from vctl_plans import weights

LIBRARY = "vctl: library scan"
CLI = "vctl verify-weights"
DIRECT = "vctl: library scan, direct"
B3SUM = "b3sum"
MODEL_SIGNING = "model_signing verify"
RAM = "ceiling: BLAKE3 over RAM"
READING = "ceiling: plain reading"

VCTL = str(Path(sys.executable).with_name("vctl"))

_MIB = 1 << 20
_RAM_BYTES = 256 * _MIB
_RAM_PIECE_BYTES = 4 * _MIB


@dataclass(frozen=True, slots=True)
class Field:
    """The cases, and what is missing among them and why."""

    cases: tuple[Case, ...]
    notes: tuple[str, ...]


def gather(path: Path, *, threads: int, model_signing: Path | None, has_direct: bool) -> Field:
    """Make every case that this machine has the means for.

    Args:
        path: The file.
        threads: For all that can be told; model_signing can't.
        model_signing: A virtual environment with model-signing and pyOpenSSL.
        has_direct: Whether to time O_DIRECT too.
    """
    root = weights.scan(path, threads=threads).root
    runs: dict[str, Callable[[], object]] = {
        LIBRARY: partial(weights.verify, path, root, threads=threads),
        CLI: partial(quietly, [VCTL, "verify-weights", str(path), "--root", root]),
        RAM: partial(_hash_ram, b"\x07" * _RAM_BYTES, path.stat().st_size, threads),
        READING: partial(read, path, threads),
    }
    notes: list[str] = []
    if has_direct and "direct" in inspect.signature(weights.scan).parameters:
        scan: Callable[..., object] = weights.scan
        runs[DIRECT] = partial(scan, path, threads=threads, direct=True)
    elif has_direct:
        notes.append("direct: skipped: the library has no such option")
    if command := shutil.which("b3sum"):
        runs[B3SUM] = partial(quietly, [command, "--num-threads", str(threads), str(path)])
    else:
        notes.append("b3sum: skipped: not on PATH (Debian: apt-get install b3sum)")
    try:
        runs[MODEL_SIGNING] = partial(quietly, _model_signing(path, model_signing))
    except (OSError, RuntimeError) as error:
        notes.append(f"model_signing: skipped: {error}")
    size = path.stat().st_size
    return Field(tuple(Case(name, run, size) for name, run in runs.items()), tuple(notes))


def quietly(command: list[str]) -> None:
    """Run a command to a good end and drop what it says.

    Raises:
        RuntimeError: It failed: then its time would be no measurement.
    """
    done = subprocess.run(
        command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")


def read(path: Path, threads: int) -> None:
    """Read a file by `preadv` of 1 MiB into one reused buffer a thread, and do nothing with it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def work(places: Iterable[int]) -> None:
        view = memoryview(bytearray(_MIB))
        for at in places:
            os.preadv(fd, [view], at)

    try:
        _over_threads(work, range(0, path.stat().st_size, _MIB), threads)
    finally:
        os.close(fd)


def _hash_ram(buffer: bytes, size: int, threads: int) -> None:
    view = memoryview(buffer)

    def work(places: Iterable[int]) -> None:
        for at in places:
            begin = at % len(view)
            blake3(view[begin : begin + min(_RAM_PIECE_BYTES, size - at)]).digest()

    _over_threads(work, range(0, size, _RAM_PIECE_BYTES), threads)


def _over_threads(work: Callable[[Iterable[int]], None], places: range, threads: int) -> None:
    """Let threads pull places from one counter; taking the next one needs no lock under the GIL."""
    counter = iter(places)
    workers = [threading.Thread(target=work, args=(_shared(counter),)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _shared(counter: Iterator[int]) -> Iterator[int]:
    while (at := next(counter, None)) is not None:
        yield at


def _model_signing(path: Path, venv: Path | None) -> list[str]:
    """Sign the file once with a key of our own; return the command that verifies it."""
    if venv is None:
        raise FileNotFoundError("give --model-signing VENV (model-signing==1.1.1 and pyOpenSSL)")
    key, public = path.with_name("key.pem"), path.with_name("key.pub.pem")
    signature = path.with_suffix(".sig")
    tool = [str(venv / "bin" / "python"), "-m", "model_signing"]
    named = ["--signature", str(signature)]
    if not signature.exists() or signature.stat().st_mtime < path.stat().st_mtime:
        openssl = shutil.which("openssl") or "openssl"
        quietly([openssl, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)])
        quietly([openssl, "ec", "-in", str(key), "-pubout", "-out", str(public)])
        quietly([*tool, "sign", "key", str(path), *named, "--private_key", str(key)])
    return [*tool, "verify", "key", str(path), *named, "--public_key", str(public)]
