"""Plans as people give them: a YAML file, or flags that say the same.

A field that stands twice is refused: YAML would silently take the last. Variables are filled in
while the file is read, see `variables`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vctl_cli import variables
from vctl_plans.errors import PlanError

WHAT_A_PLAN_IS = "a plan is YAML with service, strategy and release; see docs/rollouts.md"


class Variables:
    """Values for the `${name}` of plan files, and which of them were asked for."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values = values or {}
        self.used: set[str] = set()

    def refuse_unused(self, known: str) -> None:
        """Refuse a value that no plan asked for.

        Raises:
            PlanError: There is one.
        """
        variables.refuse_unused(self.values, self.used, known=known)


class _Loader(yaml.SafeLoader):
    """Reads YAML as `yaml.safe_load` does, with variables, and no field may stand twice."""

    def __init__(self, text: str, given: Variables, where: str) -> None:
        super().__init__(text)
        self._given = given
        self._where = where

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node; in a scalar that is no field's name, variables are filled in."""
        is_field = isinstance(parent, yaml.MappingNode) and index is None
        if self.check_event(yaml.ScalarEvent) and not is_field:
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            where = f"{self._where}: line {event.start_mark.line + 1}"
            event.value = variables.filled(
                event.value, self._given.values, used=self._given.used, where=where
            )
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Return the next mapping."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value} stands twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return node


def read_file(plan: str, given: Variables | None = None) -> dict[str, Any]:
    """Return the content of the plan file at *plan*, its sources made absolute.

    Raises:
        PlanError: It cannot be read, or is no plan, or a variable is not given.
    """
    path = Path(plan)
    try:
        text = path.read_text()
    except UnicodeDecodeError as cause:
        raise PlanError(f"{plan} is not a plan: it is not text", hint=WHAT_A_PLAN_IS) from cause
    except OSError as cause:
        raise PlanError(
            f"{plan} cannot be read: {cause.strerror or cause}", hint=WHAT_A_PLAN_IS
        ) from cause
    return read_text(text, base=path.parent, where=plan, given=given)


def read_text(
    text: str, *, base: Path, where: str, given: Variables | None = None
) -> dict[str, Any]:
    """Return the content of a plan file, its sources made absolute.

    Args:
        text: The YAML.
        base: The directory that relative sources are relative to.
        where: The file's name, for messages.
        given: The variables.

    Raises:
        PlanError: Not YAML, or not one mapping, or a variable is not given.
    """
    try:
        content = _Loader(text, given or Variables(), where).get_single_data()
    except yaml.YAMLError as cause:
        raise _unreadable(cause, where, has_variables="${" in text) from cause
    if not isinstance(content, dict):
        is_empty = content is None
        what = f"{where} is empty" if is_empty else f"{where} is not a plan"
        raise PlanError(what, hint=WHAT_A_PLAN_IS)
    return with_absolute_sources(content, base)


def _unreadable(cause: yaml.YAMLError, where: str, *, has_variables: bool) -> PlanError:
    if isinstance(cause, yaml.reader.ReaderError):
        return PlanError(f"{where} is not a plan: it is not text", hint=WHAT_A_PLAN_IS)
    mark = getattr(cause, "problem_mark", None)
    problem = getattr(cause, "problem", None) or str(cause)
    place = f"line {mark.line + 1}: " if mark else ""
    if problem == "but found another document":
        hint = "keep each in a file of its own, and start them one after the other"
        return PlanError(f"{where} is more than one plan: {place}another one begins", hint=hint)
    hint = 'between { } or [ ] a variable stands in quotes: "${name}"' if has_variables else ""
    problem = problem.replace("'<scalar>'", "text")
    return PlanError(f"{where} is not YAML: {place}{problem}", hint=hint or _unclosed(cause))


def _unclosed(cause: yaml.YAMLError) -> str:
    """Return where the bracket stands within which a later line was not understood; else ""."""
    begun, found = getattr(cause, "context_mark", None), getattr(cause, "problem_mark", None)
    kinds = {"while parsing a flow mapping": "{", "while parsing a flow sequence": "["}
    bracket = kinds.get(getattr(cause, "context", None) or "")
    if bracket is None or begun is None or found is None or begun.line == found.line:
        return ""
    return f"is the {bracket} of line {begun.line + 1} closed?"


def with_absolute_sources(content: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return the plan with each relative path of a source made an absolute `file://` URI."""
    release = content.get("release")
    if not isinstance(release, dict):
        return dict(content)
    return {**content, "release": {name: _absolute(part, base) for name, part in release.items()}}


def _absolute(part: Any, base: Path) -> Any:
    if not isinstance(part, dict):
        return part
    places = {name: part[name] for name in ("source", "push") if isinstance(part.get(name), str)}
    return {**part, **{name: source_uri(place, base) for name, place in places.items() if place}}


def source_uri(source: str, base: Path) -> str:
    """Return *source* as a URI; a path is taken from *base*."""
    if "://" in source:
        return source
    return (base / Path(source).expanduser()).resolve().as_uri()


def to_yaml(content: Mapping[str, Any]) -> str:
    """Return the file that says the same."""
    text: str = yaml.safe_dump(_escaped(dict(content)), sort_keys=False, allow_unicode=True)
    return text


def _escaped(value: Any) -> Any:
    """Return *value* with what would be read as a variable escaped."""
    if isinstance(value, str):
        return variables.escaped(value)
    if isinstance(value, Mapping):
        return {name: _escaped(each) for name, each in value.items()}
    return [_escaped(each) for each in value] if isinstance(value, list | tuple) else value
