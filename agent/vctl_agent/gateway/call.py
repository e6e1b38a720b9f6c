"""A client's request: what is read of it, and what the engine gets in its place.

The body is split once at the top level; values that the gateway does not decide by keep their
bytes. A name that stands twice counts once (the last): engine and gateway never see two models.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from vctl_agent.gateway.answers import Refused
from vctl_agent.gateway.pins import Pin, own_id
from vctl_agent.gateway.target import Target
from vctl_plans.prompt import Form, applied
from vctl_plans.routing import (
    CONVERSATION,
    RELEASE_HEADER,
    SESSION_HEADER,
    TENANT_HEADER,
    USER_HEADER,
    Asked,
    session_key,
)

_DECIDING = (*CONVERSATION, "prompt_cache_key", "user")
_OTHER_ADAPTER = "lora_path"
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


class Call(msgspec.Struct, frozen=True):
    """A request's fields, unread but for the model's name."""

    model: str
    fields: dict[str, msgspec.Raw]
    body: bytes  # as it came


def read_call(body: bytes) -> Call:
    """Return the call of a body.

    Raises:
        Refused: 400, not a JSON object with a model's name.
    """
    try:
        body.decode()
        fields = _decoder.decode(body)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError) as cause:
        message = f"the body is not a JSON object: {cause}"
        raise Refused(400, message, code="invalid_json") from cause
    return Call(_text(fields, "model", is_required=True), fields, body)


def read_asked(
    call: Call,
    headers: Mapping[str, str],
    request_id: str,
    *,
    named: Iterable[str] = (),
    is_split: bool = True,
    pin: Pin | None = None,
) -> Asked:
    """Return what of the request decides its release.

    Args:
        call: The request's body.
        headers: Its header fields, whatever the case of their names.
        request_id: Its id.
        named: The header fields that groups name; no others decide, and no others are kept.
        is_split: Whether anything but a named release decides: else nothing more is read.
        pin: What the request brings of ours: its session's key is then known already.

    Raises:
        Refused: 400, the release header is not a release's number.
    """
    named_release = _named_release(headers.get(RELEASE_HEADER, ""))
    if not is_split:
        return Asked("", named_release, request=request_id)
    deciding: dict[str, Any] = {}
    own = own_id(headers)
    if not (pin or own):
        deciding = {name: _value(call.fields, name) for name in _DECIDING if name in call.fields}
    session = {SESSION_HEADER: own} if own else {}
    return Asked(
        pin.key if pin else session_key(session, deciding, request_id),
        named_release,
        request=request_id,
        user=headers.get(USER_HEADER, "") or _user(call),
        tenant=headers.get(TENANT_HEADER, ""),
        headers={name: headers[name] for name in named if name in headers},
        pin=pin.release if pin else 0,
    )


def engine_body(call: Call, target: Target, *, form: Form | None = None) -> bytes:
    """Return the body for the engine: its own name of the model, the cache salt, the prompt.

    SGLang's other way to name an adapter is left out: it would bring one of another release.

    Args:
        call: The client's.
        target: What it is served by.
        form: As which kind of chat the release's prompt, if it has one, is applied; None: as none.

    Raises:
        Refused: 400, the client's own salt is not text.
    """
    fields = call.fields.copy()
    fields["model"] = target.model_json
    fields["cache_salt"] = target.salt_json
    if "cache_salt" in call.fields:
        salt = target.salted(_text(call.fields, "cache_salt"))
        fields["cache_salt"] = msgspec.Raw(_encoder.encode(salt))
    if form and target.template:
        fields.update(applied(target.template, call.fields, form))
    fields.pop(_OTHER_ADAPTER, None)
    return _encoder.encode(fields)


def salted_body(call: Call, salted: Callable[[str], str]) -> bytes:
    """Return the body with no more changed than its cache salt.

    Args:
        call: The client's.
        salted: Gives the salt for the client's own.

    Raises:
        Refused: 400, the client's own salt is not text.
    """
    salt = salted(_text(call.fields, "cache_salt"))
    return _encoder.encode(call.fields | {"cache_salt": msgspec.Raw(_encoder.encode(salt))})


def named_adapters(call: Call) -> list[str]:
    """Return each name by which a body that is passed on unchanged may mean an adapter.

    SGLang takes ``base:adapter`` as a model, and the field ``lora_path`` beside it.
    """
    other = _value(call.fields, _OTHER_ADAPTER)
    others = other if isinstance(other, list) else [other]
    names = [call.model, *(name for name in others if isinstance(name, str))]
    return [end for name in names for end in _ends(name)]


def _ends(name: str) -> list[str]:
    """Return a name, and what is left of it after each of its colons."""
    parts = name.split(":")
    return [":".join(parts[n:]).strip() for n in range(len(parts))]


def _user(call: Call) -> str:
    user = _value(call.fields, "user")
    return user if isinstance(user, str) else ""


def _named_release(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 8 and int(text)):  # noqa: PLR2004
        message = f"{RELEASE_HEADER} must be a release's number"
        raise Refused(400, message, code="invalid_release", param=RELEASE_HEADER)
    return int(text)


def _text(fields: Mapping[str, msgspec.Raw], name: str, *, is_required: bool = False) -> str:
    value = _value(fields, name)
    if value is None and not is_required:
        return ""
    if not isinstance(value, str) or (is_required and not value):
        raise Refused(400, f"{name} must be text", code="invalid_value", param=name)
    return value


def _value(fields: Mapping[str, msgspec.Raw], name: str) -> object:
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        value: object = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as cause:
        message = f"{name} cannot be read: {cause}"
        raise Refused(400, message, code="invalid_json", param=name) from cause
    return value
