"""Plans as people give them: a YAML file, or flags that say the same."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vctl_plans.errors import PlanError


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
        content = yaml.safe_load(text)
    except yaml.YAMLError as cause:
        raise PlanError(f"{where} is not YAML: {_place(cause)}") from cause
    if not isinstance(content, dict):
        raise PlanError(f"{where} is not a plan", hint="a plan is a mapping of fields")
    return with_absolute_sources(content, base)


def _place(cause: yaml.YAMLError) -> str:
    mark = getattr(cause, "problem_mark", None)
    problem = getattr(cause, "problem", None) or str(cause)
    return f"line {mark.line + 1}: {problem}" if mark else problem


def with_absolute_sources(content: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return the plan with each relative path of a source made an absolute `file://` URI."""
    release = content.get("release")
    if not isinstance(release, dict):
        return dict(content)
    return {**content, "release": {name: _absolute(part, base) for name, part in release.items()}}


def _absolute(part: Any, base: Path) -> Any:
    if not isinstance(part, dict) or not isinstance(part.get("source"), str):
        return part
    return {**part, "source": source_uri(part["source"], base)}


def source_uri(source: str, base: Path) -> str:
    """Return *source* as a URI; a path is taken from *base*."""
    if "://" in source:
        return source
    return (base / Path(source).expanduser()).resolve().as_uri()


def to_yaml(content: Mapping[str, Any]) -> str:
    """Return the file that says the same."""
    text: str = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)
    return text
