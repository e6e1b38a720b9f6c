"""The plan: what an operator writes (DESIGN section 11), its schema, the words for its errors.

`Document` is what a person types: text for durations and percentages, everything optional that
has a default. `Plan` is what is stored and carried out: numbers only. A plan's digest covers what
it would do, so that the same wish typed twice is one plan.

The schema holds all four strategies. What vctl cannot carry out yet is refused by name in
`require_built`, when a plan is written, and never half done.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vctl_plans.codec import Value, digest
from vctl_plans.errors import PlanError
from vctl_plans.names import check_name, check_root, suggestion
from vctl_plans.phase import Component
from vctl_plans.route import Consistency
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.units import DURATION_PATTERN, QUOTA_PATTERN, Quota, duration_s, quota

Duration = Annotated[str, Meta(pattern=DURATION_PATTERN)] | float | int
Percentage = Annotated[str, Meta(pattern=QUOTA_PATTERN)] | int
Weight = Annotated[float, Meta(gt=0, le=100)]
Ratio = Annotated[float, Meta(ge=1)]
Strategy = Literal["weighted", "user-group", "full-switch", "rollback"]


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Source(_Document, frozen=True, kw_only=True):
    """Where one component's bytes are."""

    source: str
    root: str = ""  # needed where the command cannot read the source


class ReleaseSpec(_Document, frozen=True, kw_only=True):
    """A release by its parts; what is left out is the stable release's."""

    adapter: Source | None = None
    prompt: Source | None = None
    index: Source | None = None
    weights: Source | None = None


DEFAULT_WEIGHTS = (10, 25, 50, 100)
DEFAULT_SOAK = "5m"


class Step(_Document, frozen=True, kw_only=True):
    """One step of a weighted plan."""

    weight: Weight
    soak: Duration = DEFAULT_SOAK
    manual: bool = False  # wait for `vctl rollout promote` after the soak


class Group(_Document, frozen=True, kw_only=True):
    """Requests that get the candidate: all of the conditions that are given must hold."""

    name: str
    tenant: str = ""
    users: tuple[str, ...] = ()
    header: dict[str, str] = {}
    percent: Annotated[float, Meta(gt=0, le=100)] = 100.0


class GateSpec(_Document, frozen=True, kw_only=True):
    """What must hold before traffic moves."""

    ready: Percentage = "100%"  # of the nodes that count
    max_failed: Annotated[int, Meta(ge=0)] = 0  # nodes that may refuse the release for good
    max_absent: Percentage = "10%"  # nodes that may vanish meanwhile


class Deadlines(_Document, frozen=True, kw_only=True):
    """The longest that a phase may take."""

    prepare: Duration = "10m"
    converge: Duration = "30s"
    drain: Duration = "30s"
    hold: Duration = "5s"  # strict: how long new requests may wait for the switch


class Drift(_Document, frozen=True, kw_only=True):
    """Limits on the change of the output distributions: answer length, log-probabilities, ends."""

    psi: Annotated[float, Meta(gt=0)] = 0.25  # over it: an alert
    severe_psi: Annotated[float, Meta(gt=0)] = 0.55  # over it in `windows` in a row: a rollback
    kl: Annotated[float, Meta(gt=0)] = 0.3
    windows: Annotated[int, Meta(ge=1, le=20)] = 3
    pause: bool = False  # pause where there would only be an alert


class Guardrails(_Document, frozen=True, kw_only=True):
    """What is watched while traffic moves."""

    error_ratio: Ratio = 1.5
    p99_ratio: Ratio = 1.2
    min_requests: Annotated[int, Meta(ge=1)] = 200
    interval: Duration = "30s"
    consecutive: Annotated[int, Meta(ge=1)] = 1
    drift: Drift | None = None
    free_memory: Percentage | None = None
    prometheus: dict[str, str] = {}  # a query -> what its value must be, as in "<= 0.05"
    on_breach: Literal["rollback", "pause"] = "rollback"
    on_inconclusive: Literal["extend", "pause", "proceed"] = "extend"


class Document(_Document, frozen=True, kw_only=True, tag_field="strategy"):
    """What every plan may say."""

    service: str
    gate: GateSpec = GateSpec()
    deadlines: Deadlines = Deadlines()
    retain: Annotated[int, Meta(ge=0, le=8)] = 1  # earlier releases that stay loaded
    consistency: Literal["session", "eventual", "strict"] = "session"
    allow_downtime: bool = False
    reason: str = ""


class _Forward(Document, frozen=True, kw_only=True):
    release: Annotated[int, Meta(ge=1)] | ReleaseSpec
    guardrails: Guardrails | None = None


class WeightedDocument(_Forward, frozen=True, kw_only=True, tag="weighted"):
    """Traffic moves to the candidate by weight, step by step."""

    steps: Annotated[tuple[Step, ...], Meta(min_length=1)] = tuple(
        Step(weight=weight) for weight in DEFAULT_WEIGHTS
    )


class UserGroupDocument(_Forward, frozen=True, kw_only=True, tag="user-group"):
    """Named groups get the candidate; all others stay."""

    groups: Annotated[tuple[Group, ...], Meta(min_length=1)]
    soak: Duration = "5m"


class FullSwitchDocument(_Forward, frozen=True, kw_only=True, tag="full-switch"):
    """All nodes make the candidate ready, then all traffic moves at once."""

    soak: Duration = 0
    manual: bool = False


class RollbackDocument(Document, frozen=True, kw_only=True, tag="rollback"):
    """Traffic returns to an earlier release; the one that it leaves is revoked."""

    to: Literal["last-good"] | Annotated[int, Meta(ge=1)] = "last-good"


AnyDocument = WeightedDocument | UserGroupDocument | FullSwitchDocument | RollbackDocument
_KINDS = (WeightedDocument, UserGroupDocument, FullSwitchDocument, RollbackDocument)


class PlanStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step as it is carried out: how much traffic moves, and what is waited for after it."""

    weight: float = FULL_WEIGHT  # percent on the candidate from this step on
    soak_s: float = 0.0
    manual: bool = False  # after the soak, until an operator promotes


class DriftLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of `Drift`."""

    psi: float = 0.25
    severe_psi: float = 0.55
    kl: float = 0.3
    windows: int = 3
    pause: bool = False


class Watch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of `Guardrails`."""

    error_ratio: float = 1.5
    p99_ratio: float = 1.2
    min_requests: int = 200
    interval_s: float = 30.0
    consecutive: int = 1
    drift: DriftLimits | None = None
    free_memory: float | None = None  # the least share that must be free, 0 to 1
    queries: dict[str, str] = {}
    on_breach: Literal["rollback", "pause"] = "rollback"
    on_inconclusive: Literal["extend", "pause", "proceed"] = "extend"


class Plan(Value, frozen=True, kw_only=True):
    """What is carried out: numbers only, every default filled in."""

    service: str
    strategy: Strategy
    target: dict[str, str] = {}  # component -> root, of what the plan changes; empty for a rollback
    to: int = 0  # of a rollback: the release to return to; 0: the last good one
    steps: tuple[PlanStep, ...] = (PlanStep(),)  # weights grow strictly, the last is 100
    ready: Quota = Quota(percent=100.0)
    max_failed: int = 0
    max_absent: Quota = Quota(percent=10.0)
    groups: str = ""  # digest of the `Groups` that get the release; empty for other strategies
    consistency: Consistency = Consistency.SESSION
    watch: Watch | None = None
    prepare_s: float = 600.0
    converge_s: float = 30.0
    drain_s: float = 30.0
    hold_s: float = 5.0
    retain: int = 1

    @property
    def digest(self) -> str:
        """The name of the plan: the same wish has the same digest."""
        return digest(self, context="plan")


def parse(content: object) -> AnyDocument:
    """Return the document of a YAML or JSON value.

    Raises:
        PlanError: With the field's path, and what is allowed there.
    """
    if not isinstance(content, Mapping):
        raise PlanError("a plan is a mapping of fields", hint="see `vctl rollout start --help`")
    if "strategy" not in content:
        strategies = ", ".join(str(k.__struct_config__.tag) for k in _KINDS)
        raise PlanError(f"missing; one of {strategies}", path="strategy")
    try:
        document: AnyDocument = msgspec.convert(content, AnyDocument, strict=True)
    except msgspec.ValidationError as cause:
        raise _explained(str(cause), content) from cause
    check_name(document.service, what="service")
    _check_release(document)
    if isinstance(document, WeightedDocument):
        _check_steps(document.steps)
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
        return PlanError("unknown field", path=path, hint=suggestion(field, _fields(content, path)))
    missing = re.search(r"missing required field `([^`]+)`", said)
    if missing:
        return PlanError("missing", path=f"{path}.{missing.group(1)}".lstrip("."))
    if said.startswith("Invalid value") and path == "strategy":
        tags = [str(k.__struct_config__.tag) for k in _KINDS]
        asked = content.get("strategy")
        hint = suggestion(str(asked), tags)
        return PlanError(f"{asked!r} is none of {', '.join(tags)}", path=path, hint=hint)
    by_pattern = (words for pattern, words in _PATTERNS.items() if pattern in said)
    words = next(by_pattern, "") or _ALLOWED.get(path) or said[:1].lower() + said[1:]
    return PlanError(words, path=path)


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
    }
    if parent in by_parent:
        return list(by_parent[parent].__struct_fields__)
    kinds = [k for k in _KINDS if k.__struct_config__.tag == content.get("strategy")]
    return ["strategy", *(f for k in kinds or _KINDS for f in k.__struct_fields__)]


def _check_release(document: AnyDocument) -> None:
    is_by_parts = isinstance(document, _Forward) and isinstance(document.release, ReleaseSpec)
    if is_by_parts and not sources(document):
        names = ", ".join(ReleaseSpec.__struct_fields__)
        raise PlanError(f"names no component; give at least one of {names}", path="release")
    for name, source in sources(document).items():
        if not source.source:
            raise PlanError("is empty: write where the bytes are", path=f"release.{name}.source")
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


def sources(document: AnyDocument) -> dict[Component, Source]:
    """Return the components that the document brings, by name; none when it names a release."""
    if isinstance(document, RollbackDocument) or not isinstance(document.release, ReleaseSpec):
        return {}
    spec = document.release
    given = {name: getattr(spec, name.value) for name in Component}
    return {name: source for name, source in given.items() if source is not None}


def require_built(document: AnyDocument) -> None:
    """Refuse by name what vctl cannot carry out yet.

    Raises:
        PlanError: The field, and what can be used instead.
    """
    refusals = [
        (isinstance(document, UserGroupDocument), "strategy",
         "user-group is not built yet; use weighted, full-switch or rollback"),
        (document.consistency != "session", "consistency", "only session is built yet"),
        (document.allow_downtime, "allow_downtime", "is not built yet"),
        (document.gate != GateSpec(), "gate",
         "other than ready: 100% is not built yet: a node cannot pass requests on to another"),
        (getattr(document, "guardrails", None) is not None, "guardrails", "are not built yet"),
        *((name is not Component.ADAPTER, f"release.{name}", "is not built yet; use adapter")
          for name in sources(document)),
    ]  # fmt: skip
    for is_asked, path, why in refusals:
        if is_asked:
            raise PlanError(why, path=path)


def resolve(document: AnyDocument, target: Mapping[Component, str]) -> Plan:
    """Return the plan that is stored.

    Args:
        document: What was typed, already parsed.
        target: The root of each component that the plan changes; empty for a rollback.
    """
    deadlines, gate = document.deadlines, document.gate
    to = document.to if isinstance(document, RollbackDocument) else 0
    return Plan(
        service=document.service,
        strategy=document.__struct_config__.tag,  # type: ignore[arg-type]
        target={name.value: root for name, root in target.items()},
        to=0 if to == "last-good" else to,
        steps=_steps(document),
        ready=quota(gate.ready, path="gate.ready"),
        max_failed=gate.max_failed,
        prepare_s=duration_s(deadlines.prepare, path="deadlines.prepare"),
        converge_s=duration_s(deadlines.converge, path="deadlines.converge"),
        drain_s=duration_s(deadlines.drain, path="deadlines.drain"),
        retain=document.retain,
    )


def _steps(document: AnyDocument) -> tuple[PlanStep, ...]:
    if isinstance(document, WeightedDocument):
        return tuple(
            PlanStep(
                weight=float(step.weight),
                soak_s=duration_s(step.soak, path=f"steps[{n}].soak"),
                manual=step.manual,
            )
            for n, step in enumerate(document.steps)
        )
    if isinstance(document, FullSwitchDocument | UserGroupDocument):
        soak_s = duration_s(document.soak, path="soak")
        return (PlanStep(soak_s=soak_s, manual=getattr(document, "manual", False)),)
    return (PlanStep(),)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan document."""
    return msgspec.json.schema(AnyDocument)
