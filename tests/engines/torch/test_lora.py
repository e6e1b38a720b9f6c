import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from vctl_agent.engines.torch.checkpoint import load_base
from vctl_agent.engines.torch.lora import NoAdapterError, cache_identity, load_adapter
from vctl_plans.errors import ArtifactError, MalformedWeights

pytestmark = pytest.mark.torch

Q0 = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.fixture
def copy(folders, tmp_path):
    shutil.copytree(folders / "a", tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def load_copy(copy, base):
    return lambda: load_adapter("copy", str(copy), base=base, max_rank=64)


def settings(folder, **changes):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def tensors(folder, change):
    file = folder / "adapter_model.safetensors"
    held = load_file(file)
    change(held)
    save_file(held, file)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"r": 0}, "rank r is 0"),
        ({"r": 65}, "rank r is 65; this engine takes 1 to 64"),
        ({"target_modules": ["q_proj", "gate_proj"]}, "target_modules names gate_proj"),
        ({"target_modules": "all-linear"}, "target_modules must be a list"),
        ({"target_modules": []}, "target_modules must be a list"),
        ({"use_dora": True}, "use_dora is True"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"r": 4}, r"lora_A.weight has shape \(8, 64\); the base and r need \(4, 64\)"),
        ({"target_modules": ["q_proj"]}, "v_proj.lora_A.weight matches no targeted projection"),
        ({"target_modules": ["q_proj", "v_proj", "o_proj"]}, "o_proj.lora_A.weight is missing"),
        ({"r": "eight"}, "Expected `int`, got `str`"),
    ],
)
def test_settings_that_do_not_fit_are_named(copy, load_copy, changes, reason):
    settings(copy, **changes)
    with pytest.raises(ArtifactError, match=reason):
        load_copy()


def test_a_tensor_for_a_layer_that_the_base_lacks_is_named(copy, load_copy):
    def add(held):
        held[Q0.replace("layers.0", "layers.7")] = held[Q0].clone()

    tensors(copy, add)
    with pytest.raises(ArtifactError, match=r"layers\.7.* matches no targeted projection"):
        load_copy()


def test_a_number_that_is_not_finite_is_refused(copy, load_copy):
    tensors(copy, lambda held: held[Q0].fill_(float("nan")))
    with pytest.raises(MalformedWeights, match="not finite"):
        load_copy()


def test_integers_are_refused(copy, load_copy):
    tensors(copy, lambda held: held.update({Q0: held[Q0].int()}))
    with pytest.raises(MalformedWeights, match="no kind of float"):
        load_copy()


def test_a_cut_file_is_refused(copy, load_copy):
    file = copy / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(MalformedWeights, match=r"adapter_model\.safetensors"):
        load_copy()


def test_a_pickle_is_no_adapter(copy, load_copy):
    file = copy / "adapter_model.safetensors"
    torch.save(load_file(file), copy / "adapter_model.bin")
    file.unlink()
    with pytest.raises(NoAdapterError, match=r"adapter_model\.safetensors is missing"):
        load_copy()


def test_half_precision_is_taken(copy, load_copy):
    def halve(held):
        for name in held:
            held[name] = held[name].to(torch.bfloat16)

    tensors(copy, halve)
    assert load_copy().deltas[0]["q_proj"].down.dtype == torch.float32


def test_the_scale_is_alpha_over_rank_or_over_its_root(copy, load_copy):
    plain = load_copy().deltas[0]["q_proj"].up
    settings(copy, use_rslora=True)
    torch.testing.assert_close(load_copy().deltas[0]["q_proj"].up, plain * 8**0.5)


def test_the_identity_follows_name_path_and_bytes(folders, copy, base, load_copy):
    def identity(name, path):
        return cache_identity(base, load_adapter(name, str(path), base=base, max_rank=64))

    one = identity("copy", copy)
    assert identity("copy", copy) == one
    assert identity("other", copy) != one
    assert identity("copy", folders / "a") != one
    tensors(copy, lambda held: held[Q0].mul_(1.5))
    assert identity("copy", copy) != one
    assert cache_identity(base, None) != one


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'"),
        ({"vocab_size": 32000}, "vocab_size is 32000"),
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
        ({"num_attention_heads": 0}, "Expected `int` >= 1"),
        ({"hidden_size": 32}, "expected"),
        ({"num_hidden_layers": 3}, r"layers\.2"),
    ],
)
def test_a_base_that_does_not_fit_is_named(folders, tmp_path, change, reason):
    shutil.copytree(folders / "base", tmp_path / "base")
    file = tmp_path / "base" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ArtifactError, match=reason):
        load_base(str(tmp_path / "base"), device=torch.device("cpu"))
