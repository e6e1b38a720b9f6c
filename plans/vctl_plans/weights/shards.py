"""A model in several files: the index and the shards must tell the same story, both ways.

A shard of another version, one that was never copied, or one that lies outside the directory has no
other sign than here: each shard alone is a good file.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from vctl_plans.errors import MalformedWeights, NotAllowed

from .files import Source
from .grammar import Cursor
from .safetensors import Header
from .selection import unsafe_path

MAX_INDEX_BYTES: Final = 25_000_000


_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{1,9})-of-(?P<count>[0-9]{1,9})\.safetensors")


class Index(NamedTuple):
    """What an index says.

    Args:
        weight_map: The shard of each tensor; every shard is a plain name.
        total_size: Of all tensors in bytes; None when it does not say.
    """

    weight_map: dict[str, str]
    total_size: float | None


class _Totals(msgspec.Struct):
    total_size: int | float | None = None


class _Document(msgspec.Struct):
    """The keys that are read; all others pass."""

    weight_map: msgspec.Raw
    metadata: _Totals | None = None


def check_names(headers: Mapping[str, Header], source: Source) -> None:
    """Refuse a tensor name that two files share.

    Args:
        headers: By path.
        source: Where they are, for errors.

    Raises:
        MalformedWeights: The second file that has the name, and where its tensor begins.
    """
    homes: dict[str, str] = {}
    for path, header in headers.items():
        for tensor in header.tensors:
            home = homes.setdefault(tensor.name, path)
            if home != path:
                rule = f"the tensor {tensor.name!r} is also in {home}"
                raise MalformedWeights(rule, path=source.display(path), offset=tensor.begin)


def check_numbers(names: Iterable[str], source: Source) -> None:
    """Require that shards which count themselves (``-00002-of-00005``) are all there.

    Also where no index tells: without the last one each shard is still a good file.

    Args:
        names: Every safetensors file of the directory.
        source: Where they are, for errors.

    Raises:
        MalformedWeights: One is missing, or they do not agree on how many there are.
    """
    counts: dict[str, tuple[int, str]] = {}
    there: dict[str, set[int]] = {}
    for name in sorted(names):
        found = _NUMBERED.fullmatch(name)
        if not found:
            continue
        shown, number, count = source.display(name), int(found["number"]), int(found["count"])
        said, first = counts.setdefault(found["stem"], (count, name))
        if said != count or not 0 < number <= count:
            raise MalformedWeights(f"its number does not fit to {first}", path=shown)
        there.setdefault(found["stem"], set()).add(number)
    for stem, (count, first) in counts.items():
        if len(there[stem]) < count:
            absent = next(n for n in range(1, count + 1) if n not in there[stem])
            rule = f"{stem} has {len(there[stem])} of {count} shards: number {absent} is missing"
            raise MalformedWeights(rule, path=source.display(first))


def parse_index(raw: bytes, *, path: str) -> Index:
    """Read an index.

    Args:
        raw: The file's bytes.
        path: The index, for errors.

    Raises:
        MalformedWeights: Not such a file.
        NotAllowed: A shard is named outside the directory.
    """
    try:
        document = msgspec.json.decode(raw, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedWeights(f"does not validate: {error}", path=path) from error
    cursor = Cursor(raw, path=path, base=0)
    weight_map: dict[str, str] = {}
    for key, _ in cursor.members("in the index"):
        if key == "weight_map":
            weight_map = _weight_map(cursor, path)
        elif key == "metadata" and document.metadata is not None:
            for _ in cursor.members("in metadata"):
                cursor.skip_value()
        else:
            cursor.skip_value()
    return Index(weight_map, document.metadata.total_size if document.metadata else None)


def _weight_map(cursor: Cursor, path: str) -> dict[str, str]:
    where = "in weight_map"
    found: dict[str, str] = {}
    for name, at in cursor.members(where):
        shard = cursor.string(where)
        if "/" in shard or unsafe_path(shard):
            raise NotAllowed(f"{path}: the shard {shard!a} of {name!a} is not a plain file name")
        found[cursor.fit_name(name, at)] = shard
    return found


def check_index(index: Index, headers: Mapping[str, Header], *, path: str) -> None:
    """Check an index against the shards, both ways.

    Args:
        index: What it says.
        headers: Every safetensors file of the directory, by name.
        path: The index, for errors.

    Raises:
        MalformedWeights: A shard or a tensor is missing, extra, or elsewhere, or all of them have
            another size; the first is named.
    """
    _check_places(index.weight_map, headers, path=path)
    size = sum(t.end - t.begin for header in headers.values() for t in header.tensors)
    if index.total_size not in {None, size}:
        rule = f"total_size is {index.total_size}, the tensors have {size} bytes"
        raise MalformedWeights(rule, path=path, hint="write the index again")


def _check_places(index: Mapping[str, str], headers: Mapping[str, Header], *, path: str) -> None:
    real = {tensor.name: shard for shard, header in headers.items() for tensor in header.tensors}
    absent = sorted(set(index.values()) - set(headers))
    extra = sorted(set(headers) - set(index.values()))
    for shard in absent:
        raise MalformedWeights(f"the shard {shard} is missing", path=path)
    for shard in extra:
        hint = "move the file elsewhere, or write the index again"
        raise MalformedWeights(f"{shard} is not in the index", path=path, hint=hint)
    for name in sorted(index.keys() | real.keys()):
        said, found = index.get(name, "no shard"), real.get(name, "no shard")
        if said != found:
            rule = f"the tensor {name!r} is in {found}, the index says {said}"
            raise MalformedWeights(rule, path=path)
