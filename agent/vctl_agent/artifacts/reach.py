"""Look whether artifacts can still be read at their sources, in a process of its own.

    python -m vctl_agent.artifacts.reach [--credentials JSON] SOUGHT...

Cheap: of each artifact the manifest is read, or its place listed, what it names is looked for, and
one byte is read; nothing is hashed and nothing kept. A source that hangs (a mount whose server is
away) costs its own answer and no other, and the process ends without it. Whether a source may be
read at all is asked before, in the agent.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing

import msgspec

from vctl_agent.artifacts.apart import said_by
from vctl_agent.artifacts.describe import credentials_json, read_credentials
from vctl_agent.artifacts.fetch import manifest_of
from vctl_plans import sources, weights
from vctl_plans.errors import ArtifactError, SourceMissing
from vctl_plans.location import shown
from vctl_plans.sources import Credentials, Entry, Source

LIMIT_S = 20.0
"""For all of them; what was not answered by then counts as away."""
_GRACE_S = 10.0  # for the process to begin and to say so
_AT_ONCE = 8


class Sought(msgspec.Struct, frozen=True):
    """An artifact to look for."""

    source: str
    root: str
    kind: weights.Kind


class Trouble(msgspec.Struct, frozen=True):
    """Why an artifact cannot be read, and what may mend it."""

    problem: str
    hint: str = ""


def look(sought: Sought, credentials: Credentials | None) -> Trouble | None:
    """Return why the artifact cannot be read; None: it can, as far as one byte tells."""
    try:
        with sources.connect(sought.source, credentials) as source:
            _look(source, sought)
    except ArtifactError as problem:
        return Trouble(problem.message, problem.hint)
    except OSError as problem:
        return Trouble(f"{shown(sought.source)}: {problem.strerror or problem}")
    return None


def _look(source: Source, sought: Sought) -> None:
    manifest = manifest_of(source, sought.root, kind=sought.kind, known=None)
    if manifest is None:
        there = {file.path: file for file in source.files()}
        paths = weights.select_paths(there, sought.kind, label=source.uri).files
        _read_byte(source, [there[path] for path in paths])
        return
    named = [Entry(file.path, file.size) for file in manifest.files]
    if source.has_listing:
        _compare(source, named)
    _read_byte(source, named)


def _compare(source: Source, named: Sequence[Entry]) -> None:
    """Refuse a place that lacks what its manifest names."""
    sizes = {file.path: file.size for file in source.files()}
    missing = [file.path for file in named if file.path not in sizes]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise SourceMissing(f"{source.uri}: {missing[0]}{more} of its manifest is not there")
    other = next((file for file in named if sizes[file.path] != file.size), None)
    if other:
        rule = f"{other.path} has {sizes[other.path]} bytes, and not {other.size}"
        raise SourceMissing(f"{source.uri}: {rule}")


def _read_byte(source: Source, files: Sequence[Entry]) -> None:
    """Read from the largest file: who may list may not always read."""
    largest = max(files, key=lambda file: file.size, default=None)
    if largest and largest.size:
        with closing(source.read(largest, 0, 1)) as pieces:
            b"".join(pieces)


def look_for_all(
    sought: Sequence[Sought], credentials: Credentials | None, *, limit_s: float = LIMIT_S
) -> list[Trouble | None]:
    """Look for each, several at once; what has not answered in time is told as that."""
    pool = ThreadPoolExecutor(_AT_ONCE)
    looks = [pool.submit(look, each, credentials) for each in sought]
    done, _ = wait(looks, timeout=limit_s)
    pool.shutdown(wait=False, cancel_futures=True)
    return [
        _result(each, one.source, is_done=each in done, limit_s=limit_s)
        for one, each in zip(sought, looks, strict=True)
    ]


def _result(
    look: "Future[Trouble | None]", source: str, *, is_done: bool, limit_s: float
) -> Trouble | None:
    if not is_done:
        return Trouble(f"{shown(source)}: did not answer in {limit_s:g} s")
    bug = look.exception()
    return Trouble(f"{type(bug).__name__}: {bug}") if bug else look.result()


async def reach_apart(
    sought: Sequence[Sought], credentials: Credentials | None
) -> list[Trouble | None]:
    """Do `look_for_all` in a process of its own; cancelled, it ends that process.

    Raises:
        ArtifactError: The process did not say what it found.
    """
    if not sought:
        return []
    arguments = [msgspec.json.encode(each).decode() for each in sought]
    if credentials:
        arguments = ["--credentials", credentials_json(credentials), *arguments]
    try:
        async with asyncio.timeout(LIMIT_S + _GRACE_S):
            return await said_by(
                __name__, arguments, list[Trouble | None], subject=f"{len(sought)} sources"
            )
    except TimeoutError as cause:
        raise ArtifactError(f"{len(sought)} sources: no answer in time") from cause


def main() -> None:
    """Look for what the command line names, and print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("sought", nargs="+")
    parser.add_argument("--credentials", type=read_credentials)
    given = parser.parse_args()
    sought = [msgspec.json.decode(each, type=Sought) for each in given.sought]
    found = look_for_all(sought, given.credentials)
    sys.stdout.write(msgspec.json.encode(found).decode())
    sys.stdout.flush()
    os._exit(0)  # a thread may still wait for a source that is away


if __name__ == "__main__":
    main()
