"""A release's system text where a request's own lies beside its conversation.

That is `instructions` of `/v1/responses` (OpenAI's Responses API) and `system` of `/v1/messages`
(Anthropic's Messages API). The modes mean what they mean for a chat: `prompt` has the rule, and
here is where the text goes. What the conversation itself holds of system and developer messages is
the request's own as well.

What is not of the shape that the API says stays as it came: the engine refuses it in its own words.
"""

from collections.abc import Mapping

import msgspec

BLANK_LINE = "\n\n"
"""Between the release's text and the request's own."""

Fields = Mapping[str, msgspec.Raw]
Made = dict[str, msgspec.Raw]

INSTRUCTS = frozenset({"system", "developer"})
"""Roles of messages that say how to answer."""

_NULL = b"null"


class _Turn(msgspec.Struct, frozen=True):
    """What of a message or another item decides; a tool's answer has no role."""

    role: str = ""


_turns = msgspec.json.Decoder(list[msgspec.Raw])
_turn = msgspec.json.Decoder(_Turn)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def in_responses(system: str, mode: str, fields: Fields) -> Made:
    """Return the fields of a request to `/v1/responses` that *system* replaces."""
    own, items = _own(fields, "instructions"), _conversation(fields, "input")
    if not isinstance(own, str) or items is None:
        return {}
    instructs = [_role(item) in INSTRUCTS for item in items]
    if mode == "replace":
        return {"instructions": raw(system)} | _without(instructs, items, "input")
    if mode == "default" and (own or any(instructs)):
        return {}
    if not own and instructs[:1] == [True]:  # one message where it is the first, as in a chat
        first = joined(system, items[0], part="input_text")
        return {"input": raw([first, *items[1:]])} if first else {}
    return {"instructions": raw(f"{system}{BLANK_LINE}{own}" if own else system)}


def in_messages(system: str, mode: str, fields: Fields) -> Made:
    """Return the fields of a request to `/v1/messages` that *system* replaces."""
    own, turns = _own(fields, "system"), _conversation(fields, "messages")
    if not isinstance(own, str | list) or turns is None:
        return {}
    instructs = [_role(turn) in INSTRUCTS for turn in turns]
    if mode == "replace":
        return {"system": raw(system)} | _without(instructs, turns, "messages")
    if mode == "default" and (own or any(instructs)):
        return {}
    if isinstance(own, list):
        text = f"{system}{BLANK_LINE}" if own else system
        return {"system": raw([{"type": "text", "text": text}, *own])}
    return {"system": raw(f"{system}{BLANK_LINE}{own}" if own else system)}


def joined(system: str, message: msgspec.Raw, *, part: str) -> msgspec.Raw | None:
    """Return a message with *system* before its text; None: its content is no text.

    Args:
        system: The release's.
        message: The request's own, an object.
        part: The type of a part of its content.
    """
    first = _object.decode(message)
    content = msgspec.json.decode(first["content"]) if "content" in first else None
    if isinstance(content, str):
        return raw(first | {"content": raw(f"{system}{BLANK_LINE}{content}")})
    if isinstance(content, list):
        ours = {"type": part, "text": f"{system}{BLANK_LINE}"}
        return raw(first | {"content": raw([ours, *content])})
    return None


def raw(value: object) -> msgspec.Raw:
    """Return *value* as JSON."""
    return msgspec.Raw(msgspec.json.encode(value))


def _own(fields: Fields, name: str) -> object:
    """Return what the request says itself: "" where it says nothing; None where nobody can tell."""
    given = fields.get(name)
    if given is None or bytes(given) == _NULL:
        return ""
    try:
        return msgspec.json.decode(given)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _conversation(fields: Fields, name: str) -> list[msgspec.Raw] | None:
    """Return the conversation's items, none of a plain text; None: it is no conversation."""
    given = fields.get(name)
    if given is None:
        return None
    try:
        if bytes(given).startswith(b'"'):
            return [] if name == "input" else None
        items = _turns.decode(given)
        for item in items:
            _turn.decode(item)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return items


def _role(item: msgspec.Raw) -> str:
    return _turn.decode(item).role


def _without(instructs: list[bool], items: list[msgspec.Raw], name: str) -> Made:
    """Return the conversation without what instructs, where anything in it does."""
    if not any(instructs):
        return {}
    return {name: raw([i for i, goes in zip(items, instructs, strict=True) if not goes])}
