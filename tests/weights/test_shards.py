import json

import pytest

from tests.weights.building import fill, pack, sharded, u8
from vctl_plans.errors import ArtifactError, MalformedWeights, NotAllowed
from vctl_plans.weights import scan

SHARDS = {"m1.safetensors": [u8("a", b"1"), u8("b", b"2")], "m2.safetensors": [u8("c", b"3")]}
INDEX = "model.safetensors.index.json"


def index(folder, weight_map: object):
    return fill(folder, {INDEX: json.dumps({"weight_map": weight_map})})


def test_shards_that_agree_are_one_model(tmp_path):
    manifest = scan(sharded(tmp_path, SHARDS))
    assert [tensor.name for tensor in manifest.tensors] == ["a", "b", "c"]
    assert [file.path for file in manifest.files] == [
        "config.json",
        "m1.safetensors",
        "m2.safetensors",
        INDEX,
    ]


@pytest.mark.parametrize(
    ("weight_map", "told"),
    [
        (
            {
                "a": "m1.safetensors",
                "b": "m1.safetensors",
                "c": "m2.safetensors",
                "d": "m3.safetensors",
            },
            "the shard m3.safetensors is missing",
        ),
        (
            {"a": "m1.safetensors", "b": "m1.safetensors"},
            "m2.safetensors is not in the index",
        ),
        (
            {"a": "m1.safetensors", "b": "m2.safetensors", "c": "m2.safetensors"},
            "tensor 'b' is in m1.safetensors, the index says m2.safetensors",
        ),
        (
            {"a": "m1.safetensors", "c": "m2.safetensors"},
            "tensor 'b' is in m1.safetensors, the index says no shard",
        ),
        (
            {
                "a": "m1.safetensors",
                "b": "m1.safetensors",
                "c": "m2.safetensors",
                "d": "m2.safetensors",
            },
            "tensor 'd' is in no shard, the index says m2.safetensors",
        ),
        ([], "expected '{' in weight_map"),
        ({"a": 1}, "expected a string in weight_map"),
        ({"": "m1.safetensors"}, "an empty name"),
    ],
)
def test_shards_and_index_are_checked_both_ways(tmp_path, weight_map, told):
    with pytest.raises(MalformedWeights, match=told) as refused:
        scan(index(sharded(tmp_path, SHARDS), weight_map))
    assert refused.value.path.endswith(INDEX)


@pytest.mark.parametrize(
    "shard",
    ["../m1.safetensors", "/m1.safetensors", "d/m1.safetensors", "..", "", "a\\b", "c:x", "a\0"],
)
def test_shards_named_outside_are_refused(tmp_path, shard):
    with pytest.raises(NotAllowed, match="is not a plain file name"):
        scan(index(sharded(tmp_path, SHARDS), {"a": shard}))


@pytest.mark.parametrize(
    ("document", "told", "offset"),
    [
        ("", "does not validate", 0),
        ("{}", "missing required field `weight_map`", 0),
        ("[" * 100_000, "does not validate", 0),
        ('{"weight_map": {"a": "m1", "a": "m2"}}', "duplicate key 'a'", 27),
        ('{"metadata": {"total_size": NaN}, "weight_map": {}}', "does not validate", 0),
    ],
)
def test_shards_index_is_read_strictly(tmp_path, document, told, offset):
    with pytest.raises(MalformedWeights, match=told) as refused:
        scan(fill(sharded(tmp_path, SHARDS), {INDEX: document}))
    assert refused.value.offset == offset


def test_shards_may_not_share_a_name(tmp_path):
    content = pack([u8("c", b"3")])
    folder = fill(
        tmp_path,
        {"m1.safetensors": pack([u8("a", b"1"), u8("c", b"3")]), "m2.safetensors": content},
    )
    with pytest.raises(MalformedWeights, match=r"'c' is also in m1.safetensors") as refused:
        scan(folder)
    assert refused.value.path.endswith("m2.safetensors")
    assert refused.value.offset == len(content) - 1


def test_shards_need_no_index_when_names_are_apart(tmp_path):
    files = {name: pack(tensors) for name, tensors in SHARDS.items()}
    assert len(scan(fill(tmp_path, files)).tensors) == 3


def test_shards_missing_are_noticed_before_any_data_is_read(tmp_path):
    folder = sharded(tmp_path, SHARDS)
    (folder / "m2.safetensors").unlink()
    seen: list[int] = []
    with pytest.raises(ArtifactError, match=r"the shard m2.safetensors is missing"):
        scan(folder, progress=lambda done, total: seen.append(done))
    assert seen == []
