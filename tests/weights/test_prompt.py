"""What may stand in a `prompt.yaml`, and how a mistake is told."""

from pathlib import Path

import pytest

from tests.weights.building import fill
from vctl_plans.errors import MalformedPrompt
from vctl_plans.prompt import Template
from vctl_plans.weights import has_template, read_template


def read(folder: Path, text: str | bytes, **files: str | bytes) -> Template | None:
    fill(folder / "p", {"prompt.yaml": text, **{k.replace("_", "."): v for k, v in files.items()}})
    return read_template(folder / "p")


def test_prompt_without_the_file_is_the_applications_own_business(tmp_path: Path) -> None:
    """Also one that is a single file."""
    fill(tmp_path / "p", {"system.txt": "Be kind."})

    assert read_template(tmp_path / "p") is None
    assert read_template(tmp_path / "p" / "system.txt") is None
    assert not has_template(tmp_path / "p")


def test_text_may_stand_in_the_file_or_in_one_of_its_own(tmp_path: Path) -> None:
    """Without the line's end that an editor leaves."""
    assert Template(system="Be kind.") == read(tmp_path / "a", "system: Be kind.\n")
    assert Template(system="Be kind.\n\nAlways.", mode="replace") == read(
        tmp_path / "b",
        "system_file: system.txt\nmode: replace\n",
        system_txt="Be kind.\n\nAlways.\n",
    )


def test_chat_template_is_a_file_and_its_parameters_are_any(tmp_path: Path) -> None:
    """As the engine takes them."""
    said = "chat_template: chat.jinja\nchat_template_kwargs: {thinking: false, tags: [a, 1]}\n"

    assert Template(
        chat_template="{{ messages }}\n",
        chat_template_kwargs={"thinking": False, "tags": ["a", 1]},
    ) == read(tmp_path, said, chat_jinja="{{ messages }}\n")


def test_single_file_may_be_the_prompt(tmp_path: Path) -> None:
    """A node keeps it in a directory, so it is read alike."""
    fill(tmp_path, {"prompt.yaml": "system: Be kind."})

    assert Template(system="Be kind.") == read_template(tmp_path / "prompt.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a mapping, and is nothing"),
        ("[]", "must be a mapping, and is a list"),
        ("{}", "says nothing"),
        ("system: 7", "system: must be text, and is a whole number"),
        ("system: '  '", "the system text is empty"),
        ("sytem: x", "unknown field `sytem`"),
        ("system: x\nsystem_file: y", "both say the text"),
        ("system: x\nmode: append", "mode: invalid enum value 'append'"),
        ("mode: replace", "mode is of a system text"),
        ("system_file: none.txt", "there is no file none.txt"),
        ("system_file: /etc/hostname", "leads out of the prompt"),
        ("system_file: a/../../x", "leads out of the prompt"),
        ("system: [\n", "line 2: "),
        ("chat_template_kwargs: {1: x}", "chat_template_kwargs"),
        ("!!python/object:os.system {}", "line 1: "),
        (b"system: \xff", "is not UTF-8: byte 8"),
        ("system: " + "x" * 300_000, "larger than 262144 bytes"),
    ],
)
def test_mistake_is_told_with_its_place(tmp_path: Path, text: str | bytes, said: str) -> None:
    """The same by the command, the agent and the gateway."""
    with pytest.raises(MalformedPrompt) as found:
        read(tmp_path, text)

    assert said in found.value.message
    assert "prompt.yaml" in found.value.message
