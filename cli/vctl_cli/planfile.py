"""Plans as people give them: a YAML file, or flags that say the same.

A field that stands twice is refused: YAML would silently take the last.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vctl_plans.errors import PlanError

WHAT_A_PLAN_IS = "a plan is YAML with service, strategy and release; see docs/rollouts.md"


class _Loader(yaml.SafeLoader):
    """Reads YAML as `yaml.safe_load` does, and refuses a field that stands twice."""

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


def read_file(plan: str) -> dict[str, Any]:
    """Return the content of the plan file at *plan*, its sources made absolute.

    Raises:
        PlanError: It cannot be read, or is no plan.
    """
    path = Path(plan)
    try:
        text = path.read_text()
    except UnicodeDecodeError as cause:
        raise PlanError(f"{plan} is not a plan: it is not text", hint=WHAT_A_PLAN_IS) from cause
    except OSError as cause:
        raise PlanError(f"{plan} cannot be read: {cause.strerror or cause}") from cause
    return read_text(text, base=path.parent, where=plan)


def read_text(text: str, *, base: Path, where: str) -> dict[str, Any]:
    """Return the content of a plan file, its sources made absolute.

    Args:
        text: The YAML.
        base: The directory that relative sources are relative to.
        where: The file's name, for messages.

    Raises:
        PlanError: Not YAML, or not one mapping.
    """
    try:
        content = yaml.load(text, _Loader)  # noqa: S506  a safe loader
    except yaml.YAMLError as cause:
        raise _unreadable(cause, where) from cause
    if not isinstance(content, dict):
        is_empty = content is None
        what = f"{where} is empty" if is_empty else f"{where} is not a plan"
        raise PlanError(what, hint=WHAT_A_PLAN_IS)
    return with_absolute_sources(content, base)


def _unreadable(cause: yaml.YAMLError, where: str) -> PlanError:
    if isinstance(cause, yaml.reader.ReaderError):
        return PlanError(f"{where} is not a plan: it is not text", hint=WHAT_A_PLAN_IS)
    mark = getattr(cause, "problem_mark", None)
    problem = getattr(cause, "problem", None) or str(cause)
    place = f"line {mark.line + 1}: " if mark else ""
    if problem == "but found another document":
        hint = "keep each in a file of its own, and start them one after the other"
        return PlanError(f"{where} is more than one plan: {place}another one begins", hint=hint)
    return PlanError(f"{where} is not YAML: {place}{problem}")


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
    text: str = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)
    return text
