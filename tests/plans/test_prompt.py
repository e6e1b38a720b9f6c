"""What a release's prompt makes of a chat: the same bytes on every gateway."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_plans.prompt import Mode, Template, applied, applied_to

USER = {"role": "user", "content": "Hello"}
OWN = {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": "Be brief."}
PARTS = {"role": "system", "content": [{"type": "text", "text": "Be brief."}], "name": "x"}
OURS = {"role": "system", "content": "Be kind."}

MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
            "content": st.one_of(
                st.text(max_size=8),
                st.none(),
                st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()})),
            ),
        }
    ),
    max_size=5,
)


def fields(**given: Any) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in given.items()}


def made(template: Template, **given: Any) -> dict[str, Any]:
    return {
        name: json.loads(bytes(raw)) for name, raw in applied(template, fields(**given)).items()
    }


@pytest.mark.parametrize(
    ("mode", "messages", "wanted"),
    [
        ("prepend", [USER], [OURS, USER]),
        ("prepend", [OWN, USER], [{**OWN, "content": "Be kind.\n\nBe brief."}, USER]),
        ("prepend", [DEVELOPER], [{**DEVELOPER, "content": "Be kind.\n\nBe brief."}]),
        (
            "prepend",
            [PARTS],
            [{**PARTS, "content": [{"type": "text", "text": "Be kind.\n\n"}, *PARTS["content"]]}],
        ),
        ("prepend", [USER, OWN], [OURS, USER, OWN]),
        ("prepend", [], [OURS]),
        ("replace", [USER], [OURS, USER]),
        ("replace", [OWN, USER, DEVELOPER], [OURS, USER]),
        ("default", [USER], [OURS, USER]),
        ("default", [OWN, USER], None),
        ("default", [USER, DEVELOPER], None),
    ],
)
def test_system_text_is_applied_by_its_mode(
    mode: Mode, messages: list[dict[str, Any]], wanted: list[dict[str, Any]] | None
) -> None:
    """Before the request's own, in its place, or where it has none; None: as it came."""
    found = made(Template(system="Be kind.", mode=mode), messages=messages)

    assert ({} if wanted is None else {"messages": wanted}) == found


@pytest.mark.parametrize(
    "messages",
    [7, "text", [7], [{"content": "no role"}], [{"role": 7}], [{"role": "system", "content": 7}]],
)
def test_what_is_no_chat_is_the_engines_to_refuse(messages: object) -> None:
    """It stays as it came."""
    assert made(Template(system="Be kind."), messages=messages) == {}


def test_chat_template_and_its_parameters_are_the_releases() -> None:
    """What it does not say stays the request's own."""
    template = Template(
        chat_template="{{ messages }}", chat_template_kwargs={"thinking": False, "tone": "kind"}
    )

    assert {
        "chat_template": "{{ messages }}",
        "chat_template_kwargs": {"thinking": False, "tone": "kind", "x": 1},
    } == made(template, messages=[USER], chat_template_kwargs={"thinking": True, "x": 1})
    assert {"thinking": False, "tone": "kind"} == made(
        template, messages=[USER], chat_template_kwargs="nonsense"
    )["chat_template_kwargs"]


@given(MESSAGES, st.sampled_from(["prepend", "replace", "default"]))
def test_what_is_no_instruction_is_never_touched(messages: list[Any], mode: Mode) -> None:
    """Nor reordered; and the release's text stands first, unless the mode says that it may not."""
    after = made(Template(system="Be kind.", mode=mode), messages=messages).get(
        "messages", messages
    )
    instructs = {"system", "developer"}

    def others(turns: list[Any]) -> list[Any]:
        return [turn for turn in turns if turn["role"] not in instructs]

    assert others(messages) == others(after)
    if mode == "replace":
        assert [OURS] == [turn for turn in after if turn["role"] in instructs]
    if mode == "default":
        assert after in (messages, [OURS, *messages])


@given(MESSAGES)
def test_template_that_says_nothing_changes_nothing(messages: list[Any]) -> None:
    """And so it is with a chat that has no messages."""
    assert applied(Template(), fields(messages=messages)) == {}
    assert made(Template(system="Be kind.", chat_template="x"), prompt="Hello") == {}
    assert {"messages": messages} == applied_to(Template(), messages)


def test_golden_chat_is_asked_as_the_gateway_would_send_it() -> None:
    """The same function makes both."""
    template = Template(system="Be kind.", chat_template_kwargs={"a": 1})

    assert {"messages": [OURS, USER], "chat_template_kwargs": {"a": 1}} == applied_to(
        template, [USER]
    )
