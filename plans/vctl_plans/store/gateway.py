"""Reads without gRPC, for commands that must start fast: etcd's JSON gateway, the standard library.

`import grpc` and etcd's messages cost 150 ms before the first byte is sent; this costs a fraction.
Reads only, synchronous, one connection. Writes, watches and leases are `etcd.EtcdStore`'s.

The gateway does not take a certificate's name for a user (etcd#17025), and it can be switched off.
Then `GatewayUnsuitable` is raised, and the caller reads over gRPC instead.
"""

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from vctl_plans.errors import Rejected, StoreError, StoreUnavailable
from vctl_plans.store.gateway_http import GatewayHttp, GatewayUnsuitable
from vctl_plans.store.limits import check_key
from vctl_plans.store.port import KeyValue, Listing
from vctl_plans.store.ranges import decode_key, encode_key, key_after, prefix_range
from vctl_plans.store.refusals import asked, explained
from vctl_plans.store.settings import StoreSettings

if TYPE_CHECKING:
    from vctl_plans.etcdhealth import EtcdMember  # costs what only reads 5 ms

__all__ = ["GatewayReader", "GatewayUnsuitable"]

_RANGE = "/v3/kv/range"
_STATUS = "/v3/maintenance/status"
_AUTH_STATUS = "/v3/auth/status"
_USER = "/v3/auth/user/get"
_SUPERUSER = "root"
_PAGE_SIZE = 500
_LISTINGS_PER_CALL = 5


class GatewayReader:
    """Reads keys over HTTP; a context manager that closes its connection.

    All methods raise `StoreUnavailable` (no endpoint answered in time; all are named),
    `GatewayUnsuitable` (read over gRPC instead) and `Rejected` (the server said no).

    Args:
        settings: Endpoints, certificates, user, time limit.
        budget_s: Seconds for all attempts of one request; the settings' own if not given.
    """

    def __init__(self, settings: StoreSettings, *, budget_s: float | None = None) -> None:
        self._name = ",".join(settings.endpoints)
        self._settings = settings
        self._http = GatewayHttp(settings, settings.budget_s if budget_s is None else budget_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, key: str) -> KeyValue | None:
        """Read one key, linearizably."""
        check_key(key)
        answer = self._read(encode_key(key), b"")
        found = answer.get("kvs", [])
        return _key_value(found[0]) if found else None

    def list(self, prefix: str) -> Listing:
        """Read all keys under *prefix* at one revision, in pages."""
        for _ in range(_LISTINGS_PER_CALL):
            try:
                return self._list_once(prefix)
            except Rejected as error:
                if "compacted" not in error.message:
                    raise
        raise StoreUnavailable(f"etcd compacts faster than {prefix} can be listed")

    def names(self, prefix: str, *, most: int) -> tuple[str, ...]:
        """Read the first keys under *prefix*, without their values."""
        start, end = prefix_range(prefix)
        found = self._read(start, end, limit=most, keys_only=True).get("kvs", [])
        return tuple(decode_key(base64.b64decode(raw["key"])) for raw in found)

    def status(self, now: Callable[[], float]) -> "EtcdMember":
        """Ask a member how it is; of several endpoints, whichever answers.

        Args:
            now: The asker's clock, in seconds since the epoch. It is told beside the member's, and
                decides nothing.
        """
        from vctl_plans.etcdhealth import EtcdMember  # noqa: PLC0415  see above

        asked_at = now()
        told = self._http.ask(_STATUS, {})
        ahead_s = self._http.clock_ahead_s(asked_at, now())
        return EtcdMember(
            endpoint=self._name,
            version=str(told.get("version", "")),
            size_bytes=int(told.get("dbSize", 0)),
            quota_bytes=int(told.get("dbSizeQuota", 0)),
            has_leader=bool(int(told.get("leader", 0))),
            alarms=tuple(str(each) for each in told.get("errors", ())),
            clock_ahead_s=ahead_s,
            revision=int(told.get("header", {}).get("revision", 0)),
            has_compacted=self._has_compacted(),
            has_users=self._has_users(),
            is_superuser=self._is_superuser(),
        )

    def _has_compacted(self) -> bool | None:
        """Whether the first revision is forgotten; None where this user may not ask."""
        try:
            self._http.ask(_RANGE, {"key": _base64(b"vctl"), "revision": 1})
        except Rejected as error:
            return True if error.code == "OUT_OF_RANGE" else None
        except StoreError:
            return None
        return False

    def _has_users(self) -> bool | None:
        """Whether authentication is on; None where the version does not tell."""
        try:
            return bool(self._http.ask(_AUTH_STATUS, {}).get("enabled"))
        except Rejected:
            return True  # only where it is on is anything refused
        except StoreError:
            return None

    def _is_superuser(self) -> bool | None:
        """Whether our user has etcd's role root: each may ask for their own roles."""
        if not self._settings.user:
            return None
        try:
            told = self._http.ask(_USER, {"name": self._settings.user})
        except StoreError:
            return None
        return _SUPERUSER in told.get("roles", ())

    def close(self) -> None:
        """Close the connection; the next read opens a new one."""
        self._http.close()

    def _read(self, start: bytes, end: bytes, **more: object) -> dict[str, Any]:
        request = {"key": _base64(start), "range_end": _base64(end), **more}
        try:
            return self._http.ask(_RANGE, request)
        except Rejected as error:
            raise explained(error, self._settings, reads=[asked(start, end)]) from error

    def _list_once(self, prefix: str) -> Listing:
        start, end = prefix_range(prefix)
        revision = 0
        entries: list[KeyValue] = []
        while True:
            answer = self._read(start, end, limit=_PAGE_SIZE, revision=revision)
            revision = revision or int(answer["header"]["revision"])
            entries.extend(_key_value(raw) for raw in answer.get("kvs", []))
            if not answer.get("more"):
                return Listing(revision, tuple(entries))
            start = key_after(encode_key(entries[-1].key))


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _key_value(raw: dict[str, Any]) -> KeyValue:
    """Read a key; the gateway leaves out what is empty, and writes 64-bit numbers as text."""
    return KeyValue(
        key=decode_key(base64.b64decode(raw["key"])),
        value=base64.b64decode(raw.get("value", "")),
        create_revision=int(raw["create_revision"]),
        mod_revision=int(raw["mod_revision"]),
        version=int(raw["version"]),
        lease_id=int(raw.get("lease", 0)),
    )
