"""Hash what lies at a source and say what it is, in a process of its own; nothing is kept of it.

    python -m vctl_agent.artifacts.describe URI SCRATCH [--kind KIND] [--credentials JSON]

It prints one `Description`. All bytes are read, whatever a manifest beside them says. What is on no
mount is copied to a scratch folder for that, which is the caller's to remove. Whether the source
may be read at all is asked before, in the agent.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec

from vctl_agent.artifacts.apart import said_by
from vctl_agent.artifacts.fetch import copy_whole
from vctl_plans import sources, weights
from vctl_plans.errors import ArtifactError
from vctl_plans.phase import NodePhase
from vctl_plans.sources import Credentials
from vctl_plans.sources.file import FileSource

_LOWEST_PRIORITY = 19  # the node serves meanwhile


class Description(msgspec.Struct, frozen=True, omit_defaults=True):
    """What lies at a source."""

    root: str = ""  # empty: it could not be hashed
    size_bytes: int = 0
    rank: int = 0  # of an adapter
    base_name: str = ""
    problem: str = ""


def describe(
    uri: str, *, kind: weights.Kind, scratch: Path, credentials: Credentials | None
) -> Description:
    """Hash the artifact at a source.

    Args:
        uri: Where it is.
        kind: What it must be.
        scratch: An empty folder.
        credentials: What lets us in at web servers.
    """
    try:
        with sources.connect(uri, credentials) as source:
            if isinstance(source, FileSource):
                return _described(source.path, kind)
            copy = scratch / "artifact"
            copy_whole(copy, source, kind=kind, progress=_silent)
        return _described(copy, kind)
    except ArtifactError as problem:
        return Description(problem=problem.message)
    except OSError as problem:
        return Description(problem=f"{uri}: cannot be copied: {problem.strerror}")


def _described(path: Path, kind: weights.Kind) -> Description:
    manifest = weights.scan(path, kind=kind)
    facts = weights.adapter_facts(path) if kind == "adapter" else None
    return Description(
        root=manifest.root,
        size_bytes=sum(file.size for file in manifest.files),
        rank=facts.max_rank if facts else 0,
        base_name=facts.base if facts else "",
    )


def _silent(_phase: NodePhase, _done: int, _total: int) -> None:
    pass


async def describe_apart(
    uri: str, *, kind: weights.Kind, scratch: Path, credentials: Credentials | None
) -> Description:
    """Do `describe` in a process of its own; cancelled, it ends that process.

    Raises:
        ArtifactError: The process did not say what it found.
    """
    arguments = [uri, str(scratch), "--kind", kind]
    if credentials:
        arguments += ["--credentials", credentials_json(credentials)]
    return await said_by(__name__, arguments, Description, subject=uri)


def credentials_json(credentials: Credentials) -> str:
    """Return where credentials are, for a command line: paths of files, no secret."""
    return msgspec.json.encode(credentials, enc_hook=str).decode()


def read_credentials(text: str) -> Credentials:
    """Return what `credentials_json` wrote."""

    def path(_type: type[Any], value: Any) -> Path:
        return Path(value)

    return msgspec.json.decode(text, type=Credentials, dec_hook=path)


def main() -> None:
    """Describe what the command line names, and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("uri")
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--kind", choices=get_args(weights.Kind), default="adapter")
    parser.add_argument("--credentials", type=read_credentials)
    given = parser.parse_args()
    os.nice(_LOWEST_PRIORITY)
    found = describe(
        given.uri, kind=given.kind, scratch=given.scratch, credentials=given.credentials
    )
    sys.stdout.write(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
