"""`python -m vctl_cli.schemas`: JSON Schemas of plan files, and of all that `-o json` prints.

Made from the structs, into `docs/schemas/`: `plan.schema.json`, and one for each `kind`. What a
field is comes from the comment behind it, so what an editor shows is what the code says. They are
committed: `--check` tells which are stale and exits 1. The same structs always give the same bytes.
"""

import ast
import functools
import importlib
import inspect
import io
import json
import sys
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect

from vctl_cli.generated import Generated
from vctl_plans.document import AnyDocument
from vctl_plans.document import schema as plan_schema

FOLDER = Path("docs/schemas")
SUFFIX = ".schema.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_REF = "#/$defs/"
_VARIABLE = "Variable"

KINDS: Mapping[str, str] = {
    "auth": "commands.config_init_auth:AuthView",
    "collection": "fleetcollect:FleetCollection",
    "comparison": "vctl_plans.weights.ulp:Comparison",
    "contexts": "commands.config_get_contexts:ContextsView",
    "decision": "render.changes:Change",
    "demo": "demo.story:Figures",
    "diagnosis": "diagnosing:Diagnosis",
    "drain": "draining:DrainView",
    "ejection": "commands.service_eject:EjectView",
    "events": "commands.events:EventsView",
    "explanation": "commands.route_explain:Explanation",
    "fleet-verification": "fleetverify:FleetVerification",
    "history": "commands.rollout_history:History",
    "manifest": "commands.manifest:ManifestView",
    "node-files": "commands.agent_init:NodeFiles",
    "node-list": "nodelist:NodesView",
    "nodes": "render.changes:Change",
    "override": "commands.route_override_set:HoldView",
    "release": "commands.release_show:ReleaseView",
    "release-diff": "commands.release_diff:ReleaseDiff",
    "releases": "commands.release_list:ReleaseList",
    "restored": "commands.config_accept_restore:Restored",
    "rollout": "vctl_plans.rollout:Rollout",
    "rollout-plan": "foreseeing:PlanView",
    "rollout-record": "recounting:RolloutRecord",
    "rollout-status": "commands.rollout_status:RolloutView",
    "route": "routes:RouteView",
    "service": "commands.service_set:SetView",
    "services": "commands.service_list:ServiceList",
    "status": "vctl_plans.status:StatusView",
    "store": "render.changes:Change",
    "summary": "summing:SummaryView",
    "tensor-verification": "render.verification:TensorView",
    "verification": "render.verification:VerifyView",
    "version": "commands.version:Version",
    "weights-diff": "render.differences:DiffView",
}
"""By `kind`: the module below vctl_cli, or of vctl_plans, and what it is printed of."""

TIMED = frozenset({"decision", "nodes", "store"})
"""Kinds that are lines of a tail: the reader's own clock stands in each."""


def files() -> dict[Path, str]:
    """Return the content of every schema, by its path below the repository's root."""
    made = {FOLDER / f"plan{SUFFIX}": _text(plan())}
    return made | {FOLDER / f"{kind}{SUFFIX}": _text(of_kind(kind)) for kind in sorted(KINDS)}


def plan() -> dict[str, Any]:
    """Return the schema of a plan file: of what is typed, so a variable may stand for a value."""
    made = plan_schema()
    structs = _structs(AnyDocument)
    made["$defs"] = {name: _told(d, structs.get(name)) for name, d in made["$defs"].items()}
    for definition in made["$defs"].values():
        for name, field in definition["properties"].items():
            definition["properties"][name] = _or_variable(field)
    made["$defs"][_VARIABLE] = {
        "description": "A variable, which --set gives: ${name}.",
        "type": "string",
        "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_-]*\}$",
    }
    return {"$schema": DIALECT, "title": "A plan of vctl rollout start", **made}


def _or_variable(field: dict[str, Any]) -> dict[str, Any]:
    """Return *field* with a variable as one more thing that it may be; text may be one anyway."""
    about: dict[str, Any] = {key: field[key] for key in ("description", "default") if key in field}
    rest = {key: value for key, value in field.items() if key not in about}
    choices: list[dict[str, Any]] = rest.get("anyOf", [rest])
    is_free = any(each.get("type") == "string" and "pattern" not in each for each in choices)
    is_fixed = len(rest.get("enum", ())) == 1  # the strategy tells which fields there are
    holds_more = any(key in each for each in choices for key in ("$ref", "properties", "items"))
    is_mapping = rest.get("type") == "object"
    if is_free or is_fixed or is_mapping or (holds_more and len(choices) == 1):
        return field
    return {"anyOf": [*choices, {"$ref": _REF + _VARIABLE}], **about}


def of_kind(kind: str) -> dict[str, Any]:
    """Return the schema of what is printed as *kind*."""
    own, defs = _parts(_located(KINDS[kind]))
    fields: dict[str, Any] = {"kind": {"const": kind}}
    if kind in TIMED:
        told = "When it was printed, by the clock of whoever printed it."
        fields["time"] = {"type": "string", "format": "date-time", "description": told}
    return {
        "$schema": DIALECT,
        **own,
        "title": f"kind: {kind}",
        "properties": {**own["properties"], **fields},
        "required": list(dict.fromkeys([*fields, *own["required"]])),
        **({"$defs": defs} if defs else {}),
    }


def _parts(struct: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a value, and those that it refers to by name."""
    if issubclass(struct, tuple):  # printed as a mapping, all of it text
        fields = {name: {"type": "string"} for name in struct._fields}
        about = {"description": inspect.getdoc(struct), "type": "object"}
        return {**about, "properties": fields, "required": list(fields)}, {}
    (root,), defs = msgspec.json.schema_components([struct], ref_template=_REF + "{name}")
    structs = _structs(struct)
    defs = {name: _told(each, structs.get(name)) for name, each in defs.items()}
    return defs.pop(root["$ref"].removeprefix(_REF)), defs


def _located(place: str) -> Any:
    module, _, name = place.partition(":")
    whole = module if module.startswith("vctl_plans") else f"vctl_cli.{module}"
    return getattr(importlib.import_module(whole), name)


def _structs(kind: Any) -> dict[str, type[msgspec.Struct]]:
    """Return the structs that a value of *kind* is made of, by name."""
    found: dict[str, type[msgspec.Struct]] = {}
    left: list[Any] = [msgspec.inspect.type_info(kind)]
    while left:
        each = left.pop()
        if isinstance(each, tuple):
            left += each
        elif isinstance(each, msgspec.inspect.StructType):
            if each.cls.__name__ not in found:
                found[each.cls.__name__] = each.cls
                left += [field.type for field in each.fields]
        elif isinstance(each, msgspec.inspect.Type):
            left += [getattr(each, name) for name in each.__struct_fields__]
    return found


def _told(definition: dict[str, Any], struct: type[msgspec.Struct] | None) -> dict[str, Any]:
    """Return *definition* with each field's comment as its description."""
    if struct is None or "properties" not in definition:
        return definition
    said = comments(struct)
    properties = {
        name: {**field, "description": said[name]} if name in said else field
        for name, field in definition["properties"].items()
    }
    return {**definition, "properties": properties}


@functools.cache
def comments(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return what is said behind each field of *struct* and of those that it extends."""
    found: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if each.__module__.startswith("vctl_"):
            found |= _behind_fields(textwrap.dedent(inspect.getsource(each)))
    return found


def _behind_fields(source: str) -> dict[str, str]:
    at_line = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (owner,) = ast.parse(source).body
    assert isinstance(owner, ast.ClassDef)  # noqa: S101  it is the source of a class
    return {
        field.target.id: at_line[field.end_lineno or field.lineno]
        for field in owner.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and (field.end_lineno or field.lineno) in at_line
    }


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _there(root: Path) -> Iterator[Path]:
    for path in (root / FOLDER).glob(f"*{SUFFIX}"):
        yield path.relative_to(root)


GENERATED = Generated("vctl_cli.schemas", files, _there)
stale, write, main = GENERATED.stale, GENERATED.write, GENERATED.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
