"""From what was typed to a plan document: what is wrong, where, and what would be right."""

import difflib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from vctl_plans import location
from vctl_plans.document import (
    KINDS,
    AnyDocument,
    Deadlines,
    Drift,
    ForwardDocument,
    GateSpec,
    Group,
    Guardrails,
    Message,
    Probe,
    ReleaseSpec,
    RollbackDocument,
    Source,
    Step,
    UserGroupDocument,
    WeightedDocument,
    golden_value,
    groups_value,
    plan_steps,
    sources,
)
from vctl_plans.errors import PlanError
from vctl_plans.guardrail import condition
from vctl_plans.names import check_name, check_root, suggestion
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.units import DURATION_PATTERN, QUOTA_PATTERN
from vctl_plans.wording import plain


def parse(content: object) -> AnyDocument:
    """Return the document of a YAML or JSON value.

    Raises:
        PlanError: With the field's path, and what is allowed there.
    """
    if not isinstance(content, Mapping):
        raise PlanError("a plan is a mapping of fields", hint="see `vctl rollout start --help`")
    if "strategy" not in content:
        strategies = ", ".join(str(k.__struct_config__.tag) for k in KINDS)
        close = difflib.get_close_matches("strategy", [str(name) for name in content], n=1)
        hint = f"did you mean 'strategy', and not {close[0]!r}?" if close else ""
        raise PlanError(f"missing; one of {strategies}", path="strategy", hint=hint)
    try:
        document: AnyDocument = msgspec.convert(content, AnyDocument, strict=True)
    except msgspec.ValidationError as cause:
        raise _explained(str(cause), content) from cause
    check_name(document.service, what="service")
    _check_release(document)
    if isinstance(document, WeightedDocument):
        _check_steps(document.steps)
    if isinstance(document, UserGroupDocument):
        _check_groups(document.groups)
    _check_guardrails(document)
    _check_probes(getattr(document, "probes", ()))
    return document


_PATTERNS = {
    msgspec.json.encode(DURATION_PATTERN).decode()[1:-1]: "is no duration: write 30s, 10m or 1h30m",
    msgspec.json.encode(QUOTA_PATTERN).decode()[1:-1]: "is neither a percentage (98%) nor a count",
}


_ALLOWED = {
    "release": "is neither the number of a release nor a mapping of components",
    "to": "is neither last-good nor the number of a release (1 or more)",
    "consistency": "is none of session, eventual, strict",
    "guardrails.on_breach": "is none of rollback, pause",
    "guardrails.on_inconclusive": "is none of extend, pause, proceed",
}
"""What may stand where msgspec's own words do not say it."""


SOAK_OF_STEPS = "each step has its own, as in steps: [{weight: 10, soak: 5m}, {weight: 100}]"


def _explained(message: str, content: Mapping[str, Any]) -> PlanError:
    """Turn msgspec's message into a path, what is wrong, and the closest field that exists."""
    said, _, where = message.partition(" - at `$")
    if not where and " - at `key` in `$" in message:
        said, where = "the names of fields are text", message.rpartition("`$")[2]
    path = where.rstrip("`").lstrip(".")
    unknown = re.search(r"unknown field `([^`]+)`", said)
    if unknown:
        field = unknown.group(1)
        path = f"{path}.{field}".lstrip(".")
        others = _strategies_with(path)
        if others:
            strategy = content["strategy"]
            hint = SOAK_OF_STEPS if (strategy, path) == ("weighted", "soak") else ""
            words = f"belongs to a {others} plan, and this one is {strategy}"
            return PlanError(words, path=path, hint=hint)
        return PlanError("unknown field", path=path, hint=suggestion(field, _fields(content, path)))
    missing = re.search(r"missing required field `([^`]+)`", said)
    if missing:
        return PlanError("missing", path=f"{path}.{missing.group(1)}".lstrip("."))
    if said.startswith("Invalid value") and path == "strategy":
        tags = [str(k.__struct_config__.tag) for k in KINDS]
        asked = content.get("strategy")
        hint = suggestion(str(asked), tags)
        meant = "" if hint.startswith("known") else hint  # the sentence names them all already
        return PlanError(f"{asked!r} is none of {', '.join(tags)}", path=path, hint=meant)
    by_pattern = (words for pattern, words in _PATTERNS.items() if pattern in said)
    words = next(by_pattern, "") or _ALLOWED.get(path, "")
    value = _value(content, path)
    if words and isinstance(value, str):
        return PlanError(f"{value!r} {words}", path=path)
    words, hint = (words, "") if words else plain(said)
    if re.fullmatch(r"steps\[\d+\]", path) and type(value) in (int, float):
        hint = f"write {{weight: {value}}}; --steps takes bare numbers, a file does not"
    return PlanError(words, path=path, hint=hint)


def _strategies_with(field: str) -> str:
    """Return the strategies whose plans have this field; none: no plan has it."""
    return " or ".join(str(k.__struct_config__.tag) for k in KINDS if field in k.__struct_fields__)


def _value(content: object, path: str) -> object:
    """Return what stands at *path*; None where that cannot be told."""
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        if key and isinstance(content, Mapping):
            content = content.get(key)
        elif index and isinstance(content, list | tuple) and int(index) < len(content):
            content = content[int(index)]
        else:
            return None
    return content


def _fields(content: Mapping[str, Any], path: str) -> list[str]:
    """Return the fields that may stand beside *path*'s last."""
    parent = re.sub(r"\[\d*\.*\]", "", path).rpartition(".")[0].rpartition(".")[2]
    by_parent: dict[str, type[msgspec.Struct]] = {
        "release": ReleaseSpec,
        "adapter": Source,
        "prompt": Source,
        "index": Source,
        "weights": Source,
        "steps": Step,
        "groups": Group,
        "gate": GateSpec,
        "deadlines": Deadlines,
        "drift": Drift,
        "guardrails": Guardrails,
        "probes": Probe,
        "messages": Message,
    }
    if parent in by_parent:
        return list(by_parent[parent].__struct_fields__)
    kinds = [k for k in KINDS if k.__struct_config__.tag == content.get("strategy")]
    return ["strategy", *(f for k in kinds or KINDS for f in k.__struct_fields__)]


def _check_release(document: AnyDocument) -> None:
    is_by_parts = isinstance(document, ForwardDocument) and isinstance(
        document.release, ReleaseSpec
    )
    if is_by_parts and not sources(document):
        names = ", ".join(ReleaseSpec.__struct_fields__)
        raise PlanError(f"names no component; give at least one of {names}", path="release")
    for name, source in sources(document).items():
        if not source.source:
            raise PlanError("is empty: write where the bytes are", path=f"release.{name}.source")
        if "://" in source.source:  # else a path, of which the command makes a URI
            location.checked(source.source, field=f"release.{name}.source")
        if source.root:
            check_root(source.root, what=f"release.{name}.root")


def _check_steps(steps: tuple[Step, ...]) -> None:
    """Refuse weights that do not grow from step to step, or that do not end at 100."""
    for n in range(1, len(steps)):
        here, before = steps[n].weight, steps[n - 1].weight
        if here <= before:
            raise PlanError(
                f"{here:g} is not above {before:g}, the weight of the step before it",
                path=f"steps[{n}].weight",
                hint="weights grow from step to step, as in 10, 25, 50, 100",
            )
    if steps[-1].weight != FULL_WEIGHT:
        raise PlanError(
            f"the last step is {steps[-1].weight:g}, and must be 100",
            path=f"steps[{len(steps) - 1}].weight",
            hint="add a step of weight 100; to hold traffic at a lower one, give it manual: true",
        )


def _check_groups(groups: tuple[Group, ...]) -> None:
    """Refuse names that are given twice, and groups that are everybody."""
    seen: set[str] = set()
    for n, group in enumerate(groups):
        if not group.name or group.name in seen:
            what = "stands twice" if group.name else "is empty"
            raise PlanError(what, path=f"groups[{n}].name")
        seen.add(group.name)
        says = group.tenant or group.users or group.header or group.percent < FULL_WEIGHT
        if not says:
            raise PlanError(
                "is everybody: give tenant, users, header or percent",
                path=f"groups[{n}]",
                hint="to move all traffic, use full-switch or weighted",
            )
    groups_value(groups)


_EXPECTATIONS = ("expect", "contains", "similar_to")


def _check_probes(probes: tuple[Probe, ...]) -> None:
    """Refuse golden prompts that ask nothing, or of which any answer would do."""
    for n, probe in enumerate(probes):
        path = f"probes[{n}]"
        if bool(probe.prompt) == bool(probe.messages):
            raise PlanError("give a prompt or messages, and not both", path=path)
        given = [name for name in _EXPECTATIONS if getattr(probe, name) is not None]
        if len(given) != 1:
            raise PlanError(f"give exactly one of {', '.join(_EXPECTATIONS)}", path=path)
        if not getattr(probe, given[0]).strip():
            raise PlanError("is empty", path=f"{path}.{given[0]}")
        if given[0] != "similar_to" and probe.similarity is not None:
            raise PlanError(f"belongs to similar_to, not to {given[0]}", path=f"{path}.similarity")
    golden_value(probes)


def _check_guardrails(document: AnyDocument) -> None:
    """Refuse what no judge could judge by, and guardrails that would never be asked."""
    rails = getattr(document, "guardrails", None)
    if rails is None:
        return
    for query, text in rails.prometheus.items():
        condition(text, path=f"guardrails.prometheus.{query}")
    if not any(step.soak_s or step.manual for step in plan_steps(document)):
        raise PlanError(
            "are asked while a step soaks, and none does",
            path="guardrails",
            hint="give a soak, as in soak: 5m",
        )


def require_built(document: AnyDocument) -> None:
    """Refuse by name what vctl cannot carry out yet.

    Raises:
        PlanError: The field, and what can be used instead.
    """
    refusals = [
        (document.allow_downtime and isinstance(document, UserGroupDocument),
         "allow_downtime", "is not for a user-group plan: its release serves beside the others'"),
        (document.allow_downtime and document.consistency == "strict",
         "allow_downtime", "is never strict: nodes change one after the other"),
        (isinstance(document, RollbackDocument) and document.consistency == "strict",
         "consistency", "is never strict in a rollback: it waits for nobody"),
    ]  # fmt: skip
    for is_asked, path, why in refusals:
        if is_asked:
            raise PlanError(why, path=path)
