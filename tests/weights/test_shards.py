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
        ('{"metadata": {"total_size": "3"}, "weight_map": {}}', "does not validate", 0),
        ('{"weight_map": {}, "weight_map": {}}', "duplicate key 'weight_map' in the index", 19),
        ('{"m": [{"weight_map": 1}, "]"], "m": 1, "weight_map": {}}', "duplicate key 'm'", 32),
        ('{"weight_map": {}, "metadata": {"k": [1, {}], "k": 2}}', "duplicate key 'k'", 46),
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
    assert seen == [0]


@pytest.mark.parametrize("total", [3, 3.0, None])
def test_shards_total_size_may_be_right_or_absent(tmp_path, total):
    folder = sharded(tmp_path, SHARDS)
    document = json.loads((folder / INDEX).read_text())
    document["metadata"] = {"total_size": total, "total_parameters": [1, {"x": "}"}]}
    assert scan(fill(folder, {INDEX: json.dumps(document)})).tensors
    assert scan(fill(folder, {INDEX: json.dumps(document | {"metadata": None})})).tensors


def test_shards_total_size_must_be_that_of_the_tensors(tmp_path):
    folder = sharded(tmp_path, SHARDS)
    document = json.loads((folder / INDEX).read_text()) | {"metadata": {"total_size": 4}}
    with pytest.raises(MalformedWeights, match="total_size is 4, the tensors have 3 bytes"):
        scan(fill(folder, {INDEX: json.dumps(document)}))


def numbered(*names: str) -> dict[str, bytes | str]:
    return {f"{name}.safetensors": pack([u8(name, b"1")]) for name in names}


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["m-00001-of-00003", "m-00003-of-00003"], "m has 2 of 3 shards: number 2 is missing"),
        (["m-1-of-999999999"], "has 1 of 999999999 shards: number 2 is missing"),
        (["m-00002-of-00002"], "number 1 is missing"),
        (["m-00000-of-00001"], "its number does not fit"),
        (["m-00003-of-00002", "m-00001-of-00002"], "its number does not fit"),
        (["m-00001-of-00002", "m-00002-of-00003"], "fit to m-00001-of-00002.safetensors"),
    ],
)
def test_shards_that_count_themselves_must_be_complete(tmp_path, names, told):
    with pytest.raises(MalformedWeights, match=told):
        scan(fill(tmp_path, numbered(*names)))


def test_shards_that_count_themselves_need_no_index(tmp_path):
    names = ("m-00001-of-00002", "m-00002-of-00002", "extra", "head-1-of-1")
    folder = fill(tmp_path, numbered(*names))
    assert len(scan(folder).tensors) == 4
    assert scan(folder / "m-00001-of-00002.safetensors").tensors  # one that was named alone
