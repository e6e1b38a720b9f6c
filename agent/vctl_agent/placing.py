"""Where an adapter is, as the engine sees it; and which of what it lists is nobody's."""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.engines.port import Description
from vctl_plans.names import ENGINE_DIGEST_CHARS
from vctl_plans.node import MAX_UNMANAGED, Unmanaged
from vctl_plans.release import Artifact
from vctl_plans.snapshot import Service

_LONGEST_PATH_CHARS = 512
"""Of a path in a report: an adapter from a longer one is not told, and cannot be adopted."""


def directory(artifacts: ArtifactStore, adapter: Artifact) -> str:
    """Return the directory from which the engine holds *adapter*: its verified copy.

    One that was adopted unverified stays where it was found: see `release.Artifact.adopted`.
    """
    return adapter.source if adapter.adopted else str(artifacts.path(adapter.root))


def source_directory(adapter: Artifact) -> str:
    """Return the directory that *adapter* was brought from; empty where it is no path."""
    parts = urlsplit(adapter.source)
    return unquote(parts.path) if parts.scheme == "file" else ""


def unmanaged(engine: Description | None, services: Iterable[Service]) -> tuple[Unmanaged, ...]:
    """Return what the engine lists under names that are neither releases' nor services' of vctl."""
    known: set[str] = set()
    for service in services:
        known |= {release.engine_name for release in service.releases.values()}
        known |= {service.name} if service.is_direct and not service.ejected else set()
    found = (
        Unmanaged(resident.name, resident.path)
        for resident in (engine.adapters if engine else ())
        if resident.name not in known
        and len(resident.path) <= _LONGEST_PATH_CHARS
        and not is_identity(resident.name, resident.path)
    )
    return tuple(sorted(found, key=lambda each: each.name)[:MAX_UNMANAGED])


def is_identity(name: str, path: str) -> bool:
    """Whether vctl gave the name: to a release that is not known any more, or not yet."""
    _, at, digest = name.rpartition("@")
    return bool(at) and Path(path).name[:ENGINE_DIGEST_CHARS] == digest
