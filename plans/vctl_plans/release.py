"""Artifacts and releases: what is served, by content.

A release never changes once it is written. Its number and each counter of its version vector are
never used again, also not after a rollback.
"""

from collections.abc import Iterable, Mapping

import msgspec

from vctl_plans.codec import Value, digest
from vctl_plans.names import engine_name
from vctl_plans.phase import Component

STAGED = (Component.WEIGHTS, Component.ADAPTER, Component.PROMPT, Component.INDEX)
"""What a node brings to its disk for a release."""

APPLICATION = (Component.PROMPT, Component.INDEX)
"""What the application reads, and no engine."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Immutable bytes of one component."""

    root: str  # b3:<64 hex>, the Merkle root over the files that are served
    source: str  # URI of the directory that nodes read
    size_bytes: int = 0
    rank: int = 0  # of an adapter; 0 for other components
    base_name: str = ""  # the base model that an adapter was trained on, as it says itself
    adopted: str = ""
    """The name under which engines held it before vctl came, where nobody could read its files:
    its root stands for that name and path, nothing was verified, and vctl neither loads nor unloads
    it. `source` is then the path as the engine tells it."""


class Actor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who did it: for a person to read, not for authorisation."""

    user: str = ""
    host: str = ""
    via: str = ""  # a CI job's URL


class Release(Value, frozen=True, kw_only=True):
    """A numbered, immutable set of artifacts of a service."""

    service: str
    number: int  # from 1
    components: dict[Component, Artifact]
    vector: dict[Component, int]  # one counter per component
    digest: str = ""
    by: Actor = Actor()
    reason: str = ""
    probes: str = ""  # digest of the golden prompts that it was made with; no part of its identity

    @property
    def adapter(self) -> Artifact | None:
        """The adapter, if the release has one."""
        return self.components.get(Component.ADAPTER)

    @property
    def staged(self) -> dict[Component, Artifact]:
        """What a node must have on its disk, whole, before the release can be ready there."""
        named = {name: self.components[name] for name in STAGED if name in self.components}
        return {name: artifact for name, artifact in named.items() if not artifact.adopted}

    @property
    def unverified(self) -> str:
        """What of the release nobody could ever verify, in a sentence; empty: nothing."""
        name = self.adapter.adopted if self.adapter else ""
        return f"adopted unverified: engines held {name} before, and nobody read it" if name else ""

    @property
    def for_application(self) -> dict[Component, Artifact]:
        """What the application reads of the release; empty where only the engine does."""
        return {name: self.components[name] for name in APPLICATION if name in self.components}

    @property
    def engine_name(self) -> str:
        """The adapter's name in the engine; empty when the release is served by the base alone."""
        if not self.adapter:
            return ""
        return self.adapter.adopted or engine_name(self.service, self.adapter.root)

    @property
    def vector_text(self) -> str:
        """The version vector in one word, as in ``adapter=3,prompt=1``."""
        return ",".join(f"{name}={self.vector[name]}" for name in sorted(self.vector))


class _Identity(msgspec.Struct, frozen=True):
    """What a release's digest covers: what is served, not who made it or where it lies."""

    service: str
    number: int
    roots: dict[str, str]
    vector: dict[str, int]


def release_digest(release: Release) -> str:
    """Return the digest that names *release* in reports, pins and hops."""
    identity = _Identity(
        service=release.service,
        number=release.number,
        roots={name.value: artifact.root for name, artifact in release.components.items()},
        vector={name.value: counter for name, counter in release.vector.items()},
    )
    return digest(identity, context="release")


class _Listed(msgspec.Struct, frozen=True):
    name: str
    path: str


def adopted(name: str, path: str) -> Artifact:
    """Return the adapter that engines list as *name* from *path*, and whose files none can read.

    Its root is of a kind of its own, so that no bytes can ever pass for it.
    """
    root = digest(_Listed(name, path), context="adopted adapter")
    return Artifact(root=root, source=path, adopted=name)


def compose(
    service: str,
    components: Mapping[Component, Artifact],
    *,
    known: Iterable[Release],
    stable: Release | None,
    by: Actor,
    reason: str = "",
    probes: str = "",
) -> Release:
    """Return the next release: the stable one with *components* put in their place.

    A component whose root is the stable release's keeps its counter; any other gets one that no
    release had before.

    Args:
        service: The service's name.
        components: What changes.
        known: All releases of the service ever made.
        stable: The release to start from; None for the first.
        by: Who makes it.
        reason: Why.
        probes: Digest of the golden prompts that it must pass.
    """
    releases = tuple(known)
    before = dict(stable.components) if stable else {}
    merged = before | dict(components)
    vector = {
        name: (
            stable.vector[name]
            if stable and name in before and before[name].root == artifact.root
            else 1 + max((r.vector.get(name, 0) for r in releases), default=0)
        )
        for name, artifact in merged.items()
    }
    draft = Release(
        service=service,
        number=1 + max((r.number for r in releases), default=0),
        components=merged,
        vector=vector,
        by=by,
        reason=reason,
        probes=probes,
    )
    return msgspec.structs.replace(draft, digest=release_digest(draft))


def has_same_content(release: Release, components: Mapping[Component, Artifact]) -> bool:
    """Whether *release* already holds each of *components* at its root."""
    return all(
        name in release.components and release.components[name].root == artifact.root
        for name, artifact in components.items()
    )
