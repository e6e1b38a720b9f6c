"""Plans: what is typed is checked field by field, and every error names the field."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_root
from vctl_plans.codec import decode, encode
from vctl_plans.document import golden_of, resolve, schema
from vctl_plans.errors import PlanError
from vctl_plans.parsing import parse, require_built
from vctl_plans.phase import Component
from vctl_plans.plan import Plan, PlanStep

SWITCH: dict[str, Any] = {"service": "support", "strategy": "full-switch", "release": 8}
GROUPED = SWITCH | {"strategy": "user-group", "groups": [{"name": "acme", "tenant": "acme"}]}
WEIGHTED: dict[str, Any] = SWITCH | {"strategy": "weighted", "steps": [{"weight": 100}]}

DESIGN_PLANS: list[dict[str, Any]] = [
    {
        "service": "support",
        "release": {"adapter": {"source": "s3://ml/support/v8", "root": a_root(8)}},
        "strategy": "weighted",
        "steps": [{"weight": 5, "soak": "10m", "manual": True}, {"weight": 100, "soak": "5m"}],
        "gate": {"ready": "98%"},
        "guardrails": {"error_ratio": 1.5, "min_requests": 200, "on_breach": "rollback"},
    },
    {
        "service": "support",
        "release": 8,
        "strategy": "user-group",
        "groups": [
            {"name": "acme-beta", "tenant": "acme"},
            {"name": "staff", "users": ["ann", "bo"]},
            {"name": "canary-header", "header": {"x-tier": "beta"}, "percent": 50},
        ],
    },
    {
        "service": "support",
        "release": {"adapter": {"source": "./support-v9"}, "prompt": {"source": "./prompt-v12"}},
        "strategy": "full-switch",
        "soak": "5m",
    },
    {"service": "support", "strategy": "rollback", "to": "last-good", "reason": "INC-4711"},
]


@pytest.mark.parametrize("content", DESIGN_PLANS, ids=lambda plan: plan["strategy"])
def test_plan_of_the_design_is_read(content: dict[str, Any]) -> None:
    """All four strategies as DESIGN section 11 shows them."""
    assert content["strategy"] == parse(content).__struct_config__.tag


WRONG: list[tuple[object, str, str]] = [
    ([], "", "a plan is a mapping of fields"),
    ({"service": "support"}, "strategy", "missing; one of weighted, user-group, full-switch"),
    (SWITCH | {"strategy": "blue"}, "strategy", "'blue' is none of weighted, user-group"),
    (SWITCH | {"strategy": ["x"]}, "strategy", "must be text, and is a list"),
    (SWITCH | {"service": "Support"}, "service", "is not a name"),
    (SWITCH | {"service": 7}, "service", "must be text, and is a whole number"),
    ({"service": "support", "strategy": "full-switch"}, "release", "missing"),
    (SWITCH | {"release": "v8"}, "release", "is neither the number of a release nor a mapping"),
    (SWITCH | {"release": 0}, "release", "is neither the number"),
    (SWITCH | {"release": {}}, "release", "names no component; give at least one of adapter"),
    (SWITCH | {"release": {"adaptor": {}}}, "release.adaptor", "unknown field"),
    (SWITCH | {"release": {"adapter": {}}}, "release.adapter.source", "missing"),
    (SWITCH | {"release": {"adapter": {"source": ""}}}, "release.adapter.source", "is empty"),
    (
        SWITCH | {"release": {"prompt": {"source": "x", "root": "b3:zz"}}},
        "release.prompt.root",
        "is not a root",
    ),
    (SWITCH | {"soak": "5 minutes"}, "soak", "'5 minutes' is no duration: write 30s, 10m"),
    (SWITCH | {"soak": True}, "soak", "must be a number or text, and is true or false"),
    (SWITCH | {"sok": 5}, "sok", "unknown field"),
    (SWITCH | {"retain": 9}, "retain", "must be at most 8"),
    (SWITCH | {"gate": {"ready": "all"}}, "gate.ready", "is neither a percentage (98%) nor"),
    (SWITCH | {"gate": {"max_failed": -1}}, "gate.max_failed", "must be at least 0"),
    (SWITCH | {"deadlines": {"prepair": 1}}, "deadlines.prepair", "unknown field"),
    (SWITCH | {"consistency": "none"}, "consistency", "is none of session, eventual, strict"),
    (
        SWITCH | {"guardrails": {"on_breach": "cry"}},
        "guardrails.on_breach",
        "is none of rollback, pause",
    ),
    (
        SWITCH | {"guardrails": {"on_inconclusive": "x"}},
        "guardrails.on_inconclusive",
        "is none of extend, pause, proceed",
    ),
    (SWITCH | {"guardrails": {"drift": {"ps": 1}}}, "guardrails.drift.ps", "unknown field"),
    (SWITCH | {"probes": [{"expect": "a"}]}, "probes[0]", "give a prompt or messages"),
    (
        SWITCH | {"probes": [{"prompt": "p", "messages": [{"role": "user", "content": "x"}]}]},
        "probes[0]",
        "give a prompt or messages, and not both",
    ),
    (SWITCH | {"probes": [{"prompt": "p"}]}, "probes[0]", "give exactly one of expect, contains"),
    (
        SWITCH | {"probes": [{"prompt": "p", "expect": "a", "contains": "b"}]},
        "probes[0]",
        "give exactly one of expect, contains, similar_to",
    ),
    (SWITCH | {"probes": [{"prompt": "p", "contains": " "}]}, "probes[0].contains", "is empty"),
    (
        SWITCH | {"probes": [{"prompt": "p", "expect": "a", "similarity": 0.5}]},
        "probes[0].similarity",
        "belongs to similar_to, not to expect",
    ),
    (
        SWITCH | {"probes": [{"prompt": "p", "similar_to": "a", "similarity": 2}]},
        "probes[0].similarity",
        "must be at most 1",
    ),
    (SWITCH | {"probes": [{"prompt": "p", "exspect": "a"}]}, "probes[0].exspect", "unknown field"),
    (
        SWITCH | {"probes": [{"messages": [{"role": "pope", "content": "a"}], "expect": "a"}]},
        "probes[0].messages[0].role",
        "",
    ),
    (SWITCH | {"probes": [{"prompt": "p", "expect": "a"}] * 21}, "probes", ""),
    (
        SWITCH | {"probes": [{"prompt": "p" * 65_536, "expect": "a"}]},
        "probes",
        "may take 65536 (64 KiB)",
    ),
    (
        {"service": "support", "strategy": "rollback", "probes": []},
        "probes",
        "belongs to a weighted or user-group or full-switch plan",
    ),
    (SWITCH | {"guardrails": {}}, "guardrails", "are asked while a step soaks, and none does"),
    (
        WEIGHTED | {"steps": [{"weight": 100, "soak": 0}], "guardrails": {}},
        "guardrails",
        "are asked while a step soaks, and none does",
    ),
    (
        WEIGHTED | {"steps": [{"weight": 100, "soak": -1}], "guardrails": {}},
        "steps[0].soak",
        "-1 is below zero",
    ),
    (WEIGHTED | {"steps": []}, "steps", "must have at least 1, and has fewer"),
    (WEIGHTED | {"steps": [{"weight": 5}, {"weight": 0}]}, "steps[1].weight", "must be above 0"),
    (WEIGHTED | {"steps": [{"weight": 101}]}, "steps[0].weight", "must be at most 100"),
    (WEIGHTED | {"steps": [{"weight": 5, "soack": 1}]}, "steps[0].soack", "unknown field"),
    (WEIGHTED | {"strategy": "full-switch"}, "steps", "belongs to a weighted plan, and this one"),
    (SWITCH | {"groups": []}, "groups", "belongs to a user-group plan"),
    (
        WEIGHTED | {"steps": [{"weight": 50}, {"weight": 25}, {"weight": 100}]},
        "steps[1].weight",
        "25 is not above 50, the weight of the step before it",
    ),
    (
        WEIGHTED | {"steps": [{"weight": 100}, {"weight": 100}]},
        "steps[1].weight",
        "100 is not above 100",
    ),
    (
        WEIGHTED | {"steps": [{"weight": 10}, {"weight": 50}]},
        "steps[1].weight",
        "the last step is 50, and must be 100",
    ),
    (WEIGHTED | {"release": [7, 8]}, "release", "is neither the number of a release nor"),
    (
        WEIGHTED | {"steps": [{"weight": 100, "soak": "soon"}]},
        "steps[0].soak",
        "'soon' is no duration",
    ),
    (SWITCH | {"strategy": "user-group"}, "groups", "missing"),
    ({"service": "s", "strategy": "rollback", "to": "yesterday"}, "to", "is neither last-good nor"),
    ({"service": "s", "strategy": "rollback", "to": 0}, "to", "is neither last-good nor"),
    ({"service": "s", "strategy": "rollback", 1: 2}, "", "the names of fields are text"),
]


@pytest.mark.parametrize(("content", "path", "words"), WRONG, ids=[f"{w[1]}-{w[2]}" for w in WRONG])
def test_error_names_the_field_and_what_is_allowed(content: object, path: str, words: str) -> None:
    """Nothing of msgspec's own way to say it reaches a person unexplained."""
    with pytest.raises(PlanError) as wrong:
        parse(content)

    assert path == wrong.value.path
    assert words in wrong.value.message


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (SWITCH | {"sok": 5}, "did you mean 'soak'?"),
        (SWITCH | {"release": {"adaptor": {}}}, "did you mean 'adapter'?"),
        (WEIGHTED | {"steps": [{"weight": 5, "soack": 1}]}, "did you mean 'soak'?"),
        (
            WEIGHTED | {"steps": [{"weight": 50}]},
            "add a step of weight 100; to hold traffic at a lower one, give it manual: true",
        ),
        (
            WEIGHTED | {"steps": [{"weight": 50}, {"weight": 5}]},
            "weights grow from step to step, as in 10, 25, 50, 100",
        ),
        (SWITCH | {"strategy": "ful-switch"}, "did you mean 'full-switch'?"),
        (SWITCH | {"strategy": "canary"}, ""),  # what is wrong names them all
        (
            WEIGHTED | {"soak": "5m"},
            "each step has its own, as in steps: [{weight: 10, soak: 5m}, {weight: 100}]",
        ),
        (
            WEIGHTED | {"steps": [10, 100]},
            "write {weight: 10}; --steps takes bare numbers, a file does not",
        ),
        (WEIGHTED | {"steps": [True]}, ""),
        (
            SWITCH | {"gate": {"zzz": 1}},
            (
                "known: free_memory, kv_used, max_absent, max_failed, max_unavailable,"
                " max_unready, ready"
            ),
        ),
        (SWITCH | {"service": 7}, "put it in quotes"),
    ],
)
def test_error_suggests_the_field_that_was_meant(content: object, hint: str) -> None:
    """Or says which there are."""
    with pytest.raises(PlanError) as wrong:
        parse(content)

    assert hint == wrong.value.hint


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["ready", "adapter", "source", "weight", "x"]), inner)
    ),
    max_leaves=4,
)
FIELDS = ["service", "release", "soak", "steps", "gate", "deadlines", "to", "retain", "groups"]


@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
    st.sampled_from(["weighted", "user-group", "full-switch", "rollback"]),
)
def test_any_document_is_a_plan_or_a_plan_error(fields: dict[str, Any], strategy: str) -> None:
    """No foreign exception; and what is a plan can be stored and read again."""
    try:
        document = parse({"service": "support", "strategy": strategy, "release": 1} | fields)
        plan = resolve(document, {})
    except PlanError:
        return
    assert plan == decode(encode(plan), Plan)


@pytest.mark.parametrize(
    ("content", "path"),
    [
        (
            SWITCH
            | {
                "strategy": "user-group",
                "groups": [{"name": "a", "tenant": "a"}],
                "allow_downtime": True,
            },
            "allow_downtime",
        ),
        (SWITCH | {"allow_downtime": True, "consistency": "strict"}, "allow_downtime"),
        (
            {"service": "support", "strategy": "rollback", "consistency": "strict"},
            "consistency",
        ),
    ],
)
def test_what_is_not_built_is_refused_by_name(content: dict[str, Any], path: str) -> None:
    """When the plan is written, and never half done."""
    with pytest.raises(PlanError) as refused:
        require_built(parse(content))

    assert path == refused.value.path


@pytest.mark.parametrize(
    "content",
    [
        *DESIGN_PLANS,
        SWITCH | {"release": {"index": {"source": "./i"}, "prompt": {"source": "./p"}}},
        SWITCH,
        SWITCH | {"manual": True},
        SWITCH | {"consistency": "strict"},
        SWITCH | {"gate": {"ready": "98%"}},
        SWITCH | {"guardrails": {}, "soak": "5m"},
        SWITCH | {"guardrails": {}, "manual": True},
        WEIGHTED,
    ],
)
def test_what_is_built_is_not_refused(content: dict[str, Any]) -> None:
    """All four strategies, with what each may ask for, and several components at once."""
    document = parse(content)
    require_built(document)

    assert content["service"] == document.service


@pytest.mark.parametrize(
    "source", ["https://ann:hunter2@host/v8", "https://host/v8?sig=hunter2", "ftp://host/v8"]
)
def test_source_that_is_no_plain_place_is_refused(source: str) -> None:
    """A plan is stored and shown: a secret in it is refused, and not repeated."""
    content = {
        "service": "s",
        "strategy": "full-switch",
        "release": {"adapter": {"source": source}},
    }
    with pytest.raises(PlanError) as caught:
        parse(content)
    assert "release.adapter.source" == caught.value.path
    assert "hunter2" not in str(caught.value)


def test_resolved_plan_holds_numbers_only() -> None:
    """Durations in seconds, every default filled in."""
    content = SWITCH | {"soak": "1m30s", "deadlines": {"prepare": "1h", "drain": 5}}
    plan = resolve(parse(content), {Component.ADAPTER: a_root(1)})

    assert (90.0, 3600.0, 30.0, 5.0) == (
        plan.steps[0].soak_s,
        plan.prepare_s,
        plan.converge_s,
        plan.drain_s,
    )
    assert {"adapter": a_root(1)} == plan.target


def test_weighted_plan_goes_by_the_steps_that_are_written() -> None:
    """Each with its own soak; without any, 10 25 50 100 with five minutes each."""
    steps = [{"weight": 5, "soak": "10m", "manual": True}, {"weight": 100, "soak": 0}]
    default = {k: v for k, v in WEIGHTED.items() if k != "steps"}

    assert (
        PlanStep(weight=5, soak_s=600, manual=True),
        PlanStep(weight=100),
    ) == resolve(parse(WEIGHTED | {"steps": steps}), {}).steps
    assert tuple(PlanStep(weight=w, soak_s=300) for w in (10, 25, 50, 100)) == (
        resolve(parse(default), {}).steps
    )


def test_full_switch_is_one_step_of_all_traffic() -> None:
    """With its soak, and waiting for a person where it is manual."""
    one = resolve(parse(SWITCH | {"soak": "1m", "manual": True}), {})

    assert (PlanStep(weight=100, soak_s=60, manual=True),) == one.steps


def test_same_wish_has_the_same_digest() -> None:
    """However it was typed; and another wish has another."""
    one = resolve(parse(SWITCH | {"soak": "90s"}), {})
    two = resolve(parse(SWITCH | {"soak": "1m30s", "reason": "x"}), {})
    other = resolve(parse(SWITCH | {"soak": "91s"}), {})

    assert one.digest == two.digest
    assert one.digest != other.digest


@pytest.mark.parametrize("soak", [float("inf"), float("nan"), "9" * 400 + "d"])
def test_time_without_an_end_is_refused(soak: object) -> None:
    """JSON has no number for it: the stored plan could not be read again."""
    with pytest.raises(PlanError, match="soak: is no finite number of seconds"):
        resolve(parse(SWITCH | {"soak": soak}), {})


def test_schema_names_every_strategy() -> None:
    """Editors check plans by it."""
    text = json.dumps(schema())

    assert all(tag in text for tag in ("weighted", "user-group", "full-switch", "rollback"))


def test_golden_prompts_are_a_value_of_their_own_which_the_plan_names() -> None:
    """So that no watched key holds them; other prompts are another plan."""
    probes = [
        {"prompt": "Capital of France?", "contains": "Paris", "max_tokens": 8},
        {"messages": [{"role": "user", "content": "Hello"}], "similar_to": "Hello, you."},
    ]
    document = parse(SWITCH | {"probes": probes})
    golden = golden_of(document)

    assert golden is not None
    assert [("Paris", None, 8), (None, 0.8, 64)] == [
        (p.contains, p.similarity if p.similar_to else None, p.max_tokens) for p in golden.prompts
    ]
    assert golden.digest == resolve(document, {}).probes
    assert "" == resolve(parse(SWITCH), {}).probes
    assert golden_of(parse(SWITCH)) is None
    assert (
        resolve(document, {}).digest != resolve(parse(SWITCH | {"probes": probes[:1]}), {}).digest
    )


FULL: dict[str, Any] = {
    "service": "support",
    "strategy": "weighted",
    "release": {"adapter": {"source": "file:///a"}},
    "steps": [{"weight": 100, "soak": "5m"}],
    "gate": {"ready": "98%"},
    "deadlines": {"prepare": "1m"},
    "guardrails": {"error_ratio": 1.5, "drift": {"psi": 0.2}},
    "probes": [{"messages": [{"role": "user", "content": "x"}], "contains": "y"}],
}


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield where each field of a plan stands, and its name."""
    if isinstance(node, list):
        for n, value in enumerate(node):
            yield from places(value, (*path, n))
    elif isinstance(node, dict):
        for name, value in node.items():
            yield path, name
            yield from places(value, (*path, name))


@pytest.mark.parametrize(("path", "name"), list(places(FULL)), ids=str)
def test_slip_in_any_fields_name_is_refused_with_the_one_that_was_meant(
    path: tuple[Any, ...], name: str
):
    content = copy.deepcopy(FULL)
    node: Any = content
    for key in path:
        node = node[key]
    node[f"{name}x"] = node[name]
    if name == "strategy":
        del node[name]
    with pytest.raises(PlanError) as refusal:
        parse(content)
    assert refusal.value.hint.startswith(f"did you mean '{name}'")
