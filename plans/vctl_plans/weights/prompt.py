"""Reads the `prompt.yaml` of a prompt: what the gateway applies to each chat of its release.

The rule to keep: what one of command, agent and gateway reads, all read, and refuse alike. So a
mistake is told when a rollout is started; where the command cannot see the files, by the node.
"""

from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from vctl_plans.errors import ArtifactError, MalformedPrompt
from vctl_plans.prompt import Mode, Template
from vctl_plans.wording import plain

PROMPT_FILE = "prompt.yaml"

MAX_BYTES = 256 * 1024
"""Of each of the files: they become a part of every chat."""


class PromptFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `prompt.yaml` may say."""

    system: str = ""  # the system text, or
    system_file: str = ""  # the file that holds it
    mode: Mode = "prepend"
    chat_template: str = ""  # a file: a Jinja template
    chat_template_kwargs: dict[str, Any] = {}


def has_template(prompt: Path) -> bool:
    """Whether a prompt, a directory or one file, is to be applied by the gateway."""
    return (prompt / PROMPT_FILE).is_file() or (prompt.name == PROMPT_FILE and prompt.is_file())


def read_template(prompt: Path) -> Template | None:
    """Return what is to be applied of the prompt at *prompt*; None: nothing.

    Raises:
        MalformedPrompt: Its `prompt.yaml` is none.
        ArtifactError: A file cannot be read now.
    """
    if not has_template(prompt):
        return None
    said = _parsed(_text(prompt, PROMPT_FILE))
    if said.system and said.system_file:
        raise MalformedPrompt(f"{PROMPT_FILE}: system and system_file both say the text: give one")
    system = _text(prompt, said.system_file) if said.system_file else said.system
    system = system.rstrip("\n")
    if (said.system or said.system_file) and not system.strip():
        raise MalformedPrompt(f"{PROMPT_FILE}: the system text is empty")
    if not system and said.mode != "prepend":
        raise MalformedPrompt(f"{PROMPT_FILE}: mode is of a system text, and there is none")
    template = Template(
        system=system,
        mode=said.mode,
        chat_template=_text(prompt, said.chat_template) if said.chat_template else "",
        chat_template_kwargs=said.chat_template_kwargs,
    )
    if template == Template():
        raise MalformedPrompt(f"{PROMPT_FILE}: says nothing", hint="give system or system_file")
    return template


def _parsed(text: str) -> PromptFile:
    import yaml  # noqa: PLC0415  only where there is one to read

    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as cause:
        mark = getattr(cause, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(cause, "problem", None) or str(cause)
        raise MalformedPrompt(f"{PROMPT_FILE}: {place}{problem}") from cause
    try:
        said = msgspec.convert(content, PromptFile)
        msgspec.json.encode(said.chat_template_kwargs)
    except (msgspec.ValidationError, TypeError, RecursionError) as cause:
        words, hint = plain(str(cause).partition(" - at ")[0])
        where = str(cause).rpartition("`$")[2].rstrip("`").lstrip(".")  # also of a mapping's key
        told = f"{where}: {words}" if where else words
        raise MalformedPrompt(f"{PROMPT_FILE}: {told}", hint=hint) from cause
    return said


def _text(prompt: Path, name: str) -> str:
    """Return the text of a file within the prompt."""
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        raise MalformedPrompt(f"{PROMPT_FILE}: {name} leads out of the prompt")
    is_alone = prompt.name == PROMPT_FILE and prompt.is_file()
    path = prompt if is_alone and name == PROMPT_FILE else prompt / parts
    try:
        if not path.is_file():
            raise MalformedPrompt(f"{PROMPT_FILE}: there is no file {name} in the prompt")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as cause:
        raise ArtifactError(f"{path}: cannot be read: {cause.strerror}") from cause
    if len(content) > MAX_BYTES:
        raise MalformedPrompt(f"{name}: is larger than {MAX_BYTES} bytes (256 KiB)")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise MalformedPrompt(f"{name}: is not UTF-8: byte {cause.start}") from cause
