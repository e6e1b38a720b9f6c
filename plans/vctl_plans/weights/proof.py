"""One tensor of an artifact, verified alone: its bytes, and the proof that they belong to a root.

A proof needs no trust and no manifest: from the tensor's own record and the siblings in the two
trees (RFC 9162) it leads to a content root and to an artifact root; if one of them is the expected
one, so is the tensor. A file binds the list of its tensors' digests, so that list is part of the
proof; in both trees a logarithm of digests is enough.

Where the tensor lies is read from the file's own header, never from the manifest.
"""

import os
from collections.abc import Callable

import msgspec

from vctl_plans.errors import FileChanged, NotAllowed, RootMismatch

from . import engine, files, merkle, safetensors
from .diff import Difference, of_tensor
from .manifest import Digest, FileRecord, Manifest, TensorRecord, check_tensor, file_digest
from .safetensors import MAX_HEADER_BYTES, Header, Tensor
from .scan import Progress
from .selection import unsafe_path
from .sniff import SNIFF_BYTES


class Inclusion(msgspec.Struct, frozen=True):
    """A node's place in a tree, and the way from there to the root."""

    index: int
    count: int  # of nodes on the lowest level
    siblings: tuple[Digest, ...]  # from the lowest level up


class TensorProof(msgspec.Struct, frozen=True):
    """That a tensor belongs to a content root and to an artifact root."""

    tensor: TensorRecord
    content: Inclusion  # of the tensor among all tensors
    file: FileRecord  # where it lies; names nothing of the other tensors
    digests: tuple[Digest, ...]  # of the file's tensors, in its order; this one's among them
    artifact: Inclusion  # of the file among all files

    def roots(self) -> tuple[Digest, Digest]:
        """Compute (artifact root, content root).

        Raises:
            RootMismatch: The parts of the proof do not fit together.
            ArtifactError: As `check_tensor` does.
        """
        check_tensor(self.tensor)
        own = merkle.from_text(self.tensor.digest)
        file, header = self.file, self.file.header or ""
        entry = merkle.entry_digest(file.path, file.form, file.size, merkle.from_text(file.digest))
        content = _root("content", own, self.content)
        artifact = _root("artifact", entry, self.artifact)
        is_of_file = self.tensor.digest in self.digests and bool(header)
        if not is_of_file or file_digest(file.size, header, self.digests) != file.digest:
            artifact = ""
        if not (content and artifact):
            name = self.tensor.name
            raise RootMismatch(f"the proof of {name!r} leads to no root", tensors=(name,))
        return artifact, content


def prove(manifest: Manifest, name: str) -> TensorProof:
    """Make the proof of one tensor; the manifest supplies the siblings.

    Raises:
        NotAllowed: The manifest has no such tensor.
    """
    by_name = {tensor.name: number for number, tensor in enumerate(manifest.tensors)}
    if name not in by_name:
        raise NotAllowed(f"the manifest has no tensor {name!r}")
    number = by_name[name]
    place, file = next((n, f) for n, f in enumerate(manifest.files) if name in f.tensors)
    entries = [
        merkle.entry_digest(f.path, f.form, f.size, merkle.from_text(f.digest))
        for f in manifest.files
    ]
    return TensorProof(
        tensor=manifest.tensors[number],
        content=_inclusion([merkle.from_text(t.digest) for t in manifest.tensors], number),
        file=msgspec.structs.replace(file, tensors=()),
        digests=tuple(manifest.tensors[by_name[other]].digest for other in file.tensors),
        artifact=_inclusion(entries, place),
    )


def verify_tensor(
    path: str | os.PathLike[str],
    proof: TensorProof,
    root: str,
    *,
    threads: int | None = None,
    max_header_bytes: int = MAX_HEADER_BYTES,
    direct: bool = False,
    progress: Progress | None = None,
) -> tuple[Difference, ...]:
    """Verify one tensor; of the rest only the header of its file is read.

    Args:
        path: The artifact: a directory, or one file.
        proof: Of the tensor.
        root: The artifact root or the content root that it must belong to.
        threads: See `scan`.
        max_header_bytes: See `scan`.
        direct: See `scan`.
        progress: Called with (bytes done, bytes of the tensor).

    Returns:
        What differs: nothing when the tensor is as proved. A header that differs elsewhere is
        listed too.

    Raises:
        RootMismatch: The proof does not lead to the root.
        MalformedWeights: The file breaks a rule of its format.
        ArtifactError: It can't be read, or changed meanwhile.
    """
    tensor, file = proof.tensor, proof.file
    _check_proof(proof, root)
    with files.open_source(path) as source:
        try:
            fd = files.open_file(source, file.path)
        except FileChanged:  # nothing was listed here: it was never there
            return (Difference("missing", file.path),)
        try:
            stamp, shown = files.stamp_of(fd), source.display(file.path)
            raw, header = _header(fd, stamp.size, shown, max_header_bytes)
            now = next((t for t in header.tensors if t.name == tensor.name), None)
            if now is None:
                return (Difference("missing", file.path, tensor.name),)
            is_direct = direct and files.go_direct(fd)
            ranges = merkle.leaf_ranges(now.begin, now.end)
            pieces = [engine.Piece(fd, shown, begin, end, is_direct) for begin, end in ranges]
            report = _of(progress, now.end - now.begin) if progress else None
            leaves = engine.hash_pieces(pieces, threads=threads, progress=report)
            files.check_unchanged(source, file.path, stamp)
        finally:
            os.close(fd)
    found = of_tensor(tensor, _record(now, b"".join(leaves)), file.path, now.begin)
    if merkle.to_text(merkle.plain(raw)) != file.header:
        found = (*found, Difference("header", file.path, ranges=((0, len(raw)),)))
    return found


def _check_proof(proof: TensorProof, root: str) -> None:
    name, path = proof.tensor.name, proof.file.path
    if root not in proof.roots():
        raise RootMismatch(f"the proof of {name!r} is not of the root {root}", tensors=(name,))
    # The artifact root binds the path, but the content root, which may be the one given, does not.
    place_rule = unsafe_path(path)
    if place_rule:
        raise NotAllowed(f"the proof's path {path!a} {place_rule}")


def _of(progress: Progress, total: int) -> Callable[[int], None]:
    return lambda done: progress(done, total)


def _header(fd: int, size: int, shown: str, max_header_bytes: int) -> tuple[bytes, Header]:
    start = files.read_exactly(fd, min(SNIFF_BYTES, size), 0, path=shown)
    length = safetensors.header_size(start, size, path=shown, max_header_bytes=max_header_bytes)
    raw = files.read_exactly(fd, length, 0, path=shown)
    return raw, safetensors.parse_header(raw, size, path=shown)


def _record(tensor: Tensor, leaves: bytes) -> TensorRecord:
    size = tensor.end - tensor.begin
    digest = merkle.tensor_digest(
        tensor.name, tensor.dtype, tensor.shape, size_bytes=size, leaves=leaves
    )
    return TensorRecord(
        tensor.name, tensor.dtype, tensor.shape, size, merkle.to_text(digest), leaves
    )


def _inclusion(level: list[bytes], index: int) -> Inclusion:
    siblings = tuple(map(merkle.to_text, merkle.inclusion(level, index)))
    return Inclusion(index, len(level), siblings)


def _root(kind: str, node: bytes, inclusion: Inclusion) -> Digest:
    found = merkle.root_by_inclusion(
        kind,
        node,
        map(merkle.from_text, inclusion.siblings),
        index=inclusion.index,
        count=inclusion.count,
    )
    return merkle.to_text(found) if found else ""
