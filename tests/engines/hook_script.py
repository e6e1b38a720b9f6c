"""An engine's hook as an operator would write it, with an engine that is a file: argv[1].

It keeps `docs/hooks.md`, and fails as the file's field `trouble` says, for tests.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FIRST: Json = {"start": 1, "base": "", "cached": 0, "adapters": {}, "trouble": "", "lacks": []}
ABLE = ["adapters", "swap_base", "flush", "replace"]


def answer(file: Path, asked: Json) -> tuple[str, Json]:
    """Return ``ok``, ``later`` or ``no``, and the answer or the reason."""
    engine = json.loads(file.read_text())
    if engine["trouble"] == "hangs":
        time.sleep(600)
    if engine["trouble"] == "lies" and asked["method"] != "describe":
        return "ok", {}
    told = METHODS[asked["method"]](engine, asked)
    beside = file.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(engine))
    beside.replace(file)
    return told


def describe(engine: Json, _: Json) -> tuple[str, Json]:
    lacks = [{"capability": name, "remedy": f"--{name}"} for name in engine["lacks"]]
    return "ok", {
        "incarnation": f"{engine['start']} {engine['base']}",
        "kind": "file",
        "base": "base",
        "base_path": engine["base"],
        "cached": engine["cached"],
        "capabilities": [name for name in ABLE if name not in engine["lacks"]],
        "lacks": lacks,
        "max_adapters": 8,
        "adapters": [{"name": n, "path": p} for n, p in engine["adapters"].items()],
    }


def load(engine: Json, asked: Json) -> tuple[str, Json]:
    if "broken" in asked["path"]:
        return "no", {"reason": "this is no adapter"}
    if engine["adapters"].get(asked["name"], asked["path"]) != asked["path"]:
        return "no", {"reason": "the name is taken"}
    engine["adapters"][asked["name"]] = asked["path"]
    engine["cached"] += 1
    return "ok", {}


def unload(engine: Json, asked: Json) -> tuple[str, Json]:
    engine["adapters"].pop(asked["name"], None)
    return "ok", {}


def swap_base(engine: Json, asked: Json) -> tuple[str, Json]:
    if asked["path"] != engine["base"]:
        engine.update(base=asked["path"], adapters={}, cached=0, start=engine["start"] + 1)
    return "ok", {}


def flush(engine: Json, _: Json) -> tuple[str, Json]:
    engine["cached"] = 0
    return "ok", {}


def replace(engine: Json, asked: Json) -> tuple[str, Json]:
    engine["adapters"][asked["name"]] = asked["path"]
    engine["cached"] = 0
    return "ok", {}


METHODS = {
    "describe": describe,
    "load": load,
    "unload": unload,
    "swap_base": swap_base,
    "flush": flush,
    "replace": replace,
}

if __name__ == "__main__":
    outcome, said = answer(Path(sys.argv[1]), json.load(sys.stdin))
    if outcome == "ok":
        sys.stdout.write(json.dumps(said))
    else:
        sys.stderr.write(said["reason"])
        sys.exit(os.EX_TEMPFAIL if outcome == "later" else 1)
