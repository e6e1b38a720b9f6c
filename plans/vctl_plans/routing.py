"""Which release a request gets: pure, so that every gateway decides alike (DESIGN section 8)."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from blake3 import blake3

from vctl_plans.groups import Caller, Groups, match
from vctl_plans.route import Consistency, Route
from vctl_plans.share import share

RELEASE_HEADER = "x-vctl-release"
VECTOR_HEADER = "x-vctl-vector"
SESSION_HEADER = "x-vctl-session"
USER_HEADER = "x-vctl-user"
TENANT_HEADER = "x-vctl-tenant"


class Why(StrEnum):
    """Why a request gets its release."""

    NAMED = "named"
    BREAK_GLASS = "break-glass"  # root said so on this node: `vctl-gateway override`
    OVERRIDE = "override"
    PIN = "pin"
    MOVED = "moved"  # this gateway has answered the session by the candidate before
    CANDIDATE = "candidate"
    STABLE = "stable"


class Asked(msgspec.Struct, frozen=True):
    """What of a request decides."""

    key: str  # what is hashed: a session's, a conversation's or the request's own
    release: int = 0  # the release that the request names; 0: none
    request: str = ""  # the request's own id: what is hashed where sessions are not kept together
    user: str = ""
    tenant: str = ""
    headers: Mapping[str, str] = {}  # by lower-case name
    pin: int = 0  # the release of the pin that it brings, signed by this fleet; 0: none
    has_moved: bool = False  # this gateway has answered its session by the candidate


class Choice(msgspec.Struct, frozen=True):
    """The release that serves."""

    release: int
    why: Why
    group: str = ""  # the group's name, of an override


class Refusal(msgspec.Struct, frozen=True):
    """No release may serve; HTTP 409 when a release was named, 503 when nothing is routed."""

    status: int
    reason: str


def choose(
    route: Route, asked: Asked, groups: Mapping[str, Groups] | None = None
) -> Choice | Refusal:
    """Return the release for one request, or why there is none.

    A named release is served by that release or refused, never served by another.

    Args:
        route: How the service's traffic is split.
        asked: The request.
        groups: By digest, all that the route's overrides name.
    """
    if asked.release:
        return _named(route, asked.release)
    overridden = _overridden(route, asked, groups or {})
    if overridden:
        return overridden
    if asked.pin in route.pinnable and asked.pin not in route.revoked:
        return Choice(asked.pin, Why.PIN)
    return _by_share(route, asked)


def _by_share(route: Route, asked: Asked) -> Choice | Refusal:
    is_alone = route.consistency is Consistency.EVENTUAL and bool(asked.request)
    key = asked.request if is_alone else asked.key
    if route.candidate and share(route.salt, key) < route.weight:
        return Choice(route.candidate, Why.CANDIDATE)
    if route.candidate and asked.has_moved and not is_alone:
        return Choice(route.candidate, Why.MOVED)
    if route.stable:
        return Choice(route.stable, Why.STABLE)
    return Refusal(503, f"service {route.service} serves no release yet")


def _overridden(
    route: Route, asked: Asked, groups: Mapping[str, Groups]
) -> Choice | Refusal | None:
    """Return the choice of the first override that the request is in a group of, if it is."""
    caller = Caller(asked.user, asked.tenant, asked.headers, asked.key)
    for override in route.overrides:
        known = groups.get(override.group)
        if known is None:
            return Refusal(503, f"the groups of release {override.release} are not known here yet")
        name = match(known, caller, salt=route.salt)
        if name:
            return Choice(override.release, Why.OVERRIDE, name)
    return None


def _named(route: Route, release: int) -> Choice | Refusal:
    if release in route.revoked:
        return Refusal(409, f"release {release} of {route.service} is revoked")
    if release not in route.serving:
        serving = ", ".join(str(n) for n in sorted(route.serving)) or "none"
        return Refusal(
            409, f"release {release} of {route.service} is not routed (routed: {serving})"
        )
    return Choice(release, Why.NAMED)


def session_key(headers: Mapping[str, str], body: Mapping[str, object], request_id: str) -> str:
    """Return the first that exists: session, conversation's beginning, cache key, user, id."""
    session = headers.get(SESSION_HEADER, "")
    if session:
        return f"session:{session}"
    beginning = _beginning(body)
    if beginning:
        return f"conversation:{beginning}"
    for field in ("prompt_cache_key", "user"):
        named = body.get(field)
        if isinstance(named, str) and named:
            return f"{field}:{named}"
    return f"request:{request_id}"


CONVERSATION = ("messages", "input", "system", "instructions")
"""What of a body holds a conversation: of chats and of ``/v1/messages``, of ``/v1/responses``."""


def _beginning(body: Mapping[str, object]) -> str:
    """Return a digest of a conversation's system messages and first user message, or nothing.

    A digest, so that nothing of a request's contents is kept or logged.
    """
    hasher = blake3()
    for field in ("system", "instructions"):  # a conversation's own, beside its messages
        if body.get(field):
            content = repr(body[field])
            hasher.update(f"6:system{len(content)}:{content}".encode())
    messages = body.get("messages", body.get("input"))
    if isinstance(messages, str) and "messages" not in body:
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list):
        return ""
    for message in messages:
        if not isinstance(message, dict):
            return ""
        role, content = str(message.get("role")), repr(message.get("content"))
        hasher.update(f"{len(role)}:{role}{len(content)}:{content}".encode())
        if role == "user":
            return hasher.hexdigest()
    return ""


def cache_salt(*, tenant: str, weights_root: str, adapter_root: str, client_salt: str) -> str:
    """Return the salt that keeps caches apart by tenant, by version, and as the client asked.

    Length-prefixed, so that no two lists of parts run together.
    """
    hasher = blake3(derive_key_context="vctl 2026 cache salt v1")
    for part in (tenant, weights_root, adapter_root, client_salt):
        raw = part.encode()
        hasher.update(len(raw).to_bytes(4, "big") + raw)
    return hasher.hexdigest(length=16)
