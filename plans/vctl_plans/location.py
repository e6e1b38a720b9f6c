"""Where an artifact's bytes are: the URI of a source, checked before it is stored or followed.

    file:///mnt/models/v8                     a folder or one file on a mount that the nodes share
    https://models.example/v8                 the same on a web server; http:// too
    s3://bucket/models/v8                     below a prefix of a bucket
    hf://org/repo@revision/folder             in a repository of the Hugging Face Hub

A URI is shown in etcd, in logs and in reports, so none may hold a secret: what looks like one is
refused, in words that do not repeat it.
"""

from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from vctl_plans.errors import PlanError
from vctl_plans.names import suggestion

SCHEMES = ("file", "http", "https", "s3", "hf")

_HUB_PARTS = 2  # organisation and repository
_DATASETS = "datasets"


def checked(uri: str, *, field: str = "") -> SplitResult:
    """Return the parts of a source's URI.

    Args:
        uri: The URI.
        field: Where it stands in a plan, for errors.

    Raises:
        PlanError: It is no URI of a source, or may hold a secret.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as cause:
        raise PlanError("is not an address", path=field) from cause
    if parts.scheme not in SCHEMES:
        kinds = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        hint = suggestion(f"{parts.scheme}://", [f"{scheme}://" for scheme in SCHEMES])
        hint = hint if hint.startswith("did you mean") else ""
        raise PlanError(f"{shown(uri)} is none of {kinds}", path=field, hint=hint)
    rule = _secret(parts, uri) or _unclean(parts) or _misplaced(parts, port)
    if rule:
        raise PlanError(f"{shown(uri)} {rule}", path=field)
    return parts


def shown(uri: str) -> str:
    """Return a URI as it may be shown: without user, password, query and fragment."""
    before, separator, rest = uri.partition("://")
    if not separator:
        return uri.partition("?")[0]
    rest = rest.partition("?")[0].partition("#")[0]
    host, slash, path = rest.partition("/")
    return f"{before}://{host.rpartition('@')[2]}{slash}{path}"


def is_under(uri: str, prefix: str) -> bool:
    """Whether *uri* is *prefix* or lies below it; a part of a name is no prefix.

    ``https://models.example`` holds ``https://models.example/v8`` and not
    ``https://models.example.org``.
    """
    one, other = urlsplit(uri), urlsplit(prefix)
    if (one.scheme, one.netloc.lower()) != (other.scheme, other.netloc.lower()):
        return not other.netloc and not other.path and one.scheme == other.scheme
    base = unquote(other.path).rstrip("/")
    path = unquote(one.path)
    ends = (f"{base}/", f"{base}@") if one.scheme == "hf" else (f"{base}/",)
    return path.rstrip("/") == base or path.startswith(ends)


class Hub(NamedTuple):
    """What an `hf://` URI names."""

    kind: str  # model or dataset
    repository: str
    revision: str  # empty: the repository's main one
    folder: str  # empty: the whole repository


def hub_parts(parts: SplitResult) -> Hub:
    """Return what an `hf://` URI names; ``hf://datasets/org/name`` is a data set."""
    first, path = parts.netloc, parts.path.lstrip("/")
    kind = "dataset" if first == _DATASETS else "model"
    if kind == "dataset":
        first, _, path = path.partition("/")
    name, _, folder = path.partition("/")
    name, _, revision = name.partition("@")
    return Hub(kind, f"{first}/{name}", unquote(revision), unquote(folder).strip("/"))


def _secret(parts: SplitResult, uri: str) -> str:
    if "@" in parts.netloc:
        return "holds a user or a password: give it in a file (--source-token-file) or in netrc"
    if "?" in uri or "#" in uri:
        return "has a query or a fragment: a source is a plain place, and such may hold a secret"
    return ""


def _unclean(parts: SplitResult) -> str:
    path = unquote(parts.path)
    if any(part in {".", ".."} for part in path.split("/")):
        return "has a step . or .. in its path"
    if "\\" in path or not path.isprintable() or not parts.netloc.isprintable():
        return "holds a backslash, or a character that cannot be shown"
    return ""


def _misplaced(parts: SplitResult, port: int | None) -> str:
    if parts.scheme == "file":
        is_here = parts.netloc in {"", "localhost"} and parts.path.startswith("/")
        return "" if is_here else "names no absolute path, as in file:///mnt/models/v8"
    if not parts.hostname:
        return "names no host" if parts.scheme.startswith("http") else "names no bucket"
    if parts.scheme in {"s3", "hf"} and port is not None:
        return "has a port: the address of the service comes from the environment"
    if parts.scheme == "hf":
        repository = hub_parts(parts).repository.split("/")
        is_whole = len(repository) == _HUB_PARTS and all(repository)
        return "" if is_whole else "names no repository, as in hf://org/repo@revision"
    return ""
