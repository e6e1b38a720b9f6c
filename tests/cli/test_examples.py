"""Every example is a plan that vctl carries out, as it stands."""

from pathlib import Path

import pytest

from tests.builders import a_rollout, a_route
from tests.cli.support import a_fleet
from tests.weights import building
from vctl_plans.phase import RolloutPhase

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


STRATEGIES = {
    "base": "full-switch",
    "components": "full-switch",
    "guarded": "weighted",
    "probes": "full-switch",
    "one-place": "full-switch",
    "strict": "full-switch",
}


def test_there_is_an_example_of_each_strategy():
    stems = {example.stem for example in EXAMPLES}
    assert {"full-switch", "rollback", "user-group", "weighted", *STRATEGIES} == stems


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example_is_started_as_it_stands(example: Path, tmp_path: Path):
    building.adapter(tmp_path / "adapters" / "v2")
    building.fill(tmp_path / "prompts" / "v12", {"system.txt": "You are kind."})
    building.fill(tmp_path / "indexes" / "v3", {"index.faiss": "x"})
    model = building.pack([building.u8("w", b"1")])
    building.fill(tmp_path / "bases" / "v2", {"config.json": b"{}", "model.safetensors": model})
    plan = tmp_path / example.name
    plan.write_text(example.read_text())
    route = a_route(stable=2, good=(1, 2), instant=(1,))
    vctl = a_fleet(releases=2, route=route, rollout=a_rollout(RolloutPhase.CONVERGED))
    said = vctl("rollout", "start", str(plan), "--no-watch")
    rollout = vctl.service().rollout
    assert rollout is not None
    assert (0, f"{rollout.id}\n") == (said.code, said.out)
    assert STRATEGIES.get(example.stem, example.stem) == rollout.strategy
    assert rollout.reason
