"""Make tiny models for the tests; run by the environment that has vLLM, see `install.py`.

    python make_models.py FOLDER

makes FOLDER/base and FOLDER/other (two bases of one shape), FOLDER/narrow (a base of another) and
FOLDER/v1, v2, v3 (LoRA adapters in the PEFT format for the first two), FOLDER/broken (cut short)
and FOLDER/rank16 (a higher rank than the tests' engines take). The same bytes each time.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 512
HIDDEN = 128
LAYERS = 2
STD = 0.5
"""Large enough that the log-probabilities of two adapters differ clearly."""

_SENTENCE = "A release serves on every node or on none, and the cache of one is never another's. "


def make_base(folder: Path, seed: int, *, hidden: int = HIDDEN) -> None:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.1,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([_SENTENCE], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<end>",
        chat_template="{% for m in messages %}{{ m['role'] }}: {{ m['content'] }} {% endfor %}",
    )


def make_adapter(folder: Path, seed: int, *, rank: int = 8) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    dice = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(LAYERS):
        for module in ("q_proj", "v_proj"):
            at = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            weights[f"{at}.lora_A.weight"] = STD * torch.randn(rank, HIDDEN, generator=dice)
            weights[f"{at}.lora_B.weight"] = STD * torch.randn(HIDDEN, rank, generator=dice)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "base",
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj", "v_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))


def make_broken(folder: Path, whole: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in whole.iterdir():
        cut = file.suffix == ".safetensors"
        (folder / file.name).write_bytes(file.read_bytes()[: -1000 if cut else None])


if __name__ == "__main__":
    place = Path(sys.argv[1])
    make_base(place / "base", seed=1)
    make_base(place / "other", seed=2)
    make_base(place / "narrow", seed=3, hidden=HIDDEN // 2)
    for number in (1, 2, 3):
        make_adapter(place / f"v{number}", seed=number)
    make_adapter(place / "rank16", seed=4, rank=16)
    make_broken(place / "broken", place / "v1")
