"""How fast `vctl verify-weights` is, beside what a user would take instead, in one run.

    python -m bench.weights                         a file of 256 MB, 5 rounds
    python -m bench.weights --size 2G --rounds 15   and so on; --help tells all

Ratios come first, and only they are fit to be quoted: see `measuring`. Before each sample the file
is read once, so that its pages are hot; with --cold they are dropped instead.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench import contestants, llama, once
from bench.contestants import Field
from bench.measuring import QUIET_CORES, Row, run_rounds

BASES = (contestants.B3SUM, contestants.MODEL_SIGNING, contestants.RAM)
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def main() -> int:
    """Measure and print."""
    options = _options()
    path = options.dir / f"llama-{options.size}" / "model.safetensors"
    _say(f"writing {path} unless it is there ...")
    llama.write(llama.SIZES[options.size], path)
    # First, while this process is small: a child's peak is never below its parent's.
    figures = once.measure(path, options.dir)
    field = contestants.gather(
        path,
        threads=options.threads,
        model_signing=options.model_signing,
        has_direct=options.direct,
    )
    before = partial(_drop, path) if options.cold else partial(contestants.read, path, 2)
    before()
    measured = run_rounds(field.cases, rounds=options.rounds, before_each=before, said=_say)
    rows = measured.rows(BASES)
    conditions = _conditions(options, path)
    if options.output == "json":
        print(json.dumps(_document(conditions, rows, field, figures), indent=2))
    else:
        _print_table(conditions, rows, field, figures)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.weights", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    cores = len(os.sched_getaffinity(0))
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vctl-bench"
    parser.add_argument("--size", choices=llama.SIZES, default="256M")
    parser.add_argument("--dir", type=Path, default=cache, help="files are kept here between runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--cold", action="store_true", help="drop the file's pages each time")
    parser.add_argument("--direct", action="store_true", help="time O_DIRECT too")
    parser.add_argument(
        "--model-signing", type=Path, metavar="VENV", help="has model-signing==1.1.1 and pyOpenSSL"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


def _drop(path: Path) -> None:
    """Make the file cold: all of the page cache for root, else this file's pages."""
    os.sync()
    if os.geteuid() == 0:
        _DROP_CACHES.write_text("1")
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _conditions(options: argparse.Namespace, path: Path) -> dict[str, object]:
    return {
        "file_bytes": path.stat().st_size,
        "pages": "cold" if options.cold else "hot",
        "threads": options.threads,
        "cores": os.cpu_count(),
        "rounds": options.rounds,
        "machine": _cpu_model(),
        "python": platform.python_version(),
        "load_1_5_15": [round(load, 2) for load in os.getloadavg()],
    }


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _document(
    conditions: Mapping[str, object],
    rows: Sequence[Row],
    field: Field,
    figures: Mapping[str, object],
) -> dict[str, object]:
    return {
        "conditions": conditions,
        "rows": [asdict(row) for row in rows],
        "figures": figures,
        "notes": field.notes,
    }


def _print_table(
    conditions: Mapping[str, object],
    rows: Sequence[Row],
    field: Field,
    figures: Mapping[str, object],
) -> None:
    bases = [base for base in BASES if any(base in row.ratios for row in rows)]
    heads = [*(f"x {base.removeprefix('ceiling: ')}" for base in bases)]
    heads += ["GB/s", "p25-p75", "CPU s/GB", "foreign", "quiet"]
    widths = [max(10, len(head)) for head in heads]
    print(" ".join(["case".ljust(30), *(h.rjust(w) for h, w in zip(heads, widths, strict=True))]))
    for row in rows:
        cells = [f"{row.ratios[base]:.2f}" for base in bases]
        cells += [f"{row.gb_per_s:.2f}", f"{row.gb_per_s_p25:.2f}-{row.gb_per_s_p75:.2f}"]
        cells += [f"{row.cpu_s_per_gb:.3f}", f"{row.foreign_cores:.2f}"]
        cells += [f"{row.quiet}/{row.samples}"]
        aligned = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        print(" ".join([row.name.ljust(30), *aligned]))
    print()
    print("ratio: median over the rounds of (its time / this case's time); above 1 is faster.")
    print(f"foreign: cores used by other programs; a sample over {QUIET_CORES} is not quiet, and")
    print("is used only where a case has no quiet one.")
    for key, value in {**figures, **conditions}.items():
        print(f"{key}: {value}")
    for note in field.notes:
        print(note)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
