"""What is fuzzed: each target takes any bytes and raises nothing but for a bug.

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


def header(data: bytes) -> None:
    """Read a file: as it is, or as a header to which length and data are added."""
    _check_header(data)
    text = data[_TAIL_BYTES:]
    tail = bytes(int.from_bytes(data[:_TAIL_BYTES], "little"))
    _check_header(len(text).to_bytes(_LENGTH_BYTES, "little") + text + tail)


def index(data: bytes) -> None:
    """Read a `model.safetensors.index.json`; compare what is accepted with Python's own reader."""
    try:
        found = parse_index(data, path="index")
    except ArtifactError:
        return
    assert found.weight_map == json.loads(data)["weight_map"]


def manifest(data: bytes) -> None:
    """Read a manifest; one that is accepted must come back from its canonical document."""
    try:
        found = weights.decode(data)
    except ArtifactError:
        return
    assert found == weights.decode(weights.encode(found), root=found.root)
    assert weights.diff(found, found) == ()


def adapter_config(data: bytes) -> None:
    """Read an `adapter_config.json` beside tensors of rank 4."""
    try:
        found = facts(data, _ADAPTER, config_path="config", weights_path="weights")
    except ArtifactError:
        return
    assert found.rank == json.loads(data)["r"]


TARGETS: dict[str, Callable[[bytes], None]] = {
    "header": header,
    "index": index,
    "manifest": manifest,
    "adapter_config": adapter_config,
}


def read_header(content: bytes) -> Header:
    """Read a whole file's header as a scan does."""
    size = header_size(content[:SNIFF_BYTES], len(content), path="w")
    return parse_header(content[:size], len(content), path="w")


def _check_header(content: bytes) -> None:
    try:
        ours = read_header(content)
    except ArtifactError:
        return
    theirs = dict(safetensors.deserialize(content))
    assert {tensor.name for tensor in ours.tensors} == theirs.keys()
    for tensor in ours.tensors:
        seen = theirs[tensor.name]
        assert (tensor.dtype, list(tensor.shape)) == (seen["dtype"], list(seen["shape"]))
        assert content[tensor.begin : tensor.end] == bytes(seen["data"])


def _adapter_header() -> Header:
    from tests.fuzz.seeds import ADAPTER_WEIGHTS

    return read_header(ADAPTER_WEIGHTS)


_ADAPTER = _adapter_header()
