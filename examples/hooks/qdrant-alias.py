#!/usr/bin/env python3
"""Bring the index of a release into Qdrant, under an alias of the release's own.

An application hook (`vctl-agent --hook "/opt/hooks/qdrant-alias.py http://127.0.0.1:6333"`). The
index is a directory with one `*.snapshot` of a collection. It goes into a collection that is named
by its root, so releases with the same index share one; then the alias `<service>-<release>` is set
to it, in one step. The application asks the alias of the release that answered (the response's
`x-vctl-release`), so a prompt never meets another release's index, and a rollback needs nothing.

Where all nodes share one Qdrant, each of them calls this: it may be called again at any time.
On `unload` nothing is taken away then, for other nodes may still serve the release; with
`--per-node`, where each node has a Qdrant of its own, alias and collection go.
"""

import json
import os
import pathlib
import subprocess
import sys


def main() -> None:
    """Do what stdin says; exit 75 asks to be called again, any other failure is final."""
    address, *flags = sys.argv[1:]
    told = json.load(sys.stdin)
    if "index" not in told["components"]:
        return
    index = told["components"]["index"]
    alias = f"{told['service']}-{told['release']}"
    collection = f"index-{index['root'].removeprefix('b3:')[:16]}"
    if told["event"] == "load":
        if not exists(address, collection):
            restore(address, collection, pathlib.Path(index["path"]))
        point(address, alias, collection)
    elif "--per-node" in flags:
        point(address, alias, None)
        if not any(each["collection_name"] == collection for each in aliases(address)):
            curl("-X", "DELETE", f"{address}/collections/{collection}")


def restore(address: str, collection: str, index: pathlib.Path) -> None:
    """Make the collection of its snapshot, whole or not at all."""
    snapshots = sorted(index.glob("*.snapshot"))
    if len(snapshots) != 1:
        sys.exit(f"{index} holds {len(snapshots)} snapshots, not one")
    place = f"{address}/collections/{collection}/snapshots/upload?priority=snapshot&wait=true"
    curl("-X", "POST", "-F", f"snapshot=@{snapshots[0]}", place)


def point(address: str, alias: str, collection: str | None) -> None:
    """Set an alias, or take it away: all actions of one call happen together."""
    actions: list[dict] = [{"delete_alias": {"alias_name": alias}}]
    if collection:
        new = {"collection_name": collection, "alias_name": alias}
        actions.append({"create_alias": new})
    body = json.dumps({"actions": actions})
    curl("-H", "content-type: application/json", "-d", body, f"{address}/collections/aliases")


def exists(address: str, collection: str) -> bool:
    """Say whether the collection is there."""
    return curl(f"{address}/collections/{collection}/exists")["result"]["exists"]


def aliases(address: str) -> list[dict]:
    """List the aliases of all collections."""
    return curl(f"{address}/aliases")["result"]["aliases"]


def curl(*arguments: str) -> dict:
    """Call curl; exit as the hook is to exit where it fails."""
    key = os.environ.get("QDRANT_API_KEY", "")  # on stdin: arguments can be read by everyone
    command = ["curl", "--silent", "--show-error", "--max-time", "50", "-w", "\n%{http_code}"]
    command += ["-H", "@-"] if key else []
    done = subprocess.run(
        [*command, *arguments],
        input=f"api-key: {key}\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:  # it is not there: perhaps it starts just now
        sys.stderr.write(done.stderr)
        sys.exit(os.EX_TEMPFAIL)
    body, _, status = done.stdout.rpartition("\n")
    if not status.startswith("2"):
        sys.stderr.write(f"{status}: {body}\n")
        sys.exit(os.EX_TEMPFAIL if status in {"408", "429"} or status >= "500" else 1)
    return json.loads(body)


if __name__ == "__main__":
    main()
