"""What a release's prompt does to a chat: its system text and the parameters of the chat template.

A prompt that holds a `prompt.yaml` is applied by the gateway to each chat of its release; one that
holds none is the application's own business. Reading the file is `weights.prompt`'s; here is what
it says, and how it is applied, the same on every node.

The hard decision: where both the release and the request say something, the release's word stands,
for it was rolled out and can be rolled back; only the system text has modes, for a request's own
often is what the conversation is about.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

Mode = Literal["prepend", "replace", "default"]

_INSTRUCTS = {"system", "developer"}
_BETWEEN = "\n\n"


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """What is applied to each chat."""

    system: str = ""  # empty: no system text
    mode: Mode = "prepend"
    chat_template: str = ""  # a Jinja template's text; empty: the model's own
    chat_template_kwargs: dict[str, Any] = {}


class _Turn(msgspec.Struct, frozen=True):
    """What of a message decides."""

    role: str


_messages = msgspec.json.Decoder(list[msgspec.Raw])
_turn = msgspec.json.Decoder(_Turn)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def applied(template: Template, fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return the fields of a chat that the template replaces.

    A field that is not what OpenAI says it is stays as it came: the engine refuses it, with its
    own words.

    Args:
        template: The release's.
        fields: The chat's body, split at the top level.
    """
    made: dict[str, msgspec.Raw] = {}
    if "messages" not in fields:
        return made
    if template.system:
        made |= _with_system(template, fields["messages"])
    if template.chat_template:
        made["chat_template"] = _raw(template.chat_template)
    if template.chat_template_kwargs:
        own = {name: _raw(value) for name, value in template.chat_template_kwargs.items()}
        made["chat_template_kwargs"] = _raw(_mapping(fields.get("chat_template_kwargs")) | own)
    return made


def applied_to(template: Template, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the body's fields of a chat of *messages*, as the gateway would send it."""
    fields = {"messages": _raw(messages)}
    made: dict[str, Any] = {
        name: msgspec.json.decode(raw) for name, raw in (fields | applied(template, fields)).items()
    }
    return made


def _with_system(template: Template, raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        messages = _messages.decode(raw)
        turns = [_turn.decode(message) for message in messages]
    except (msgspec.MsgspecError, RecursionError):
        return {}
    instructs = [turn.role in _INSTRUCTS for turn in turns]
    if template.mode == "default" and any(instructs):
        return {}
    if template.mode == "replace":
        messages = [m for m, is_system in zip(messages, instructs, strict=True) if not is_system]
    elif instructs[:1] == [True]:
        return _joined(template.system, messages)
    return {"messages": _raw([_raw({"role": "system", "content": template.system}), *messages])}


def _joined(system: str, messages: list[msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return the messages with *system* before the text of the first: many templates take one."""
    first = _object.decode(messages[0])
    content = msgspec.json.decode(first["content"]) if "content" in first else None
    joined: object
    if isinstance(content, str):
        joined = f"{system}{_BETWEEN}{content}"
    elif isinstance(content, list):
        joined = [{"type": "text", "text": f"{system}{_BETWEEN}"}, *content]
    else:
        return {}
    return {"messages": _raw([_raw(first | {"content": _raw(joined)}), *messages[1:]])}


def _mapping(raw: msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    """Return a field's own fields; one that is none gives way."""
    try:
        return _object.decode(raw) if raw is not None else {}
    except (msgspec.MsgspecError, RecursionError):
        return {}


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
