"""What reuse saves when an artifact comes of which nine blocks in ten are on the node already.

    python -m bench.fetch                       256 MB, 5 rounds
    python -m bench.fetch --size 1024 --rate 1  a source that gives 1 Gbit/s

A web server of its own process, on loopback, has version 2 of a model; the node has version 1. The
same program fetches version 2 with version 1 beside it, and without, in turns. Ratios of one round
come first; what a loopback gives is no network, so --rate limits the server to what one would.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.measuring import Case, Rounds, run_rounds
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_plans import weights
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact

REUSED, WHOLE, COPIED = "9 of 10 blocks are here", "nothing is here", "cp -r, not verified"

_TENSORS = 40
_CHANGED = 4  # of the tensors, in version 2
_MIB = 1 << 20

_SERVER = """
import http.server, re, sys, time
from pathlib import Path
rate = float(sys.argv[2]) * 125e6
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        file = Path(sys.argv[1] + self.path)
        if not file.is_file():
            self.send_response(404); self.send_header("Content-Length", "0"); self.end_headers()
            return
        size = file.stat().st_size
        asked = re.fullmatch(r"bytes=(\\d+)-(\\d+)", self.headers.get("Range", ""))
        begin, end = (int(asked[1]), int(asked[2]) + 1) if asked else (0, size)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        self.end_headers()
        with file.open("rb") as content:
            content.seek(begin)
            while begin < end:
                piece = content.read(min(1 << 20, end - begin))
                self.wfile.write(piece)
                begin += len(piece)
                if rate:
                    time.sleep(len(piece) / rate)
class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_): pass
server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def main() -> int:
    """Measure and print."""
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="vctl-bench-") as name:
        folder = Path(name)
        size = options.size * 1_000_000
        first = _made(folder / "srv/v1", size, changed=0)
        second = _made(folder / "srv/v2", size, changed=_CHANGED)
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(folder / "srv"), str(options.rate)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            port = (server.stdout or sys.stdin).readline().strip()
            measured = _measure(folder, f"http://127.0.0.1:{port}", (first, second), options)
        finally:
            server.terminate()
            server.wait()
    _print(measured, options)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.fetch", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--size", type=int, default=256, help="of the artifact, in MB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.0, help="of a stream, in Gbit/s; 0: free")
    parser.add_argument("--dir", type=Path, help="where to work; needs four times the size")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser.parse_args()


def _made(folder: Path, size: int, *, changed: int) -> str:
    """Write a model and its manifest; return its root."""
    each = size // _TENSORS
    header = {
        f"t{n}": {"dtype": "U8", "shape": [each], "data_offsets": [n * each, (n + 1) * each]}
        for n in range(_TENSORS)
    }
    text = json.dumps(header).encode()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for n in range(_TENSORS):
            seed = n + (1000 if n >= _TENSORS - changed else 0)
            file.write(random.Random(seed).randbytes(each))  # noqa: S311  any bytes do
    manifest = weights.scan(folder, kind="model")
    weights.save(manifest, weights.manifest_path(folder))
    return manifest.root


def _measure(folder: Path, url: str, roots: Sequence[str], options: argparse.Namespace) -> Rounds:
    first, second = (Artifact(root=root, source=f"{url}/v{n}") for n, root in enumerate(roots, 1))
    state = folder / "state"
    with_first = ArtifactStore(state, [])
    with_first.open()
    with_first.stage(first, _silent, kind="model")
    size = options.size * 1_000_000

    def before() -> None:
        for place in (with_first.path(second.root), folder / "empty", folder / "copied"):
            subprocess.run(["chmod", "-Rf", "u+w", place], check=False)  # noqa: S607
            shutil.rmtree(place, ignore_errors=True)
        os.sync()

    cases = [
        Case(REUSED, partial(_stage, state, second), size),
        Case(WHOLE, partial(_stage, folder / "empty", second), size),
        Case(COPIED, partial(shutil.copytree, folder / "srv/v2", folder / "copied"), size),
    ]
    return run_rounds(cases, rounds=options.rounds, before_each=before, said=_say)


def _stage(state: Path, artifact: Artifact) -> None:
    store = ArtifactStore(state, [])  # of a process that has verified nothing yet
    store.open()
    store.stage(artifact, _silent, kind="model")


def _print(measured: Rounds, options: argparse.Namespace) -> None:
    rows = measured.rows([WHOLE])
    if options.output == "json":
        facts = [{"case": row.name, "times_as_fast": row.ratios[WHOLE],
                  "seconds": _seconds(measured, row.name)} for row in rows]  # fmt: skip
        print(json.dumps({"megabytes": options.size, "gbit_per_s": options.rate, "cases": facts}))
        return
    rate = f"{options.rate:g} Gbit/s a stream" if options.rate else "loopback"
    print(f"{options.size} MB over HTTP ({rate}), {options.rounds} rounds, medians:")
    for row in rows:
        print(f"  {row.name:<26} {_seconds(measured, row.name):7.2f} s  {row.ratios[WHOLE]:5.2f}x")


def _seconds(measured: Rounds, name: str) -> float:
    return statistics.median(sample.wall_s for sample in measured.samples[name])


def _silent(_phase: NodePhase, _done: int, _size: int) -> None:
    pass


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
