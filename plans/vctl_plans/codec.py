"""How a value is written in etcd: JSON with a schema number, unknown fields kept on a rewrite.

A newer vctl may add fields; an older one that rewrites the value must hand them on. So a rewrite
takes the bytes that it replaces.
"""

import functools
from typing import Any, TypeVar

import msgspec
from blake3 import blake3

from vctl_plans.errors import VctlError

SCHEMA = 1
"""The highest schema number that this code reads and writes."""

T = TypeVar("T", bound=msgspec.Struct)


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every value in etcd has."""

    v: int = SCHEMA


def encode(value: msgspec.Struct, *, over: bytes = b"") -> bytes:
    """Return canonical JSON: sorted keys, no spaces, the schema number always written.

    Args:
        value: The struct to write.
        over: The value that it replaces; its fields that *value*'s type does not know are kept.

    Raises:
        VctlError: *over* is not a JSON object, so what it holds cannot be handed on.
    """
    document: dict[str, Any] = msgspec.to_builtins(value, str_keys=True)
    if isinstance(value, Value):
        document["v"] = value.v  # a reader's own default is its newest schema, not the writer's
    if over:
        known = _fields(type(value))
        document = {k: x for k, x in _object(over).items() if k not in known} | document
    return msgspec.json.encode(document, order="sorted")


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset({field.encode_name for field in msgspec.structs.fields(kind)} | {"v"})


def _object(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as cause:
        raise VctlError(
            f"what is to be replaced cannot be read: {cause}", hint="see what wrote it"
        ) from cause


def decode(data: bytes, kind: type[T], *, key: str = "") -> T:
    """Return *data* as a *kind*; unknown fields are ignored.

    Raises:
        VctlError: The value is not what the schema says; *key* is named.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as cause:
        where = f" at {key}" if key else ""
        raise VctlError(
            f"unreadable {kind.__name__}{where}: {cause}",
            hint="another program, or a newer vctl, wrote it",
        ) from cause


def digest(value: msgspec.Struct, *, context: str) -> str:
    """Return ``b3:<64 hex>`` over the canonical JSON, under its own BLAKE3 key derivation context.

    A context for each kind keeps a value of one kind from passing for another (BLAKE3 spec, 2.3).
    """
    hasher = blake3(encode(value), derive_key_context=f"vctl 2026 {context} v1")
    return f"b3:{hasher.hexdigest()}"
