"""Safetensors headers, read more strictly than the reference parser does.

What is accepted covers every byte of the file exactly once: the header, then the tensors one after
another without holes, overlaps or a tail. That is what lets header and leaves stand for the whole
file (`merkle.file_digest`). Rules and their sources: the format's README, and the cases where real
loaders went wrong (duplicate names, truncated shards, overflowing shapes).

The order of names in the header is free, as in the reference: tensors are kept in the order of
their data.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from vctl_plans.errors import MalformedWeights

from .grammar import MAX_INTEGER, Cursor
from .sniff import foreign_kind

DTYPE_BITS: Final = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
LENGTH_BYTES: Final = 8
MAX_HEADER_BYTES: Final = 25_000_000
FORMAT_MAX_HEADER_BYTES: Final = 100_000_000
SUFFIX: Final = ".safetensors"

_METADATA: Final = "__metadata__"
_OLD_EMPTY: Final = b'{},"__metadata__"'
_FIELDS: Final = frozenset({"dtype", "shape", "data_offsets"})
_BITS_PER_BYTE: Final = 8
# What every writer known to us writes; read five times as fast as by `members` and `_entry`.
_INTEGER = "(?:0|[1-9][0-9]{0,17})"
_USUAL_MEMBER = re.compile(
    r'[ \t\n\r]*"(?!__metadata__")([^"\\\x00-\x1f\x7f-\x9f]{1,4096})": ?'
    rf'\{{"dtype": ?"({"|".join(DTYPE_BITS)})", ?'
    rf'"shape": ?\[((?:{_INTEGER}(?:, ?{_INTEGER}){{0,15}})?)\], ?'
    rf'"data_offsets": ?\[({_INTEGER}), ?({_INTEGER})\]\}}(?:,|(?=\}}))'
)


class Tensor(NamedTuple):
    """One tensor of a file.

    Args:
        name: Its key in the header.
        dtype: A key of `DTYPE_BITS`.
        shape: Each dimension from 0 to 2**63 - 1.
        begin: Its first byte, from the file's start.
        end: The byte after its last one.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file's first bytes say; checked against the file's size.

    Args:
        size_bytes: Of the header with its 8 length bytes: where the data begins.
        tensors: In the order of their data.
        metadata: ``__metadata__``; empty when absent or null.
    """

    size_bytes: int
    tensors: tuple[Tensor, ...]
    metadata: dict[str, str] = field(default_factory=dict)


def header_size(
    start: bytes, file_size: int, *, path: str, max_header_bytes: int = MAX_HEADER_BYTES
) -> int:
    """Judge a file's beginning before its header is read.

    Args:
        start: The file's first bytes, 512 of them if it has as many.
        file_size: In bytes.
        path: The file, for errors.
        max_header_bytes: The longest header accepted; the format's own limit is 100 MB.

    Returns:
        How many bytes length and header take together.

    Raises:
        MalformedWeights: The length is impossible, or the file is of another kind, which is named.
    """
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    limit = min(max_header_bytes, FORMAT_MAX_HEADER_BYTES)
    offset, hint = 0, ""
    if len(start) < LENGTH_BYTES:
        rule = f"a file of {file_size} bytes is too short for a header's length"
    elif length == 0:
        rule = "the header's length is 0"
    elif length > file_size - LENGTH_BYTES:
        rule = f"the header's length {length} is more than the file holds ({file_size} bytes)"
    elif length > limit:
        rule = f"the header's length {length} is over the limit of {limit} bytes"
        hint = "raise the limit if the file is trusted; the format ends at 100 MB"
    elif start[LENGTH_BYTES : LENGTH_BYTES + 1] != b"{":
        rule, offset = "the header does not begin with '{'", LENGTH_BYTES
    else:
        return LENGTH_BYTES + length
    kind = foreign_kind(start)
    if kind:
        rule, hint = f"not safetensors but {kind} ({rule})", ""
    raise MalformedWeights(rule, path=path, offset=offset, hint=hint)


def parse_header(raw: bytes, file_size: int, *, path: str) -> Header:
    """Read a header and check it against the size of its file.

    Args:
        raw: The file's beginning, as long as `header_size` said.
        file_size: In bytes.
        path: The file, for errors.

    Raises:
        MalformedWeights: A rule is broken; its offset is the byte where.
    """
    cursor = Cursor(raw[LENGTH_BYTES:], path=path, base=LENGTH_BYTES)
    tensors: list[Tensor] = []
    metadata: dict[str, str] = {}
    forms: dict[str, str] = {}
    for name, at, usual in cursor.members_by(_USUAL_MEMBER, "in the header"):
        if name == _METADATA:
            metadata = _metadata(cursor)
            continue
        form = name if name.isascii() else unicodedata.normalize("NFC", name)
        twin = forms.setdefault(form, name)
        if twin != name:
            raise cursor.refusal(f"{name!a} is {twin!a} in another Unicode form", at)
        parts = _usual_parts(usual) if usual else _entry(cursor, cursor.fit_name(name, at), at)
        tensors.append(_tensor(cursor, name, parts, at=at, data_begin=len(raw)))
    if not tensors and raw[LENGTH_BYTES:].startswith(_OLD_EMPTY):
        hint = "safetensors up to 0.4.3 wrote files without tensors so: write it again"
        rule = "only spaces may follow the header's object"
        raise MalformedWeights(rule, path=path, offset=LENGTH_BYTES + 2, hint=hint)
    cursor.expect_end()
    ordered = sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end))
    _check_cover(ordered, len(raw), file_size, path)
    return Header(len(raw), tuple(ordered), metadata)


def tensor_bits(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Multiply out a tensor's size in bits; None when no file could be as large."""
    if 0 in shape:
        return 0
    bits = DTYPE_BITS[dtype]
    for dim in shape:
        bits *= dim
        if bits > MAX_INTEGER * _BITS_PER_BYTE:
            return None
    return bits


def _metadata(cursor: Cursor) -> dict[str, str]:
    if cursor.take_null():
        return {}
    where = "in __metadata__"
    return {key: cursor.string(where) for key, _ in cursor.members(where)}


_Parts = tuple[str, tuple[int, ...], tuple[int, ...]]  # dtype, shape, data_offsets


def _tensor(cursor: Cursor, name: str, parts: _Parts, *, at: int, data_begin: int) -> Tensor:
    dtype, shape, offsets = parts
    rule = _offsets_rule(offsets) or _size_rule(dtype, shape, offsets[1] - offsets[0])
    if rule:
        raise cursor.refusal(f"{rule} in the entry of {name!r}", at)
    begin, end = offsets
    return Tensor(name, dtype, shape, data_begin + begin, data_begin + end)


def _usual_parts(found: re.Match[str]) -> _Parts:
    _, dtype, shape, begin, end = found.groups()
    return dtype, tuple(map(int, shape.split(","))) if shape else (), (int(begin), int(end))


def _entry(cursor: Cursor, name: str, at: int) -> _Parts:
    """Read an entry in whatever order and spacing: dtype, shape, data_offsets."""
    where = f"in the entry of {name!r}"
    dtype = ""
    shape: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    absent = set(_FIELDS)
    for key, key_at in cursor.members(where):
        if key == "dtype":
            dtype = cursor.string(where)
            if dtype not in DTYPE_BITS:
                raise cursor.refusal(f"unknown dtype {dtype!r} {where}", key_at)
        elif key == "shape":
            shape = cursor.integers(where)
        elif key == "data_offsets":
            offsets = cursor.integers(where)
        else:
            raise cursor.refusal(f"unknown key {key!r} {where}", key_at)
        absent.discard(key)
    if absent:
        raise cursor.refusal(f"no {min(absent)!r} {where}", at)
    return dtype, shape, offsets


def _offsets_rule(offsets: tuple[int, ...]) -> str:
    match offsets:
        case (begin, end):
            return "data_offsets run backwards" if begin > end else ""
        case _:
            return f"data_offsets must be two numbers, not {len(offsets)},"


def _size_rule(dtype: str, shape: tuple[int, ...], size_bytes: int) -> str:
    """Say what is wrong with a size; empty when dtype, shape and byte range agree."""
    bits = tensor_bits(dtype, shape)
    if bits is None:
        return "the shape overflows"
    if bits % _BITS_PER_BYTE:
        return f"{bits} bits of {dtype} do not fill whole bytes"
    if bits // _BITS_PER_BYTE != size_bytes:
        return (
            f"dtype and shape need {bits // _BITS_PER_BYTE} bytes, data_offsets give {size_bytes}"
        )
    return ""


def _check_cover(ordered: list[Tensor], data_begin: int, file_size: int, path: str) -> None:
    """Require that the tensors follow one another from the header's end to the file's end."""
    at = data_begin
    for tensor in ordered:
        if tensor.begin > at:
            rule = f"a hole of {tensor.begin - at} bytes before the tensor {tensor.name!r}"
            raise MalformedWeights(rule, path=path, offset=at)
        if tensor.begin < at:
            rule = f"the tensor {tensor.name!r} overlaps the one before it"
            raise MalformedWeights(rule, path=path, offset=tensor.begin)
        at = tensor.end
        if at > file_size:
            rule = (
                f"truncated: the tensor {tensor.name!r} ends at byte {at} of a file of {file_size}"
            )
            raise MalformedWeights(rule, path=path, offset=file_size)
    if at < file_size:
        rule = f"{file_size - at} trailing bytes after the last tensor"
        raise MalformedWeights(rule, path=path, offset=at)
