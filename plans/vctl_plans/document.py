"""The plan document: what an operator writes (DESIGN section 11), its schema, words for its errors.

Text for durations and percentages, everything optional that has a default; `resolve` makes the
stored `Plan` of it. The schema holds all four strategies. What vctl cannot carry out yet is refused
by name in `parsing.require_built`, when a plan is written, and never half done.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vctl_plans import golden
from vctl_plans import groups as of_groups
from vctl_plans.errors import PlanError
from vctl_plans.groups import Groups
from vctl_plans.phase import Component
from vctl_plans.plan import DriftLimits, Plan, PlanStep, Watch
from vctl_plans.route import Consistency
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.units import DURATION_PATTERN, QUOTA_PATTERN, duration_s, quota

Duration = Annotated[str, Meta(pattern=DURATION_PATTERN)] | float | int
Percentage = Annotated[str, Meta(pattern=QUOTA_PATTERN)] | int
Weight = Annotated[float, Meta(gt=0, le=100)]
Ratio = Annotated[float, Meta(ge=1)]


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Source(_Document, frozen=True, kw_only=True):
    """Where one component's bytes are."""

    source: str
    root: str = ""  # needed where neither the command nor a manifest says it
    hash_on_nodes: Annotated[int, Meta(ge=1)] | None = None  # how many nodes hash it and must agree
    push: str = ""  # where a local source is copied to before, for nodes to read it there


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
    max_unready: Percentage = "2%"  # drained nodes that nobody waits for; at least 1
    max_unavailable: Percentage = "10%"  # nodes that may change what they hold at once; at least 1
    free_memory: Percentage | None = None  # what a load must leave free of an engine's memory
    kv_used: Percentage | None = None  # of an engine's KV cache, at most, when traffic moves


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
    consecutive: Annotated[int, Meta(ge=1, le=10)] = 1  # windows in a row that make a breach
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
    allow_downtime: bool = False  # unload before loading, where engines have no place for both
    reason: str = ""


class Message(_Document, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


class Probe(_Document, frozen=True, kw_only=True):
    """A golden prompt: what each node asks of the release first, and what it must answer."""

    prompt: str = ""  # a text to go on from, or
    messages: tuple[Message, ...] = ()  # a chat
    expect: str | None = None  # the whole answer, but for white space around it; or
    contains: str | None = None  # a part of it; or
    similar_to: str | None = None  # a text that it resembles by `similarity`
    similarity: Annotated[float, Meta(gt=0, le=1)] | None = None  # of `similar_to`; 0.8
    max_tokens: Annotated[int, Meta(ge=1, le=1024)] = 64


class ForwardDocument(Document, frozen=True, kw_only=True):
    """What every plan that brings a release may say."""

    release: Annotated[int, Meta(ge=1)] | ReleaseSpec
    probes: Annotated[tuple[Probe, ...], Meta(max_length=20)] = ()
    guardrails: Guardrails | None = None


class WeightedDocument(ForwardDocument, frozen=True, kw_only=True, tag="weighted"):
    """Traffic moves to the candidate by weight, step by step."""

    steps: Annotated[tuple[Step, ...], Meta(min_length=1)] = tuple(
        Step(weight=weight) for weight in DEFAULT_WEIGHTS
    )
    pins: Duration = 0  # how long sessions may hold on to their release once all traffic moved


class UserGroupDocument(ForwardDocument, frozen=True, kw_only=True, tag="user-group"):
    """Named groups get the candidate; all others stay."""

    groups: Annotated[tuple[Group, ...], Meta(min_length=1)]
    soak: Duration = "5m"


class FullSwitchDocument(ForwardDocument, frozen=True, kw_only=True, tag="full-switch"):
    """All nodes make the candidate ready, then all traffic moves at once."""

    soak: Duration = 0
    manual: bool = False


class RollbackDocument(Document, frozen=True, kw_only=True, tag="rollback"):
    """Traffic returns to an earlier release; the one that it leaves is revoked."""

    to: Literal["last-good"] | Annotated[int, Meta(ge=1)] = "last-good"


AnyDocument = WeightedDocument | UserGroupDocument | FullSwitchDocument | RollbackDocument
KINDS = (WeightedDocument, UserGroupDocument, FullSwitchDocument, RollbackDocument)


def groups_value(groups: tuple[Group, ...]) -> Groups:
    """Return the groups as they are stored.

    Raises:
        PlanError: They are too large; the limit is named.
    """
    made = Groups(
        groups=tuple(
            of_groups.Group(
                name=group.name,
                tenant=group.tenant,
                users=tuple(sorted(set(group.users))),
                header={name.lower(): value for name, value in sorted(group.header.items())},
                percent=group.percent,
            )
            for group in groups
        )
    )
    of_groups.check_size(made)
    return made


def groups_of(document: AnyDocument) -> Groups | None:
    """Return the groups that the plan names, as they are stored."""
    return groups_value(document.groups) if isinstance(document, UserGroupDocument) else None


def golden_value(probes: tuple[Probe, ...]) -> golden.Golden:
    """Return the golden prompts as they are stored.

    Raises:
        PlanError: They are too large; the limit is named.
    """
    made = golden.Golden(
        prompts=tuple(
            golden.GoldenPrompt(
                prompt=probe.prompt,
                messages=tuple(
                    golden.Message(role=turn.role, content=turn.content) for turn in probe.messages
                ),
                expect=probe.expect,
                contains=probe.contains,
                similar_to=probe.similar_to,
                similarity=probe.similarity or golden.SIMILARITY,
                max_tokens=probe.max_tokens,
            )
            for probe in probes
        )
    )
    golden.check_size(made)
    return made


def golden_of(document: AnyDocument) -> golden.Golden | None:
    """Return the golden prompts that the plan names, as they are stored."""
    probes: tuple[Probe, ...] = getattr(document, "probes", ())
    return golden_value(probes) if probes else None


def sources(document: AnyDocument) -> dict[Component, Source]:
    """Return the components that the document brings, by name; none when it names a release."""
    if isinstance(document, RollbackDocument) or not isinstance(document.release, ReleaseSpec):
        return {}
    spec = document.release
    given = {name: getattr(spec, name.value) for name in Component}
    return {name: source for name, source in given.items() if source is not None}


def resolve(document: AnyDocument, target: Mapping[Component, str]) -> Plan:
    """Return the plan that is stored.

    Args:
        document: What was typed, already parsed.
        target: The root of each component that the plan changes; empty for a rollback.
    """
    deadlines, gate, groups = document.deadlines, document.gate, groups_of(document)
    probes = golden_of(document)
    to = document.to if isinstance(document, RollbackDocument) else 0
    return Plan(
        service=document.service,
        strategy=document.__struct_config__.tag,  # type: ignore[arg-type]
        target={name.value: root for name, root in target.items()},
        to=0 if to == "last-good" else to,
        steps=plan_steps(document),
        ready=quota(gate.ready, path="gate.ready"),
        max_failed=gate.max_failed,
        max_absent=quota(gate.max_absent, path="gate.max_absent"),
        max_unready=quota(gate.max_unready, path="gate.max_unready"),
        max_unavailable=quota(gate.max_unavailable, path="gate.max_unavailable"),
        probes=probes.digest if probes else "",
        groups=groups.digest if groups else "",
        consistency=Consistency(document.consistency),
        watch=_watch(document),
        prepare_s=duration_s(deadlines.prepare, path="deadlines.prepare"),
        converge_s=duration_s(deadlines.converge, path="deadlines.converge"),
        drain_s=duration_s(deadlines.drain, path="deadlines.drain"),
        hold_s=duration_s(deadlines.hold, path="deadlines.hold"),
        retain=document.retain,
        allow_downtime=document.allow_downtime,
        free_memory=_share(gate.free_memory, path="gate.free_memory"),
        kv_used=_share(gate.kv_used, path="gate.kv_used"),
    )


def _watch(document: AnyDocument) -> Watch | None:
    rails: Guardrails | None = getattr(document, "guardrails", None)
    if rails is None:
        return None
    drift, free = rails.drift, rails.free_memory
    return Watch(
        error_ratio=rails.error_ratio,
        p99_ratio=rails.p99_ratio,
        min_requests=rails.min_requests,
        interval_s=duration_s(rails.interval, path="guardrails.interval"),
        consecutive=rails.consecutive,
        drift=msgspec.convert(msgspec.structs.asdict(drift), DriftLimits) if drift else None,
        free_memory=_share(free, path="guardrails.free_memory"),
        queries=rails.prometheus,
        on_breach=rails.on_breach,
        on_inconclusive=rails.on_inconclusive,
    )


def _share(text: str | int | None, *, path: str) -> float | None:
    if text is None:
        return None
    share = quota(text, path=path)
    if share.percent is None:
        raise PlanError("is a percentage, as in 20%", path=path)
    return share.percent / FULL_WEIGHT


def plan_steps(document: AnyDocument) -> tuple[PlanStep, ...]:
    """Return the steps as they are carried out.

    Raises:
        PlanError: A soak is below zero, or without an end.
    """
    if isinstance(document, WeightedDocument):
        steps = [
            PlanStep(
                weight=float(step.weight),
                soak_s=duration_s(step.soak, path=f"steps[{n}].soak"),
                manual=step.manual,
            )
            for n, step in enumerate(document.steps)
        ]
        # Sessions hold on while the last step soaks: it does so for as long as they may.
        pins_s = duration_s(document.pins, path="pins")
        last = msgspec.structs.replace(steps[-1], soak_s=max(steps[-1].soak_s, pins_s))
        return (*steps[:-1], last)
    if isinstance(document, FullSwitchDocument | UserGroupDocument):
        soak_s = duration_s(document.soak, path="soak")
        return (PlanStep(soak_s=soak_s, manual=getattr(document, "manual", False)),)
    return (PlanStep(),)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan document."""
    return msgspec.json.schema(AnyDocument)
