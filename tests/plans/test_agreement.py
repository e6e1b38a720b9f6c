"""Which nodes hash a source, and what their answers come to."""

import msgspec
import pytest

from vctl_plans.agreement import agreed, chosen
from vctl_plans.errors import ArtifactError, PlanError, RootMismatch
from vctl_plans.inspection import Hashed

ONE, OTHER = f"b3:{'1' * 64}", f"b3:{'2' * 64}"
SOURCE = "file:///mnt/v8"
FOUND = Hashed(request="q", root=ONE, size_bytes=2048, rank=8, base_name="base")
NODES = ("n1", "n2", "n3")
SILENT = dict.fromkeys(NODES, "did not answer within 30s")


def test_as_many_are_asked_as_were_wanted():
    present = {f"n{number}" for number in range(20)}
    asked = chosen(present, 3, request="q", field="f")

    assert 3 == len(set(asked))
    assert present > set(asked)
    assert asked == chosen(sorted(present), 3, request="q", field="f")


def test_others_are_asked_by_another_request():
    """So that a node that errs is found sooner or later."""
    present = [f"n{number}" for number in range(20)]
    asked = {chosen(present, 2, request=f"q{number}", field="f") for number in range(50)}

    assert set(present) == {node for nodes in asked for node in nodes}


def test_fewer_nodes_than_were_wanted_is_refused():
    with pytest.raises(PlanError, match=r"f: asks for 3 nodes; present: 2 \(a, b\)"):
        chosen({"b", "a"}, 3, request="q", field="f")


def test_what_all_found_is_taken():
    answers = dict.fromkeys(NODES, FOUND)

    assert (ONE, 8, "base") == (
        (what := agreed(SOURCE, NODES, answers, silent=SILENT)).root,
        what.rank,
        what.base_name,
    )


@pytest.mark.parametrize(
    "change",
    [{"root": OTHER}, {"size_bytes": 1}, {"rank": 4}, {"base_name": "x"}],
    ids=lambda change: next(iter(change)),
)
def test_who_found_what_is_told_where_nodes_do_not_agree(change: dict[str, object]):
    answers = dict.fromkeys(NODES, FOUND) | {"n2": msgspec.structs.replace(FOUND, **change)}
    with pytest.raises(RootMismatch) as refused:
        agreed(SOURCE, NODES, answers, silent=SILENT)

    said = "the nodes do not agree what it is: n1, n3: b3:111111111111 (2.0 KiB, rank 8, of base); "
    assert said in refused.value.message
    assert "n2: b3:" in refused.value.message


def test_node_that_could_not_hash_is_named_with_why():
    lacking = Hashed(request="q", problem="/mnt/v8: is not there on this node")
    with pytest.raises(ArtifactError) as refused:
        agreed(SOURCE, NODES, {"n1": FOUND, "n2": lacking, "n3": FOUND}, silent=SILENT)

    assert not isinstance(refused.value, RootMismatch)
    assert "n2: /mnt/v8: is not there on this node" in refused.value.message
    assert "n1, n3: b3:111111111111" in refused.value.message


def test_nothing_that_none_could_hash_is_taken():
    """Also where they agree on it."""
    lacking = Hashed(request="q", problem="/mnt/v8: is not there on this node")
    with pytest.raises(ArtifactError, match="n1, n2, n3: /mnt/v8"):
        agreed(SOURCE, NODES, dict.fromkeys(NODES, lacking), silent=SILENT)


def test_node_that_did_not_answer_is_named():
    """The others' word is not taken without it."""
    with pytest.raises(ArtifactError, match="n3: did not answer within 30s"):
        agreed(SOURCE, NODES, {"n1": FOUND, "n2": FOUND}, silent=SILENT)
