"""A release's system text in `/v1/responses` and `/v1/messages`: by the same modes as in a chat."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans.test_prompt import DEVELOPER, MESSAGES, OWN, USER, fields
from vctl_plans.prompt import Form, Mode, Template, applied

CALL = {"type": "function_call_output", "call_id": "c", "output": "7"}
PARTS = {"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]}
BOTH = "Be kind.\n\nBe brief."
TEXT = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
MODES: list[Mode] = ["prepend", "replace", "default"]


def made(form: Form, mode: Mode, **given: Any) -> dict[str, Any]:
    found = applied(Template(system="Be kind.", mode=mode), fields(**given), form)
    return {name: msgspec.json.decode(raw) for name, raw in found.items()}


@pytest.mark.parametrize(
    ("mode", "given", "wanted"),
    [
        ("prepend", {"input": "Hello"}, {"instructions": "Be kind."}),
        ("prepend", {"input": [USER, CALL]}, {"instructions": "Be kind."}),
        ("prepend", {"input": "Hello", "instructions": None}, {"instructions": "Be kind."}),
        ("prepend", {"input": "Hello", "instructions": "Be brief."}, {"instructions": BOTH}),
        ("prepend", {"input": [OWN, USER]}, {"input": [{**OWN, "content": BOTH}, USER]}),
        (
            "prepend",
            {"input": [PARTS, USER]},
            {
                "input": [
                    {
                        **PARTS,
                        "content": [
                            {"type": "input_text", "text": "Be kind.\n\n"},
                            *PARTS["content"],
                        ],
                    },
                    USER,
                ]
            },
        ),
        ("prepend", {"input": [USER, DEVELOPER]}, {"instructions": "Be kind."}),
        (
            "prepend",
            {"input": [OWN, USER], "instructions": "Be brief."},
            {"instructions": BOTH},
        ),
        ("replace", {"input": "Hello", "instructions": "x"}, {"instructions": "Be kind."}),
        (
            "replace",
            {"input": [OWN, USER, CALL, DEVELOPER]},
            {"instructions": "Be kind.", "input": [USER, CALL]},
        ),
        ("default", {"input": "Hello"}, {"instructions": "Be kind."}),
        ("default", {"input": "Hello", "instructions": ""}, {"instructions": "Be kind."}),
        ("default", {"input": "Hello", "instructions": "Be brief."}, {}),
        ("default", {"input": [USER, DEVELOPER]}, {}),
    ],
)
def test_responses_get_it_in_their_instructions(
    mode: Mode, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """Or in the message that stands first, so that there is one and not two."""
    assert wanted == made(Form.RESPONSES, mode, **given)


@pytest.mark.parametrize(
    ("mode", "given", "wanted"),
    [
        ("prepend", {"messages": [USER]}, {"system": "Be kind."}),
        ("prepend", {"messages": [USER], "system": "Be brief."}, {"system": BOTH}),
        (
            "prepend",
            {"messages": [USER], "system": [TEXT]},
            {"system": [{"type": "text", "text": "Be kind.\n\n"}, TEXT]},
        ),
        (
            "prepend",
            {"messages": [USER], "system": []},
            {"system": [{"type": "text", "text": "Be kind."}]},
        ),
        ("prepend", {"messages": [USER, OWN]}, {"system": "Be kind."}),
        ("replace", {"messages": [USER], "system": [TEXT]}, {"system": "Be kind."}),
        ("replace", {"messages": [USER, OWN]}, {"system": "Be kind.", "messages": [USER]}),
        ("default", {"messages": [USER], "system": None}, {"system": "Be kind."}),
        ("default", {"messages": [USER], "system": [TEXT]}, {}),
        ("default", {"messages": [USER, OWN]}, {}),
    ],
)
def test_messages_get_it_in_their_system(
    mode: Mode, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """A text stays a text, and parts keep what they carry beside their text."""
    assert wanted == made(Form.MESSAGES, mode, **given)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("form", "given"),
    [
        (Form.RESPONSES, {"input": 7}),
        (Form.RESPONSES, {"input": [7]}),
        (Form.RESPONSES, {"input": [{"role": 7}]}),
        (Form.RESPONSES, {"input": "Hello", "instructions": 7}),
        (Form.RESPONSES, {"instructions": "x"}),
        (Form.MESSAGES, {"messages": "Hello"}),
        (Form.MESSAGES, {"messages": [7]}),
        (Form.MESSAGES, {"messages": [USER], "system": {"text": "x"}}),
        (Form.MESSAGES, {"system": "x"}),
    ],
)
def test_what_is_no_chat_is_the_engines_to_refuse(
    form: Form, given: dict[str, Any], mode: Mode
) -> None:
    """It stays as it came."""
    assert {} == made(form, mode, **given)


def test_first_message_without_text_is_the_engines_to_refuse() -> None:
    """Nothing can be joined to it."""
    assert {} == made(Form.RESPONSES, "prepend", input=[{"role": "system", "content": 7}])


@given(MESSAGES, st.sampled_from(MODES), st.sampled_from(list(Form)))
def test_what_is_no_instruction_is_never_touched(turns: list[Any], mode: Mode, form: Form) -> None:
    """Whichever way it is asked in; and nothing but what instructs is ever changed."""
    name = "input" if form is Form.RESPONSES else "messages"
    after = made(form, mode, **{name: turns})

    def others(items: list[Any]) -> list[Any]:
        return [item for item in items if item["role"] not in {"system", "developer"}]

    assert others(turns) == others(after.get(name, turns))
    assert set(after) <= {name, "instructions", "system"}


def test_template_and_its_parameters_are_the_releases_in_every_form() -> None:
    """Also where there is no system text."""
    template = Template(chat_template="x", chat_template_kwargs={"thinking": False})
    for form in (Form.RESPONSES, Form.MESSAGES):
        found = applied(template, fields(**{form.conversation: []}), form)
        assert {"chat_template", "chat_template_kwargs"} == set(found)
