"""A model in several files: the index and the shards must tell the same story, both ways.

A shard of another version, one that was never copied, or one that lies outside the directory has no
other sign than here: each shard alone is a good file.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from vctl_plans.errors import MalformedWeights, NotAllowed

from .files import Source
from .grammar import Cursor
from .safetensors import Header
from .selection import unsafe_path

MAX_INDEX_BYTES: Final = 25_000_000


class _Index(msgspec.Struct):
    """The one key that is read; its text is kept, for a strict reader."""

    weight_map: msgspec.Raw


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


def parse_index(raw: bytes, *, path: str) -> dict[str, str]:
    """Read an index's weight_map.

    Args:
        raw: The file's bytes.
        path: The index, for errors.

    Returns:
        The shard of each tensor; every shard is a plain name.

    Raises:
        MalformedWeights: Not such a file.
        NotAllowed: A shard is named outside the directory.
    """
    try:
        shards = msgspec.json.decode(raw, type=_Index).weight_map
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedWeights(f"does not validate: {error}", path=path) from error
    text = bytes(shards)
    cursor = Cursor(text, path=path, base=raw.index(text))
    where = "in weight_map"
    index: dict[str, str] = {}
    for name, at in cursor.members(where):
        shard = cursor.string(where)
        if "/" in shard or unsafe_path(shard):
            raise NotAllowed(f"{path}: the shard {shard!a} of {name!a} is not a plain file name")
        index[cursor.fit_name(name, at)] = shard
    return index


def check_index(index: Mapping[str, str], headers: Mapping[str, Header], *, path: str) -> None:
    """Check an index against the shards, both ways.

    Args:
        index: The shard of each tensor.
        headers: Every safetensors file of the directory, by name.
        path: The index, for errors.

    Raises:
        MalformedWeights: A shard or a tensor is missing, extra, or elsewhere; the first is named.
    """
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
