"""Weights and other artifacts: their manifests, their roots, and what differs.

    scan(path) -> Manifest               read, check and hash a directory or a file
    verify(path, root | manifest)        ... and compare; RootMismatch names what differs
    diff(expected, actual)               two manifests: tensors, blocks, byte ranges
    adapter_facts(path)                  rank, alpha, targets, base; checked against the tensors
    encode, decode, load, save           a manifest as canonical JSON; reading it checks its digests
    manifest_path(source)                `v8.vctl.json` beside `v8/`

All raise `ArtifactError` or one of its kinds, and nothing else, for whatever bytes they are given:
`MalformedWeights` for a broken format, `NotAllowed` for a file that may not be there,
`RootMismatch` for the wrong bytes, `ArtifactError` itself for what can't be read or changed
meanwhile. Nothing here imports torch or the safetensors library, or executes anything that it
reads.
"""

from .adapter import AdapterFacts
from .diff import Difference, diff
from .manifest import (
    FileRecord,
    LeftOut,
    Manifest,
    TensorRecord,
    decode,
    encode,
    load,
    manifest_path,
    save,
)
from .merkle import LEAF_BYTES
from .safetensors import MAX_HEADER_BYTES
from .scan import Progress, adapter_facts, scan
from .selection import MANIFEST_SUFFIX, Kind
from .verify import verify

__all__ = [
    "LEAF_BYTES",
    "MANIFEST_SUFFIX",
    "MAX_HEADER_BYTES",
    "AdapterFacts",
    "Difference",
    "FileRecord",
    "Kind",
    "LeftOut",
    "Manifest",
    "Progress",
    "TensorRecord",
    "adapter_facts",
    "decode",
    "diff",
    "encode",
    "load",
    "manifest_path",
    "save",
    "scan",
    "verify",
]
