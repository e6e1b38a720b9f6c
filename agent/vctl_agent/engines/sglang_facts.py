"""What an SGLang server says of itself, and what vctl makes of that. Pure.

Read in SGLang 0.5.23; what an older one does not tell is not counted as there. Of several replicas
(``--dp-size``) or attention groups only the first one's word about a flush is passed on, so nothing
that must be confirmed is declared for them: give each replica a server, and a node, of its own.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from vctl_plans.capability import Capability, EngineFacts, Lack

_FEWEST_SLOTS = 3
"""One for requests of the base, which counts as an adapter, and two for a switch's versions."""

_CHANGING = "vctl-changing/"
_TOWARDS = " -> "
_SETTLED = "vctl-base/"

UNFINISHED = "/unfinished"
"""Stands for the directory of a base that is neither the old one nor, for certain, the new one."""


class ServerInfo(msgspec.Struct, kw_only=True):
    """GET /server_info: the settings that it was started with, and how its start went."""

    model_path: str
    version: str = ""
    random_seed: int | None = None  # drawn at each start, unless it was given
    startup_time: Any = None  # seconds that each part of the start took
    enable_lora: bool | None = None
    max_loras_per_batch: int = 8
    max_loaded_loras: int | None = None
    max_lora_rank: int | None = None
    dp_size: int = 1
    attn_dp_size: int = 1
    enable_dp_attention: bool = False
    tokenizer_worker_num: int = 1
    hicache_storage_backend: str | None = None
    enable_cache_report: bool = False

    @property
    def start(self) -> str:
        """What tells one start from another.

        It names no process, so this is made of what differs by chance: the seed and the measured
        times of the start. With ``--random-seed`` on a version that tells no times, all starts look
        alike; then only the adapters that are gone show that there was one.
        """
        return _digest([self.random_seed, self.startup_time])

    @property
    def ranks(self) -> int:
        """How many replicas and attention groups there are, whose caches are apart."""
        attention = self.dp_size if self.enable_dp_attention else 1
        return max(self.dp_size * self.attn_dp_size, attention)


class ModelInfo(msgspec.Struct, kw_only=True):
    """GET /model_info: the base as it is now."""

    model_path: str
    served_model_name: str
    weight_version: str | None = None

    @property
    def is_changing(self) -> bool:
        """Whether a change of the base began and was not finished."""
        return (self.weight_version or "").startswith(_CHANGING)

    @property
    def settled_version(self) -> str:
        """The weights' version, or the one before the change that is under way."""
        version = self.weight_version or ""
        if not self.is_changing:
            return version
        return version.removeprefix(_CHANGING).partition(_TOWARDS)[0]


class Doors(msgspec.Struct, frozen=True, kw_only=True):
    """What answers, as it was tried."""

    is_open: bool | None  # its administration, to our key; None: there is none
    has_salt: bool  # requests may have a cache salt
    has_loads: bool


def changing(model: ModelInfo, *, towards: str = "") -> str:
    """Return the weights' version that stands while the base changes; the run stays the same.

    Args:
        model: What was there.
        towards: The version that it becomes, once the weights are there.
    """
    return _CHANGING + model.settled_version + (_TOWARDS + towards if towards else "")


def settled(token: str) -> str:
    """Return the weights' version of a change that is done."""
    return _SETTLED + token


def incarnation(server: ServerInfo, model: ModelInfo) -> str:
    """Return what changes with each start and with each base that vctl has put there."""
    return _digest([server.start, model.settled_version])


def facts(server: ServerInfo, model: ModelInfo, doors: Doors) -> EngineFacts:
    """Return what it can do, and what would let it do the rest."""
    lacks = tuple(_lacks(server, doors))
    lacking = {lack.capability for lack in lacks}
    return EngineFacts(
        kind="sglang",
        version=server.version,
        base=model.served_model_name,
        capabilities=tuple(each for each in Capability if each not in lacking),
        lacks=lacks,
        max_adapters=max(0, server.max_loras_per_batch - 1) if server.enable_lora else 0,
        max_resident=server.max_loaded_loras,
        max_rank=server.max_lora_rank,
    )


def _lacks(server: ServerInfo, doors: Doors) -> Iterator[Lack]:
    admin = _admin(doors)
    yield from _without(Capability.ADAPTERS, admin, _adapter_flags(server))
    if doors.has_loads:
        yield from _without(Capability.SWAP_BASE, admin, _cache_flags(server))
    else:  # nobody can tell when the last request of the old base has ended
        yield Lack(capability=Capability.SWAP_BASE)
    yield from _without(Capability.FLUSH, admin, _cache_flags(server))
    # An unloaded name is loaded again, from its old directory, by the next request for it.
    yield Lack(capability=Capability.REPLACE)
    if not doors.has_salt:
        yield Lack(capability=Capability.CACHE_SALT)
    if not server.enable_cache_report:
        yield Lack(capability=Capability.CACHED_TOKENS, remedy="--enable-cache-report")
    if not doors.has_loads:
        yield Lack(capability=Capability.LOAD)


def _without(capability: Capability, admin: Lack | None, flags: list[str]) -> Iterator[Lack]:
    if flags:
        yield Lack(capability=capability, remedy=" ".join(flags))
    elif admin:
        yield msgspec.structs.replace(admin, capability=capability)


def _admin(doors: Doors) -> Lack | None:
    if doors.is_open:
        return None
    if doors.is_open is None:
        return Lack(capability=Capability.ADAPTERS)
    remedy = "give vctl-agent the key: --engine-admin-key-file, or --engine-key-file"
    return Lack(capability=Capability.ADAPTERS, remedy=remedy, needs_restart=False)


def _adapter_flags(server: ServerInfo) -> list[str]:
    flags = _single_flags(server)
    if not server.enable_lora:
        flags += ["--enable-lora", "--max-lora-rank 64", "--lora-target-modules all"]
    if server.max_loras_per_batch < _FEWEST_SLOTS:
        flags += [f"--max-loras-per-batch {_FEWEST_SLOTS}"]
    return flags


def _cache_flags(server: ServerInfo) -> list[str]:
    flags = _single_flags(server)
    if server.hicache_storage_backend:  # it is not dropped with the rest, and others may share it
        flags += ["no --hicache-storage-backend"]
    return flags


def _single_flags(server: ServerInfo) -> list[str]:
    """Return what makes it one server with one cache and one list of adapters."""
    flags = []
    if server.ranks > 1:
        flags += ["--dp-size 1"]
    if server.tokenizer_worker_num > 1:  # each has a list of adapters of its own
        flags += ["--tokenizer-worker-num 1"]
    return flags


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:32]
