import json

import pytest
from safetensors import safe_open

from vctl_agent.engines.torch.generate import Engine, Order, answer
from vctl_agent.engines.torch.making import make_adapter, make_base
from vctl_agent.engines.torch.model import ModelConfig
from vctl_agent.engines.torch.sampling import Sampling
from vctl_agent.engines.torch.tokenizer import EOS, PRINTABLE, encode
from vctl_plans.errors import ArtifactError

pytestmark = pytest.mark.torch


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_the_same_seed_gives_the_same_bytes(folders, tmp_path):
    make_base(tmp_path / "base", seed=1)
    make_adapter(
        tmp_path / "a",
        base="base",
        config=ModelConfig(),
        seed=1,
        rank=8,
        targets=("q_proj", "v_proj"),
    )
    assert contents(folders / "base") == contents(tmp_path / "base")
    assert contents(folders / "a") == contents(tmp_path / "a")


def test_another_seed_gives_other_weights(folders, tmp_path):
    make_base(tmp_path / "other", seed=2)
    one, two = contents(folders / "base"), contents(tmp_path / "other")
    assert [name for name in one if one[name] != two[name]] == ["model.safetensors"]


def test_an_adapter_is_in_the_format_of_peft(folders):
    settings = json.loads((folders / "a" / "adapter_config.json").read_text())
    assert (settings["peft_type"], settings["r"], settings["lora_alpha"]) == ("LORA", 8, 16)
    with safe_open(folders / "a" / "adapter_model.safetensors", "pt") as file:
        name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
        assert file.get_slice(name).get_shape() == [8, 64]
        assert len(file.keys()) == 2 * 2 * 2


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(ArtifactError, match="is there already"):
        make_base(tmp_path, seed=1)
    assert contents(tmp_path) == {"mine": b"precious"}


def test_an_unknown_target_is_named(tmp_path):
    with pytest.raises(ArtifactError, match="no such target: w_proj"):
        make_adapter(
            tmp_path / "x", base="b", config=ModelConfig(), seed=1, rank=8, targets=("w_proj",)
        )


def test_base_and_adapters_answer_differently_and_in_readable_text(base, load):
    engine = Engine(base, cache_blocks=0)
    readable = {*PRINTABLE, EOS}
    for prompt in ("Hello", "What is the refund policy?", "x" * 60):
        order = Order(tuple(encode(prompt)), 16, Sampling(top_logprobs=0))
        said = [answer(engine, order, adapter=a) for a in (None, load("a"), load("b"))]
        ids = [tuple(piece.token.id for piece in pieces) for pieces in said]
        first = [pieces[0].token.logprob or 0.0 for pieces in said]
        assert len(set(ids)) == 3
        assert set().union(*ids) <= readable
        assert min(abs(x - y) for x, y in zip(first, first[1:] + first[:1], strict=True)) > 0.01
