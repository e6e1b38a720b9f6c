"""Comparing what lies at a path with what it must be, in whole or one tensor."""

from pathlib import Path
from typing import NamedTuple

from vctl_cli.render.differences import DifferenceView, difference_view, other_root
from vctl_cli.render.progress import hashing
from vctl_cli.render.screen import Screen
from vctl_cli.render.verification import TensorView, VerifyView
from vctl_cli.scanning import Scanning, manifest_beside, require
from vctl_plans import weights
from vctl_plans.errors import ArtifactError, PlanError
from vctl_plans.names import check_root, suggestion


class Expected(NamedTuple):
    """What something must be; all empty where nothing says it."""

    root: str = ""
    manifest: weights.Manifest | None = None
    place: str = ""  # of the manifest


def expectation(
    path: Path, *, root: str, manifest: Path | None, tensor: str, screen: Screen
) -> Expected:
    """Find out what *path* must be.

    Args:
        path: What will be verified.
        root: As it was given, or "".
        manifest: As it was given; else the one that lies with the files is taken.
        tensor: The one tensor that will be verified: of the others no leaves are checked.
        screen: For what should be known.

    Raises:
        PlanError: There is nothing at a path, or the root is none.
        ArtifactError: The manifest is damaged, or not of that root.
    """
    if root:
        check_root(root, what="--root")
    require(path, manifest)
    place = manifest or manifest_beside(path)
    if not place:
        return Expected(root)
    found = weights.load(place, is_shallow=bool(tensor))
    fits = not root or root == found.root or (bool(tensor) and root == found.content_root)
    if not fits and manifest:
        weights.load(place, root=root)  # says which root it has, and raises
    if not fits:
        screen.say(f"{place} is of another root: not used")
        return Expected(root)
    return Expected(root or found.root, found, str(place))


def verified_whole(
    path: Path, expected: Expected, how: Scanning, *, state: Path | None, has_sums: bool
) -> VerifyView:
    """Hash all that is at *path* and compare.

    Args:
        path: A directory, or one file.
        expected: What it must be.
        how: How to read it.
        state: Where it is remembered what was verified; None to read everything.
        has_sums: Whether to make the files' own digests too.

    Raises:
        ArtifactError: The bytes may not be served, or can't be read.
    """
    memory = weights.Verified(state) if state else None
    if expected.manifest and not how.kind:
        how = how._replace(kind=expected.manifest.kind)
    actual = how.scan(path, verified=memory)
    differences = _differences(expected, actual)
    if memory and expected.root and not differences:
        try:
            memory.keep()
        except ArtifactError as problem:
            how.screen.say(f"what was verified is not remembered: {problem}")
    return VerifyView(
        path=str(path),
        artifact=actual.kind,
        root=actual.root,
        content_root=actual.content_root,
        size_bytes=sum(file.size for file in actual.files),
        files=len(actual.files),
        tensors=len(actual.tensors),
        expected=expected.root,
        manifest=expected.place,
        is_verified=bool(expected.root) and not differences,
        differences=differences,
        left_out=tuple(f"{item.path}: {item.reason}" for item in actual.left_out),
        not_read=tuple(memory.skipped) if memory else (),
        b3sum=_sums(path, actual.kind, how.screen) if has_sums else {},
    )


def verified_tensor(
    path: Path, name: str, expected: Expected, how: Scanning, *, is_whole: bool
) -> TensorView:
    """Hash one tensor and compare it, by its proof of inclusion in the root.

    Args:
        path: The artifact.
        name: The tensor.
        expected: What the artifact must be.
        how: How to read.
        is_whole: Whether an option was given that only makes sense for the whole.

    Raises:
        PlanError: There is no manifest, or no such tensor in it; or the options do not fit.
        RootMismatch: The manifest is not genuine.
        ArtifactError: The file may not be served, or can't be read.
    """
    manifest = expected.manifest
    if is_whole:
        hint = "one tensor is verified by its proof: leave those out, or leave --tensor out"
        raise PlanError(
            "with --tensor neither --b3sum nor --since-verified", path="--tensor", hint=hint
        )
    if manifest is None:
        hint = "vctl manifest writes one; --manifest says where it is"
        raise PlanError("a tensor alone needs a manifest", path="--tensor", hint=hint)
    names = [tensor.name for tensor in manifest.tensors]
    if name not in names:
        hint = suggestion(name, names)
        raise PlanError(f"the manifest has no tensor {name!r}", path="--tensor", hint=hint)
    proof = weights.prove(manifest, name)
    with hashing(how.screen, name) as progress:
        found = weights.verify_tensor(
            path,
            proof,
            expected.root,
            threads=how.threads,
            max_header_bytes=how.max_header_bytes,
            direct=how.is_direct,
            progress=progress,
        )
    return TensorView(
        path=str(path),
        file=proof.file.path,
        tensor=name,
        dtype=proof.tensor.dtype,
        shape=proof.tensor.shape,
        size_bytes=proof.tensor.size,
        digest=proof.tensor.digest,
        expected=expected.root,
        manifest=expected.place,
        is_verified=not found,
        differences=tuple(map(difference_view, found)),
    )


def _differences(expected: Expected, actual: weights.Manifest) -> tuple[DifferenceView, ...]:
    if expected.manifest:
        return tuple(map(difference_view, weights.diff(expected.manifest, actual)))
    differs = expected.root and expected.root != actual.root
    return (other_root(expected.root),) if differs else ()


def _sums(path: Path, kind: weights.Kind, screen: Screen) -> dict[str, str]:
    from vctl_plans.weights import b3sum  # noqa: PLC0415  few want it

    with hashing(screen, path.name, doing="summing") as progress:
        digests = dict(b3sum.file_digests(path, kind=kind, progress=progress))
    return {name: b3sum.line(name, digest) for name, digest in digests.items()}
