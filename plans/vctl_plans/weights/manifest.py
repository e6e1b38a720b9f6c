"""The manifest: an artifact's roots, files, tensors and leaves, as one JSON document.

Only the artifact root has to be trusted. `decode` computes every digest above the leaves again, so
a manifest whose root is the expected one is genuine in whole; left_out alone is a remark, outside
the root. Where only a few tensors matter the leaves of the others need no check (`is_shallow`):
whoever then uses a tensor's leaves calls `check_tensor` on it.

It lies with what it describes, `vctl.manifest.json` in the directory or `FILE.vctl.manifest.json`
beside a single file, so that both are moved together; it is never part of the artifact. The
document is canonical: one artifact has one encoding, fields in declared order, no white space.
"""

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import msgspec

from vctl_plans.errors import ArtifactError, RootMismatch

from . import merkle
from .safetensors import DTYPE_BITS, LENGTH_BYTES, tensor_bits
from .selection import MANIFEST_NAME, MANIFEST_SUFFIX, Kind, unsafe_path

SCHEMA: Final = 1

_READABLE = 0o644  # to all, as mkstemp's files are not

Digest = Annotated[str, msgspec.Meta(pattern=r"\Ab3:[0-9a-f]{64}\Z")]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class TensorRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor: what its digest binds, and the digest."""

    name: str
    dtype: str
    shape: tuple[Size, ...]
    size: Size  # in bytes
    digest: Digest
    leaves: bytes  # 32 bytes for each MiB begun; base64 in JSON


class FileRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file. With a header it is safetensors; without, one block or several (see `merkle`)."""

    path: str
    size: Size  # in bytes
    digest: Digest
    header: Digest | None = None  # plain BLAKE3 of the first header_size bytes
    header_size: Size = 0  # with the 8 length bytes: where the data begins
    tensors: tuple[str, ...] = ()  # in the order of their data, without gaps
    leaves: bytes = b""  # of a plain file of more than one block; as a tensor's

    @property
    def form(self) -> str:
        """How the file is hashed, as the artifact's tree binds it."""
        return "safetensors" if self.header else merkle.plain_form(self.size)


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file or folder of the source that is not part of the artifact, and why."""

    path: str
    reason: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An artifact, named by `root`."""

    v: int
    kind: Kind
    root: Digest  # binds every byte of every file
    content_root: Digest  # binds the tensors only, whatever their sharding and order
    files: tuple[FileRecord, ...]  # by the UTF-8 bytes of path
    tensors: tuple[TensorRecord, ...]  # by the UTF-8 bytes of name; each in exactly one file
    left_out: tuple[LeftOut, ...]


class _Version(msgspec.Struct):
    v: int


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Manifest)


def compose(
    kind: Kind,
    files: Iterable[FileRecord],
    tensors: Iterable[TensorRecord],
    left_out: Iterable[LeftOut] = (),
) -> Manifest:
    """Order the records and compute the roots over them."""
    by_path = tuple(sorted(files, key=lambda file: file.path.encode()))
    by_name = tuple(sorted(tensors, key=lambda tensor: tensor.name.encode()))
    return Manifest(
        v=SCHEMA,
        kind=kind,
        root=_artifact_root(by_path),
        content_root=_content_root(by_name),
        files=by_path,
        tensors=by_name,
        left_out=tuple(left_out),
    )


def encode(manifest: Manifest) -> bytes:
    """Write the canonical document."""
    return _ENCODER.encode(manifest) + b"\n"


def decode(document: bytes, *, root: str = "", is_shallow: bool = False) -> Manifest:
    """Read a manifest and compute its digests again.

    Args:
        document: What `encode` wrote.
        root: The artifact root that it must have; any when empty.
        is_shallow: Take the tensors' digests as they are: their leaves are checked when used.

    Raises:
        ArtifactError: Not a manifest of a schema that this version knows.
        RootMismatch: Its digests do not fit together, or its root is another.
    """
    try:
        version = msgspec.json.decode(document, type=_Version).v
        if version != SCHEMA:
            raise ArtifactError(
                f"the manifest has schema {version}; this version of vctl knows {SCHEMA}"
            )
        manifest = _DECODER.decode(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"the manifest does not validate: {error}") from error
    _check(manifest, is_shallow=is_shallow)
    if root and root != manifest.root:
        raise RootMismatch(f"the manifest is of {manifest.root}, not of {root}")
    return manifest


def manifest_path(source: str | os.PathLike[str]) -> Path:
    """Name the manifest's place: in the directory that it describes, or beside the file."""
    path = Path(os.path.abspath(source))  # noqa: PTH100  resolve() would follow the last link
    return path / MANIFEST_NAME if path.is_dir() else path.with_name(path.name + MANIFEST_SUFFIX)


def load(path: str | os.PathLike[str], *, root: str = "", is_shallow: bool = False) -> Manifest:
    """Read and check the manifest in a file; see `decode`.

    Raises:
        ArtifactError: Also when the file can't be read.
    """
    document = _read(path)
    try:
        return decode(document, root=root, is_shallow=is_shallow)
    except RootMismatch as error:
        raise RootMismatch(f"{path}: {error}", tensors=error.tensors) from error
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from error


def _read(path: str | os.PathLike[str]) -> bytes:
    """Read a file that may have come from anywhere: a FIFO or a device must not hold us up."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:  # noqa: PTH123  a descriptor, not a path
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return file.read()
    except IsADirectoryError:
        pass
    except OSError as error:
        raise ArtifactError(f"{path}: can't be read: {error.strerror}") from error
    raise ArtifactError(f"{path}: is not a regular file")


def save(manifest: Manifest, path: str | os.PathLike[str]) -> None:
    """Write a manifest so that a crash leaves the old file or the new one.

    Raises:
        ArtifactError: It can't be written.
    """
    place = Path(path)
    draft = ""
    try:
        fd, draft = tempfile.mkstemp(dir=place.parent, prefix=".")
        with open(fd, "wb") as file:  # noqa: PTH123  a descriptor, not a path
            file.write(encode(manifest))
            file.flush()
            os.fchmod(fd, _READABLE)
            os.fsync(fd)
        Path(draft).replace(place)
        _sync_folder(place.parent)
    except OSError as error:
        if draft:
            Path(draft).unlink(missing_ok=True)
        raise ArtifactError(f"{place}: can't be written: {error.strerror}") from error


def _sync_folder(folder: Path) -> None:
    """Make a rename in a folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def tensor_digest(
    name: str, dtype: str, shape: tuple[int, ...], *, size: int, leaves: bytes
) -> Digest:
    """Compute a tensor record's digest."""
    return merkle.to_text(merkle.tensor_digest(name, dtype, shape, size_bytes=size, leaves=leaves))


def file_digest(size: int, header: Digest, tensors: Iterable[Digest]) -> Digest:
    """Compute a safetensors file record's digest from those of its tensors, in file order."""
    digests = map(merkle.from_text, tensors)
    return merkle.to_text(merkle.file_digest(size, merkle.from_text(header), digests))


def plain_digest(size: int, leaves: bytes) -> Digest:
    """Compute a plain file record's digest."""
    return merkle.to_text(merkle.plain_digest(size, leaves))


def _artifact_root(files: tuple[FileRecord, ...]) -> Digest:
    entries = ((file.path, file.form, file.size, merkle.from_text(file.digest)) for file in files)
    return merkle.to_text(merkle.artifact_root(entries))


def _content_root(tensors: tuple[TensorRecord, ...]) -> Digest:
    pairs = ((tensor.name, merkle.from_text(tensor.digest)) for tensor in tensors)
    return merkle.to_text(merkle.content_root(pairs))


def _check(manifest: Manifest, *, is_shallow: bool) -> None:
    """Check everything in a manifest that follows from something else in it."""
    by_name = {tensor.name: tensor for tensor in manifest.tensors}
    homes = [name for file in manifest.files for name in file.tensors]
    if len(by_name) != len(manifest.tensors) or sorted(homes) != sorted(by_name):
        raise ArtifactError("the manifest does not validate: each tensor must be in one file")
    for tensor in () if is_shallow else manifest.tensors:
        check_tensor(tensor)
    for file in manifest.files:
        _check_file(file, [by_name[name] for name in file.tensors])
    if len({file.path for file in manifest.files}) != len(manifest.files):
        raise ArtifactError("the manifest does not validate: a path appears twice")
    again = compose(manifest.kind, manifest.files, manifest.tensors, manifest.left_out)
    if again != manifest:
        raise RootMismatch("the manifest's roots or order are not those of its files and tensors")


def check_tensor(tensor: TensorRecord) -> None:
    """Check that a tensor's digest is that of its fields and leaves.

    Raises:
        RootMismatch: It is not.
        ArtifactError: The fields contradict each other.
    """
    bits = tensor_bits(tensor.dtype, tensor.shape) if tensor.dtype in DTYPE_BITS else None
    if bits != tensor.size * 8:
        rule = f"dtype, shape and size of {tensor.name!r} do not agree"
        raise ArtifactError(f"the manifest does not validate: {rule}")
    if len(tensor.leaves) != merkle.leaf_count(tensor.size) * merkle.DIGEST_BYTES:
        rule = f"{tensor.name!r} has the wrong number of leaves"
        raise ArtifactError(f"the manifest does not validate: {rule}")
    digest = tensor_digest(
        tensor.name, tensor.dtype, tensor.shape, size=tensor.size, leaves=tensor.leaves
    )
    if digest != tensor.digest:
        rule = f"the manifest's digest of {tensor.name!r} is not that of its leaves"
        raise RootMismatch(rule, tensors=(tensor.name,))


def _check_file(file: FileRecord, tensors: list[TensorRecord]) -> None:
    rule = unsafe_path(file.path)
    if rule:
        raise ArtifactError(f"the manifest does not validate: the path {file.path!a} {rule}")
    if file.header is None:
        if tensors or file.header_size:
            rule = f"{file.path} has tensors but no header"
            raise ArtifactError(f"the manifest does not validate: {rule}")
        _check_plain(file)
        return
    if file.leaves:
        rule = f"{file.path} has leaves of its own beside those of its tensors"
        raise ArtifactError(f"the manifest does not validate: {rule}")
    size = file.header_size + sum(tensor.size for tensor in tensors)
    if size != file.size or file.header_size <= LENGTH_BYTES:
        rule = f"the sizes of {file.path} do not add up"
        raise ArtifactError(f"the manifest does not validate: {rule}")
    if file_digest(file.size, file.header, (t.digest for t in tensors)) != file.digest:
        rule = f"the manifest's digest of {file.path} is not that of its parts"
        raise RootMismatch(rule, tensors=(file.path,))


def _check_plain(file: FileRecord) -> None:
    """Check a plain file's digest against its leaves; one of one block has none but the digest."""
    count = merkle.leaf_count(file.size) if file.form == "blocks" else 0
    if len(file.leaves) != count * merkle.DIGEST_BYTES:
        rule = f"{file.path} has the wrong number of leaves"
        raise ArtifactError(f"the manifest does not validate: {rule}")
    if count and plain_digest(file.size, file.leaves) != file.digest:
        rule = f"the manifest's digest of {file.path} is not that of its leaves"
        raise RootMismatch(rule, tensors=(file.path,))
