"""An artifact on a web server, in a bucket or on the Hub: what it is, as far as that can be known.

A manifest beside it says what it is without its bytes being read; nodes verify the bytes. Where
there is none, and the place can be listed, the bytes are brought here for as long as it takes to
hash them. Where neither is possible it is taken on its root, or refused with what can be done.
"""

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from vctl_cli.componentflags import elsewhere_hint
from vctl_cli.render.progress import hashing
from vctl_cli.render.screen import Screen
from vctl_cli.scanning import Scanning
from vctl_cli.session import Session
from vctl_plans import sources, weights
from vctl_plans.errors import (
    ArtifactError,
    NotAllowed,
    PlanError,
    RootMismatch,
    SettingsError,
    SourceError,
)
from vctl_plans.phase import Component
from vctl_plans.release import Artifact
from vctl_plans.sources import Entry, Source
from vctl_plans.units import bytes_text
from vctl_plans.weights.adapter import MAX_CONFIG_BYTES
from vctl_plans.weights.selection import ADAPTER_CONFIG, MANIFEST_NAME

SPARE_BYTES = 256 * 1024 * 1024
"""What stays free on the disk that a source without a manifest is brought to."""


def pinned(uri: str, screen: Screen, *, component: Component, is_needed: bool) -> str:
    """Return an `hf://` URI as it names the same bytes for ever, and say so if that is another.

    Args:
        uri: The URI.
        screen: For what should be known.
        component: What it is to be.
        is_needed: Whether nothing goes on without it.

    Raises:
        ArtifactError: The Hub does not tell, and that is needed.
    """
    try:
        found = sources.pinned(uri)
    except (SourceError, NotAllowed) as problem:
        if is_needed:
            raise _with_hint(problem, component) from problem
        screen.say(f"{problem.message}: not pinned to a commit, what it names may change")
        return uri
    if found != uri:
        screen.say(f"{uri}: pinned to the commit that it is now: {found}")
    return found


def credentials(session: Session) -> sources.Credentials:
    """Return what lets this command in at web servers.

    Raises:
        SettingsError: A variable does not say it rightly.
    """
    try:
        return sources.from_environment(session.world.env)
    except ValueError as cause:
        raise SettingsError([f"VCTL_SOURCE_TOKEN_FILE: {cause}"]) from cause


def artifact(session: Session, uri: str, *, component: Component, root: str) -> Artifact:
    """Return the artifact at a place that is no file system.

    Args:
        session: Its screen, and what lets it in.
        uri: Where it is.
        component: What it is to be.
        root: The root that it must have; any when empty.

    Raises:
        PlanError: Nothing tells its root, and it cannot be listed.
        RootMismatch: It is of another root, by its manifest.
        ArtifactError: It cannot be read, or may not be served.
    """
    screen = session.screen
    with ExitStack() as stack:
        try:
            source = stack.enter_context(sources.connect(uri, credentials(session)))
            manifest = source.manifest(root=root)
        except (SourceError, NotAllowed) as problem:
            if not root:
                raise _with_hint(problem, component) from problem
            screen.say(f"{problem.message}: taken on its root, nodes verify it")
            return Artifact(root=root, source=uri)
        except ArtifactError as problem:
            kind = RootMismatch if isinstance(problem, RootMismatch) else ArtifactError
            raise kind(f"{uri}: {problem.message}", hint=problem.hint) from problem
        if manifest:
            return _by_manifest(source, manifest, component=component, screen=screen)
        if not root:
            return _by_bytes(source, component=component, screen=screen)
    screen.say(f"{uri}: no manifest is there: taken on its root, nodes verify it")
    if not source.has_listing:
        screen.say(f"  nodes need one to read from a web server: put {MANIFEST_NAME} beside it")
    return Artifact(root=root, source=uri)


def _with_hint(problem: SourceError | NotAllowed, component: Component) -> ArtifactError:
    return type(problem)(problem.message, hint=problem.hint or elsewhere_hint(component))


def _by_manifest(
    source: Source, manifest: weights.Manifest, *, component: Component, screen: Screen
) -> Artifact:
    kind, uri = weights.KIND_OF[component], source.uri
    if manifest.kind != kind:
        hint = f"write it again: vctl manifest --kind {kind}"
        raise NotAllowed(
            f"{uri}: its manifest is of kind {manifest.kind}, and the {component} must be {kind}",
            hint=hint,
        )
    facts = None
    if component is Component.ADAPTER:
        facts = weights.stated_facts(manifest, _config(source, manifest), where=uri)
    screen.say(f"{uri}: {_text(manifest)}")
    screen.say("  by the manifest that is there: nodes verify the bytes")
    return _made(uri, manifest, facts)


def _text(manifest: weights.Manifest) -> str:
    return f"{bytes_text(sum(file.size for file in manifest.files))}, root {manifest.root}"


def _made(uri: str, manifest: weights.Manifest, facts: weights.AdapterFacts | None) -> Artifact:
    return Artifact(
        root=manifest.root,
        source=uri,
        size_bytes=sum(file.size for file in manifest.files),
        rank=facts.max_rank if facts else 0,
        base_name=facts.base if facts else "",
    )


def _config(source: Source, manifest: weights.Manifest) -> bytes:
    size = next((file.size for file in manifest.files if file.path == ADAPTER_CONFIG), 0)
    if size > MAX_CONFIG_BYTES:
        raise NotAllowed(f"{source.uri}: {ADAPTER_CONFIG} is longer than {MAX_CONFIG_BYTES} bytes")
    with closing(source.read(Entry(ADAPTER_CONFIG, size), 0, size)) as pieces:
        return b"".join(pieces)


def _by_bytes(source: Source, *, component: Component, screen: Screen) -> Artifact:
    """Bring the artifact here, hash it, and keep nothing of it."""
    uri, kind = source.uri, weights.KIND_OF[component]
    if not source.has_listing:
        raise PlanError(
            f"{uri} has no manifest ({MANIFEST_NAME}), and a web server cannot be listed",
            path=f"release.{component}.source",
            hint="write one with `vctl manifest` and put it beside the files,"
            " or copy a folder there with --push",
        )
    listed = {file.path: file for file in source.files()}
    belongs = weights.select_paths(listed, kind, label=uri).files
    with tempfile.TemporaryDirectory(prefix="vctl-") as folder:
        copy = Path(folder) / "artifact"
        _bring([listed[path] for path in belongs], source, copy, screen=screen)
        manifest = Scanning(screen, kind=kind).scan(copy)
        facts = weights.adapter_facts(copy) if component is Component.ADAPTER else None
    screen.say(f"{uri}: {_text(manifest)}")
    screen.say("  no manifest is there: its bytes were read here")
    return _made(uri, manifest, facts)


def _bring(files: Sequence[Entry], source: Source, copy: Path, *, screen: Screen) -> None:
    total = sum(file.size for file in files)
    free = shutil.disk_usage(copy.parent).free
    if total + SPARE_BYTES > free:
        raise ArtifactError(
            f"{source.uri}: {bytes_text(total)} to hash, and {bytes_text(free)} free"
            f" in {copy.parent.parent}",
            hint="set TMPDIR to a larger disk, or have nodes hash it: --hash-on-nodes N",
        )
    done = 0
    with hashing(screen, source.uri, doing="reading") as report:
        for file in files:
            place = copy / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as writer, closing(source.read(file, 0, file.size)) as pieces:
                for piece in pieces if file.size else ():
                    writer.write(piece)
                    done += len(piece)
                    if report:
                        report(done, total)
