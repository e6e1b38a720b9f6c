"""What is fuzzed: each target takes any bytes, says if it took them, and raises only for a bug.

A refusal (`ArtifactError`) is swallowed; whatever else is raised passes through. What a reader
accepts is checked again by other means: the reference parser, or the reader's own writer.
"""

import json
from collections.abc import Callable

import safetensors

from vctl_plans import weights
from vctl_plans.errors import ArtifactError
from vctl_plans.weights.adapter import facts
from vctl_plans.weights.safetensors import Header, header_size, parse_header
from vctl_plans.weights.shards import parse_index
from vctl_plans.weights.sniff import SNIFF_BYTES

_LENGTH_BYTES = 8
_TAIL_BYTES = 2  # of a target's input: how long the data after a header is


def header(data: bytes) -> bool:
    """Read a file: as it is, or as a header to which length and data are added."""
    is_file = _is_header(data)
    text = data[_TAIL_BYTES:]
    tail = bytes(int.from_bytes(data[:_TAIL_BYTES], "little"))
    return _is_header(len(text).to_bytes(_LENGTH_BYTES, "little") + text + tail) or is_file


def index(data: bytes) -> bool:
    """Read a `model.safetensors.index.json`; compare what is accepted with Python's own reader."""
    try:
        found = parse_index(data, path="index")
    except ArtifactError:
        return False
    assert found.weight_map == json.loads(data)["weight_map"]
    return True


def manifest(data: bytes) -> bool:
    """Read a manifest; one that is accepted must come back from its canonical document."""
    try:
        found = weights.decode(data)
    except ArtifactError:
        return False
    assert found == weights.decode(weights.encode(found), root=found.root)
    assert weights.diff(found, found) == ()
    return True


def adapter_config(data: bytes) -> bool:
    """Read an `adapter_config.json` beside tensors of rank 4."""
    try:
        found = facts(data, _ADAPTER, config_path="config", weights_path="weights")
    except ArtifactError:
        return False
    assert found.rank == json.loads(data)["r"]
    return True


TARGETS: dict[str, Callable[[bytes], bool]] = {
    "header": header,
    "index": index,
    "manifest": manifest,
    "adapter_config": adapter_config,
}


def read_header(content: bytes) -> Header:
    """Read a whole file's header as a scan does."""
    size = header_size(content[:SNIFF_BYTES], len(content), path="w")
    return parse_header(content[:size], len(content), path="w")


def _is_header(content: bytes) -> bool:
    try:
        ours = read_header(content)
    except ArtifactError:
        return False
    theirs = dict(safetensors.deserialize(content))
    assert {tensor.name for tensor in ours.tensors} == theirs.keys()
    for tensor in ours.tensors:
        seen = theirs[tensor.name]
        assert (tensor.dtype, list(tensor.shape)) == (seen["dtype"], list(seen["shape"]))
        assert content[tensor.begin : tensor.end] == bytes(seen["data"])
    return True


def _adapter_header() -> Header:
    from tests.fuzz.seeds import ADAPTER_WEIGHTS

    return read_header(ADAPTER_WEIGHTS)


_ADAPTER = _adapter_header()
