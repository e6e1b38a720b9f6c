"""From a plan's sources to artifacts: hashed here, or by nodes, or taken on a manifest or a root.

Order: what can be refused without reading is refused first, for all components; then one after the
other is read. A manifest goes with what is hashed here, where whoever verifies later finds it; that
the place cannot be written (a read-only mount) is said and is no failure.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from vctl_cli.componentflags import elsewhere_hint
from vctl_cli.nodehash import hashed_on_nodes
from vctl_cli.render.screen import Screen
from vctl_cli.scanning import Scanning
from vctl_cli.session import Session
from vctl_plans import location, weights
from vctl_plans.document import Source
from vctl_plans.errors import ArtifactError, PlanError, RootMismatch
from vctl_plans.names import check_root
from vctl_plans.phase import Component
from vctl_plans.release import Artifact
from vctl_plans.store.port import Store
from vctl_plans.units import bytes_text

UNKNOWN_ROOT = "b3:" + "0" * 64
"""Stands, in a dry run, for the root of what only nodes will have hashed."""


async def bring(
    session: Session, store: Store, wanted: Mapping[Component, Source], *, is_dry: bool = False
) -> dict[Component, Artifact]:
    """Return the artifacts at the sources of a release that is to be made.

    Args:
        session: Its screen, and the fleet whose nodes are asked.
        store: Where nodes are asked.
        wanted: The source of each component.
        is_dry: Whether nothing may be written: no manifest, no copy, no question to nodes. What
            only they can read is then of `UNKNOWN_ROOT`, unless its root is given.

    Raises:
        PlanError: A source cannot be what was asked for, or nothing is there.
        RootMismatch: The bytes are not those of the root that was given, or nodes differ in them.
        ArtifactError: The bytes may not be served, or cannot be read or copied.
    """
    for component, source in wanted.items():
        refuse_misfit(source, component)
    return {
        component: await _artifact(session, store, source, component, is_dry=is_dry)
        for component, source in wanted.items()
    }


def refuse_misfit(source: Source, component: Component) -> None:
    """Refuse a source that cannot be what it is said to be, before anything is read.

    Raises:
        PlanError: The field, and what would be right.
    """
    field = f"release.{component}"
    if not source.source:
        raise PlanError("is empty: write where the bytes are", path=f"{field}.source")
    scheme = location.checked(source.source, field=f"{field}.source").scheme
    if source.root:
        check_root(source.root, what=f"{field}.root")
    if not source.push:
        return
    if location.checked(source.push, field=f"{field}.push").scheme == "hf":
        hint = "push to s3://, https:// or a path; or upload it with `hf upload` first"
        raise PlanError("the Hub is not written to", path=f"{field}.push", hint=hint)
    if scheme != "file":
        raise PlanError(
            f"only what lies here can be pushed, and not {source.source}", path=f"{field}.push"
        )
    if source.hash_on_nodes:
        hint = "what is pushed is hashed here: leave one of them away"
        raise PlanError("stands beside hash_on_nodes", path=f"{field}.push", hint=hint)
    if source.push.startswith("file:") and _path(source.push).is_relative_to(_path(source.source)):
        raise PlanError("is within what is to be pushed", path=f"{field}.push")


def _path(uri: str) -> Path:
    return Path(unquote(location.checked(uri).path))


async def _artifact(
    session: Session, store: Store, source: Source, component: Component, *, is_dry: bool
) -> Artifact:
    from vctl_cli import remote  # noqa: PLC0415  most sources are local

    uri, root = source.source, source.root
    if location.checked(uri).scheme == "hf":
        is_needed = not (root or source.hash_on_nodes)
        uri = remote.pinned(uri, session.screen, component=component, is_needed=is_needed)
    if source.hash_on_nodes and is_dry:
        return Artifact(root=root or UNKNOWN_ROOT, source=uri)
    if source.hash_on_nodes:
        count = source.hash_on_nodes
        return await hashed_on_nodes(
            session, store, uri, component=component, count=count, root=root
        )
    if location.checked(uri).scheme != "file":
        return remote.artifact(session, uri, component=component, root=root)
    local = hashed_here(source, component=component, screen=session.screen, is_dry=is_dry)
    if not source.push or is_dry:
        return local.artifact
    from vctl_cli.pushing import pushed  # noqa: PLC0415  few do

    return pushed(session, local, to=source.push)


class Local(NamedTuple):
    """An artifact that lies on this machine."""

    path: Path
    artifact: Artifact
    manifest: weights.Manifest | None  # None: nothing lies here, it was taken on its root


def hashed_here(
    source: Source, *, component: Component, screen: Screen, is_dry: bool = False
) -> Local:
    """Return the artifact at a `file://` source.

    Args:
        source: Where it is, and the root that it must have or "".
        component: What it is to be.
        screen: For progress, and for what should be known.
        is_dry: Whether no manifest is to be written beside it.

    Raises:
        PlanError: There is nothing there.
        MalformedPrompt: It is to be applied to chats, and cannot be.
        RootMismatch: The bytes are not those of the root that was given.
        ArtifactError: The bytes may not be served.
    """
    field = f"release.{component}.source"
    path = _path(source.source)
    if not path.exists():
        if source.root and not source.push:
            screen.say(f"{path} is not on this machine: taken on its root, nodes verify it")
            return Local(path, Artifact(root=source.root, source=source.source), None)
        raise PlanError(f"there is no {path}", path=field, hint=elsewhere_hint(component))
    if path.is_file() and path.name.startswith("."):
        hint = "name it otherwise, or put it under a directory with another name"
        raise PlanError(f"{path} is hidden, and nodes keep no hidden file", path=field, hint=hint)
    manifest = Scanning(screen, kind=weights.KIND_OF[component]).scan(path)
    if source.root and source.root != manifest.root:
        raise RootMismatch(f"{path}: its root is {manifest.root}, not {source.root}")
    if component is Component.PROMPT:
        weights.read_template(path)  # every node would refuse what cannot be applied
    _tell(manifest, path, screen)
    if not is_dry:
        _keep(manifest, path, screen)
    facts = weights.adapter_facts(path) if component is Component.ADAPTER else None
    found = Artifact(
        root=manifest.root,
        source=source.source,
        size_bytes=sum(file.size for file in manifest.files),
        rank=facts.max_rank if facts else 0,
        base_name=facts.base if facts else "",
    )
    return Local(path, found, manifest)


def _tell(manifest: weights.Manifest, path: Path, screen: Screen) -> None:
    size = bytes_text(sum(file.size for file in manifest.files))
    screen.say(f"{path.name}: {size}, root {manifest.root}")
    for item in manifest.left_out:
        screen.say(f"  left out: {item.path} ({item.reason})")


def _keep(manifest: weights.Manifest, path: Path, screen: Screen) -> None:
    place = weights.manifest_path(path)
    try:
        if place.is_file() and place.read_bytes() == weights.encode(manifest):
            return
        weights.save(manifest, place)
        screen.say(f"  manifest written: {place}")
    except (ArtifactError, OSError) as problem:
        screen.say(f"  no manifest written: {problem}")
