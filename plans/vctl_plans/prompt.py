"""What a release's prompt does to a chat: its system text and the parameters of the chat template.

A prompt that holds a `prompt.yaml` is applied by the gateway to each chat of its release, in
whichever `Form` it is asked for; one that holds none is the application's own business. Reading the
file is `weights.prompt`'s; here is what it says, and how it is applied, the same on every node.

The hard decision: where both the release and the request say something, the release's word stands,
for it was rolled out and can be rolled back; only the system text has modes, for a request's own
often is what the conversation is about.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal

import msgspec

from vctl_plans.instructions import INSTRUCTS, in_messages, in_responses, joined
from vctl_plans.instructions import raw as _raw

Mode = Literal["prepend", "replace", "default"]


class Form(Enum):
    """How a chat is asked for; the value is the field that holds the conversation."""

    CHAT = ("chat", "messages")  # OpenAI's chat completions
    RESPONSES = ("responses", "input")  # OpenAI's Responses API
    MESSAGES = ("messages", "messages")  # Anthropic's Messages API

    @property
    def conversation(self) -> str:
        """The field that holds the conversation."""
        return self.value[1]


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


def applied(
    template: Template, fields: Mapping[str, msgspec.Raw], form: Form = Form.CHAT
) -> dict[str, msgspec.Raw]:
    """Return the fields of a chat that the template replaces.

    A field that is not what OpenAI says it is stays as it came: the engine refuses it, with its
    own words.

    Args:
        template: The release's.
        fields: The chat's body, split at the top level.
        form: How it is asked for.
    """
    made: dict[str, msgspec.Raw] = {}
    if form.conversation not in fields:
        return made
    if template.system:
        made |= _with_system(template, fields, form)
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


def _with_system(
    template: Template, fields: Mapping[str, msgspec.Raw], form: Form
) -> dict[str, msgspec.Raw]:
    if form is Form.RESPONSES:
        return in_responses(template.system, template.mode, fields)
    if form is Form.MESSAGES:
        return in_messages(template.system, template.mode, fields)
    return _with_message(template, fields["messages"])


def _with_message(template: Template, raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        messages = _messages.decode(raw)
        turns = [_turn.decode(message) for message in messages]
    except (msgspec.MsgspecError, RecursionError):
        return {}
    instructs = [turn.role in INSTRUCTS for turn in turns]
    if template.mode == "default" and any(instructs):
        return {}
    if template.mode == "replace":
        messages = [m for m, is_system in zip(messages, instructs, strict=True) if not is_system]
    elif instructs[:1] == [True]:
        first = joined(template.system, messages[0], part="text")
        return {"messages": _raw([first, *messages[1:]])} if first else {}
    return {"messages": _raw([_raw({"role": "system", "content": template.system}), *messages])}


def _mapping(raw: msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    """Return a field's own fields; one that is none gives way."""
    try:
        return _object.decode(raw) if raw is not None else {}
    except (msgspec.MsgspecError, RecursionError):
        return {}
