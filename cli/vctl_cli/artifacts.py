"""From a plan's source to an artifact: hashed if this command can read it, else taken on its root.

The manifest goes with the source, where whoever verifies later finds it; that the place cannot
be written (a read-only mount) is said and is no failure.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from vctl_cli.render.progress import hashing
from vctl_cli.render.screen import Screen
from vctl_plans import weights
from vctl_plans.document import Source
from vctl_plans.errors import ArtifactError, PlanError, RootMismatch
from vctl_plans.phase import Component
from vctl_plans.release import Artifact
from vctl_plans.units import bytes_text


def artifact(source: Source, *, component: Component, screen: Screen) -> Artifact:
    """Return the artifact at *source*.

    Args:
        source: A `file://` URI, and the root that it must have or "".
        component: What it is to be.
        screen: For progress, and for what should be known.

    Raises:
        PlanError: There is nothing there, or the kind of source is not built yet.
        RootMismatch: The bytes are not those of the root that was given.
        ArtifactError: The bytes may not be served.
    """
    field = f"release.{component}.source"
    path = local_path(source.source, field=field)
    if not path.exists():
        if source.root:
            screen.say(f"{path} is not on this machine: taken on its root, nodes verify it")
            return Artifact(root=source.root, source=source.source)
        flag = "--root" if component is Component.ADAPTER else f"--{component}-root"
        hint = f"where only nodes can read it, add {flag}"
        raise PlanError(f"there is no {path}", path=field, hint=hint)
    if path.is_file() and path.name.startswith("."):
        hint = "name it otherwise, or put it under a directory with another name"
        raise PlanError(f"{path} is hidden, and nodes keep no hidden file", path=field, hint=hint)
    manifest = scanned(path, component=component, screen=screen)
    if source.root and source.root != manifest.root:
        raise RootMismatch(f"{path}: its root is {manifest.root}, not {source.root}")
    _keep(manifest, path, screen)
    facts = weights.adapter_facts(path) if component is Component.ADAPTER else None
    return Artifact(
        root=manifest.root,
        source=source.source,
        size_bytes=sum(file.size for file in manifest.files),
        rank=facts.max_rank if facts else 0,
        base_name=facts.base if facts else "",
    )


def local_path(uri: str, *, field: str) -> Path:
    """Return the path of a `file://` URI.

    Raises:
        PlanError: It is another kind of URI.
    """
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
        raise PlanError(f"{uri}: only paths and file:// are built yet", path=field)
    return Path(unquote(parts.path))


def scanned(path: Path, *, component: Component, screen: Screen) -> weights.Manifest:
    """Hash what is at *path*, with a progress bar where a person waits."""
    with hashing(screen, path.name) as progress:
        return weights.scan(path, kind=weights.KIND_OF[component], progress=progress)


def _keep(manifest: weights.Manifest, path: Path, screen: Screen) -> None:
    place = weights.manifest_path(path)
    size = bytes_text(sum(file.size for file in manifest.files))
    screen.say(f"{path.name}: {size}, root {manifest.root}")
    for item in manifest.left_out:
        screen.say(f"  left out: {item.path} ({item.reason})")
    try:
        if place.is_file() and place.read_bytes() == weights.encode(manifest):
            return
        weights.save(manifest, place)
        screen.say(f"  manifest written: {place}")
    except (ArtifactError, OSError) as problem:
        screen.say(f"  no manifest written: {problem}")
