from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.weights.building import Made, adapter, adapter_config, lora, pack, u8, zeros
from vctl_plans.errors import ArtifactError, MalformedWeights
from vctl_plans.weights import AdapterFacts, adapter_facts, scan

Q = "base_model.model.layers.0.self_attn.q_proj"


def write(folder: Path, tensors: Sequence[Made] | None = None, config: str | None = None) -> Path:
    return adapter(
        folder,
        {
            "adapter_model.safetensors": pack(lora() if tensors is None else tensors),
            "adapter_config.json": adapter_config() if config is None else config,
        },
    )


def test_adapter_facts_are_the_configurations(tmp_path):
    assert adapter_facts(adapter(tmp_path)) == AdapterFacts(
        rank=4, max_rank=4, alpha=8.0, target_modules=("q_proj", "v_proj"), base="org/base"
    )


def test_adapter_facts_may_be_few(tmp_path):
    config = '{"peft_type":"LORA","r":4,"lora_alpha":0.5,"target_modules":"all-linear"}'
    assert adapter_facts(write(tmp_path, config=config)) == AdapterFacts(
        rank=4, max_rank=4, alpha=0.5, target_modules=("all-linear",), base=""
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA'"),
        ({"peft_type": None}, r"\$.peft_type"),
        ({"r": 0}, "r is 0"),
        ({"r": "4"}, r"\$.r"),
        ({"r": 4.5}, r"\$.r"),
        ({"r": 8}, "q_proj is of rank 4, the configuration's r is 8"),
        ({"lora_alpha": 0}, "lora_alpha is 0"),
        ({"lora_alpha": -1}, "lora_alpha is -1"),
        ({"lora_alpha": "x"}, r"\$.lora_alpha"),
        ({"target_modules": [1]}, r"\$.target_modules"),
        ({"base_model_name_or_path": 3}, r"\$.base_model_name_or_path"),
        ({"rank_pattern": {"q": 0}}, "rank_pattern holds a rank below 1"),
    ],
)
def test_adapter_config_is_refused_by_field(tmp_path, changes, told):
    with pytest.raises(MalformedWeights, match=told):
        scan(write(tmp_path, config=adapter_config(**changes)))


@pytest.mark.parametrize("config", ["", "[]", "{}", "{", "[" * 100_000, '{"r":1e999}'])
def test_adapter_config_that_is_none_is_refused(tmp_path, config):
    with pytest.raises(MalformedWeights, match="does not validate") as told:
        adapter_facts(write(tmp_path, config=config))
    assert told.value.path.endswith("adapter_config.json")


A, B = zeros(f"{Q}.lora_A.weight", "F32", 4, 8), zeros(f"{Q}.lora_B.weight", "F32", 8, 4)


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        ([u8("x", b"1")], "no tensor is a LoRA factor"),
        ([], "no tensor is a LoRA factor"),
        ([A], "has lora_A but not the other factor"),
        ([B], "has lora_B but not the other factor"),
        ([A, zeros(B.name, "F32", 4, 8)], "of different ranks"),
        ([A, zeros(B.name, "F32", 8)], "no matrix"),
        (lora(rank=8), "is of rank 8, the configuration's r is 4"),
        (lora(rank=0), "is of rank 0"),
    ],
)
def test_adapter_tensors_must_agree_with_the_rank(tmp_path, tensors, told):
    with pytest.raises(MalformedWeights, match=told) as refused:
        adapter_facts(write(tmp_path, tensors))
    assert refused.value.path.endswith("adapter_model.safetensors")


ACCEPTED: dict[str, tuple[list[Made], dict[str, object]]] = {
    "rank_pattern": ([*lora(), *lora(16, ["o_proj"])], {"rank_pattern": {"o_proj": 16}}),
    "embedding": (
        [
            zeros("m.embed.lora_embedding_A", "F16", 4, 99),
            zeros("m.embed.lora_embedding_B", "F16", 8, 4),
        ],
        {},
    ),
    "convolution": (
        [
            zeros("m.c.lora_A.weight", "F16", 4, 8, 3, 3),
            zeros("m.c.lora_B.weight", "F16", 8, 4, 1, 1),
        ],
        {},
    ),
    "named adapter": (
        [
            zeros("m.lora_A.default.weight", "F16", 4, 8),
            zeros("m.lora_B.default.weight", "F16", 8, 4),
        ],
        {},
    ),
    "magnitudes": ([*lora(), zeros(f"{Q}.lora_magnitude_vector", "F32", 8)], {"use_dora": True}),
    "stacked experts": (lora(rank=32), {"target_parameters": ["experts.w"]}),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_adapter_variants_are_accepted(tmp_path, case):
    tensors, changes = ACCEPTED[case]
    facts = adapter_facts(write(tmp_path, tensors, adapter_config(**changes)))
    assert facts.max_rank == (16 if case == "rank_pattern" else 4)


def test_adapter_facts_are_of_adapters(tmp_path):
    with pytest.raises(ArtifactError, match=r"adapter_config.json is missing"):
        adapter_facts(tmp_path)
    folder = adapter(tmp_path / "big", {"adapter_config.json": " " * 1_000_001})
    with pytest.raises(ArtifactError, match="over the limit of 1000000"):
        adapter_facts(folder)
