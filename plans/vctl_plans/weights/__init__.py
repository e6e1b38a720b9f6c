"""Weights and other artifacts: their manifests, their roots, and what differs.

    scan(path) -> Manifest               read, check and hash a directory or a file
    verify(path, root | manifest)        ... and compare; RootMismatch names what differs
    diff(expected, actual)               two manifests: tensors, blocks, byte ranges
    prove(manifest, name), verify_tensor one tensor alone, with its proof of inclusion
    read_template(path)                  what of a prompt the gateway applies to chats
    adapter_facts(path)                  rank, alpha, targets, base; checked against the tensors
    stated_facts(manifest, config)       the same, where the tensors are elsewhere
    encode, decode, load, save           a manifest as canonical JSON; reading it checks its digests
    manifest_path(source)                `v8/vctl.manifest.json`, or beside a single file
    blocks(manifest)                     the byte ranges that can be checked alone
    select_paths(paths, kind)            which of a listing is the artifact
    Verified(folder)                     digests of files that were verified, by their stamps

Modules of their own, as not everybody needs what they import: `b3sum` (digests of whole files),
`change` (how much numbers changed), `ulp` (numeric comparison).

All raise `ArtifactError` or one of its kinds, and nothing else, for whatever bytes they are given:
`MalformedWeights` for a broken format, `NotAllowed` for a file that may not be there,
`RootMismatch` for the wrong bytes, `FileChanged` for what did not hold still, `ArtifactError`
itself for what can't be read. Nothing here imports torch or the safetensors library, or executes
anything that it reads.
"""

from .adapter import AdapterFacts
from .blocks import Block, blocks
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
from .prompt import PROMPT_FILE, has_template, read_template
from .proof import Inclusion, TensorProof, prove, verify_tensor
from .safetensors import FORMAT_MAX_HEADER_BYTES, MAX_HEADER_BYTES
from .scan import Note, Progress, scan
from .selection import KIND_OF, MANIFEST_NAME, MANIFEST_SUFFIX, Kind, select_paths
from .stated import stated_facts
from .survey import adapter_facts
from .verified import Verified
from .verify import verify

__all__ = [
    "FORMAT_MAX_HEADER_BYTES",
    "KIND_OF",
    "LEAF_BYTES",
    "MANIFEST_NAME",
    "MANIFEST_SUFFIX",
    "MAX_HEADER_BYTES",
    "PROMPT_FILE",
    "AdapterFacts",
    "Block",
    "Difference",
    "FileRecord",
    "Inclusion",
    "Kind",
    "LeftOut",
    "Manifest",
    "Note",
    "Progress",
    "TensorProof",
    "TensorRecord",
    "Verified",
    "adapter_facts",
    "blocks",
    "decode",
    "diff",
    "encode",
    "has_template",
    "load",
    "manifest_path",
    "prove",
    "read_template",
    "save",
    "scan",
    "select_paths",
    "stated_facts",
    "verify",
    "verify_tensor",
]
