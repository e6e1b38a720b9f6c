"""Whether what a command printed with `-o json` is as its published schema says."""

import functools
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def asks_for_json(arguments: Sequence[str]) -> bool:
    forms = [after for flag, after in pairwise(arguments) if flag in {"-o", "--output"}]
    prints_plan = {"--print-plan", "--show"} & set(arguments)  # a plan file, whatever the form
    return forms[-1:] == ["json"] and not prints_plan


def documents(out: str) -> Iterator[Any]:
    """Yield what was printed: one object, or one a line."""
    try:
        yield json.loads(out)
    except json.JSONDecodeError:
        yield from map(json.loads, out.splitlines())


def check(out: str) -> list[str]:
    """Check all that was printed, and return its kinds."""
    return [check_document(document) for document in documents(out)] if out else []


def check_document(document: Any) -> str:
    kind: str = document["kind"]
    validator(kind).validate(document)
    return kind


@functools.cache
def validator(kind: str) -> Any:
    """Return the validator of a kind: a field that its schema does not tell of is wrong too."""
    schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for each in (schema, *schema.get("$defs", {}).values()):
        if "properties" in each:
            each["additionalProperties"] = False
    return jsonschema.Draft202012Validator(schema)
