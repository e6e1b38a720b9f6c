"""What is told of a refusal by etcd: who asked for what, and the command that mends it.

etcd says "permission denied" and no more. Which user, and which keys, only the asker knows.
"""

from collections.abc import Iterable, Mapping

from vctl_plans.errors import Rejected
from vctl_plans.store.ranges import decode_key, prefix_range
from vctl_plans.store.settings import StoreSettings

_WRONG_PASSWORD = "invalid user ID or password"  # noqa: S105  etcd's words
_NAMED = 3
_ROLES = "what each kind of user needs: vctl config init-auth"


def explained(
    error: Rejected,
    settings: StoreSettings,
    *,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
) -> Rejected:
    """Return *error* with what a person needs to mend it.

    Args:
        error: As the server's answer was translated.
        settings: Who asked.
        reads: What was to be read: a key, or a prefix that ends in ``*``.
        writes: Keys that were to be written.
    """
    if _WRONG_PASSWORD in error.message:
        return Rejected(
            f"etcd does not know user {settings.user!r}, or the password is wrong",
            code=error.code,
            hint="set ETCDCTL_USER=user:password, or VCTL_USER and VCTL_PASSWORD",
        )
    if error.code != "PERMISSION_DENIED":
        return error
    wishes = [("read", each) for each in reads] + [("write", each) for each in writes]
    said = " and ".join(
        f"{verb} {_listed([each for of, each in wishes if of == verb])}"
        for verb in dict.fromkeys(verb for verb, _ in wishes)
    )
    grants = dict.fromkeys(_grant(verb, each) for verb, each in wishes)
    return Rejected(
        f"etcd does not let {_who(settings)} {said}".rstrip(),
        code=error.code,
        hint="\n  ".join([*list(grants)[:_NAMED], _ROLES]),
    )


def told(reasons: Mapping[str, str], settings: StoreSettings) -> str:
    """Return why each endpoint did not answer, and which there was no time to try."""
    urls = [endpoint.url for endpoint in settings.parsed_endpoints]
    return "; ".join(f"{url} ({reasons.get(url, 'not tried')})" for url in urls)


def asked(start: bytes, end: bytes) -> str:
    """Return a range as a person writes it: a key, or a prefix that ends in ``*``."""
    key = decode_key(start)
    return f"{key}*" if end and prefix_range(key)[1] == end else key


def _who(settings: StoreSettings) -> str:
    if settings.user:
        return f"user {settings.user!r}"
    return f"the user of {settings.cert_file}" if settings.cert_file else "a client without a user"


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(keys[:_NAMED]) + more


def _grant(verb: str, key: str) -> str:
    """Return the command that would allow it; the role's name is the reader's to fill in."""
    is_prefix = key.endswith("*")
    flag = "--prefix=true " if is_prefix else ""
    return f"etcdctl role grant-permission ROLE {flag}{verb} {key.removesuffix('*')}"
