"""The published schemas: fresh, true of what is printed, and as strict as vctl itself."""

import ast
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.builders import SERVICE, a_rollout, a_route
from tests.cli import published
from tests.cli.support import CONVERGES, Vctl, a_fleet, conductor
from tests.weights import building
from vctl_cli import schemas
from vctl_plans.errors import PlanError
from vctl_plans.parsing import parse
from vctl_plans.phase import RolloutPhase

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
PRINTERS = {"show", "show_document", "line", "document", "_change"}


def test_committed_schemas_are_what_the_structs_give():
    assert schemas.stale(ROOT) == []


def test_stale_schemas_are_named_and_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    schemas.write(tmp_path)
    assert 0 == schemas.main(["--check"], tmp_path)
    (tmp_path / schemas.FOLDER / "route.schema.json").write_text("{}")
    (tmp_path / schemas.FOLDER / "gone.schema.json").write_text("{}")
    assert 1 == schemas.main(["--check"], tmp_path)
    told = capsys.readouterr().err
    assert "stale: docs/schemas/gone.schema.json" in told
    assert "stale: docs/schemas/route.schema.json" in told
    assert 0 == schemas.main([], tmp_path)
    assert schemas.stale(tmp_path) == []


def test_every_kind_that_is_printed_has_a_schema():
    printed = {kind for path in (ROOT / "cli").rglob("*.py") for kind in _kinds(path)}
    assert len(printed) > 20
    assert set(schemas.KINDS) == printed


def _kinds(path: Path) -> set[str]:
    """Return the kinds that a module's calls name; `fleetwatch` has its two in a value."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        for keyword in node.keywords:
            if keyword.arg == "kind" and isinstance(keyword.value, ast.Constant):
                found |= {str(keyword.value.value)} if name in PRINTERS else set()
    return found


def _plan_validator() -> Any:
    schema = json.loads((ROOT / schemas.FOLDER / "plan.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example_is_as_the_schema_says_and_names_it(example: Path):
    text = example.read_text()
    place = "../docs/schemas/plan.schema.json"
    assert text.startswith(f"# yaml-language-server: $schema={place}\n")
    assert (example.parent / place).is_file()
    _plan_validator().validate(yaml.safe_load(text))


GOOD = {"service": "support", "strategy": "weighted", "release": 2}


@pytest.mark.parametrize(
    "change",
    [
        {"soaks": "5m"},
        {"release": {"adaptor": {"source": "./a"}}},
        {"release": {"adapter": {"source": "./a", "roots": "b3:"}}},
        {"release": 0},
        {"strategy": "weighed"},
        {"steps": []},
        {"steps": [{"weight": 101}]},
        {"steps": [{"weight": "ten"}]},
        {"steps": [{"weight": 100, "soak": "five"}]},
        {"gate": {"ready": "98 %"}},
        {"guardrails": {"on_breach": "explode"}},
        {"retain": 9},
        {"allow_downtime": "yes"},
    ],
    ids=str,
)
def test_what_the_schema_refuses_vctl_refuses_too(change: dict[str, Any]):
    content = GOOD | change
    assert not _plan_validator().is_valid(content)
    with pytest.raises(PlanError):
        parse(content)


def test_variable_may_stand_for_a_value_of_any_type():
    step = {"weight": "${share}", "soak": "${soak}", "manual": "${manual}"}
    content = GOOD | {"steps": [step], "retain": "${kept}", "release": "${number}"}
    _plan_validator().validate(content)


def test_field_is_described_by_the_comment_behind_it():
    made = schemas.plan()["$defs"]["GateSpec"]["properties"]["max_absent"]
    assert "nodes that may vanish meanwhile" == made["description"]


def _converged(*, releases: int = 2) -> Vctl:
    rollout = a_rollout(RolloutPhase.CONVERGED, confirmed=3)
    route = a_route(stable=2, good=(1, 2), instant=(1,))
    return a_fleet(releases=releases, route=route, rollout=rollout)


READS: list[tuple[str, tuple[str, ...]]] = [
    ("contexts", ("config", "get-contexts")),
    ("diagnosis", ("doctor",)),
    ("events", ("events",)),
    ("explanation", ("route", "explain")),
    ("history", ("rollout", "history")),
    ("release", ("release", "show", "2")),
    ("releases", ("release", "list")),
    ("rollout-status", ("rollout", "status")),
    ("route", ("route", "show")),
    ("services", ("service", "list")),
    ("status", ("status",)),
    ("summary", ("status", "--summary")),
    ("version", ("version",)),
]


@pytest.mark.parametrize(("kind", "verb"), READS, ids=lambda value: value or "")
def test_what_a_verb_prints_is_as_its_schema_says(kind: str, verb: tuple[str, ...]):
    said = _converged()(*verb, "-o", "json")
    assert said.out, said.err
    assert [kind] == published.check(said.out)


def test_what_is_printed_of_weights_is_as_the_schemas_say(tmp_path: Path):
    a, b = building.adapter(tmp_path / "a"), building.adapter(tmp_path / "b")
    root = json.loads(Vctl()("manifest", str(a), "--output", "json").out)["root"]
    verbs = {
        "manifest": ("manifest", str(a)),
        "verification": ("verify-weights", str(a), "--root", root),
        "weights-diff": ("weights", "diff", str(a), str(b)),
    }
    for kind, verb in verbs.items():
        said = Vctl()(*verb, "--output", "json")
        assert said.out, said.err
        assert [kind] == published.check(said.out)


def test_lines_of_a_tail_are_as_their_schemas_say(tmp_path: Path):
    vctl = a_fleet()
    vctl.conduct = conductor(*CONVERGES)
    adapter = str(building.adapter(tmp_path / "v2"))
    said = vctl("rollout", "start", "--adapter", adapter, "-o", "json")
    assert {"decision"} <= set(published.check(said.out))
    said = vctl("rollout", "start", "--adapter", adapter, "--no-watch", "-o", "json")
    assert ["rollout"] == published.check(said.out)
    assert SERVICE == json.loads(said.out)["service"]


def test_check_of_what_is_printed_can_fail():
    with pytest.raises(jsonschema.ValidationError):
        published.check_document({"kind": "version", "vctl": "1", "python": "3", "more": 1})
    with pytest.raises(jsonschema.ValidationError):
        published.check_document({"kind": "version", "vctl": "1"})
