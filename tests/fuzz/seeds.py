"""Good documents of each kind, to start from; and the words from which they are made."""

import json
import tempfile
from pathlib import Path

from tests.weights.building import adapter, adapter_config, fill, lora, pack, sharded, u8, zeros
from vctl_plans.weights import encode, scan

ADAPTER_WEIGHTS = pack(lora(), {"format": "pt"})
SHARDS = {"m1.safetensors": [u8("a", b"1"), u8("b", b"2")], "m2.safetensors": [u8("c", b"3")]}
INDEX = "model.safetensors.index.json"

_WEIGHTS = (
    pack([u8("a", b"1234"), zeros("b.weight", "BF16", 2, 3), zeros("c", "F4", 4)], {"k": "v"}),
    pack([zeros("s", "F32"), u8("\u00e9", b"")]),
    pack([]),
    ADAPTER_WEIGHTS,
)

WORDS = (
    *("dtype", "shape", "data_offsets", "__metadata__", "weight_map", "metadata", "total_size"),
    *("v", "kind", "root", "content_root", "files", "tensors", "left_out", "path", "size"),
    *("digest", "header", "header_size", "leaves", "name", "reason", "peft_type", "r"),
    *("LORA", "lora_alpha", "target_modules", "rank_pattern", "base_model_name_or_path"),
    *("F4", "F6_E2M3", "BF16", "U8", "BOOL", "model", "adapter", "plain", "b3:"),
    *("null", "true", "NaN", "1e9", "-1", "18446744073709551616", "\\u0000", "\\ud800", "../"),
    *("{", "}", "[", "]", '"', ",", ":", "\\", "\ufeff", "m1.safetensors"),
)


def seeds() -> dict[str, tuple[bytes, ...]]:
    """Make good inputs for each target."""
    headers = [content[8 : 8 + int.from_bytes(content[:8], "little")] for content in _WEIGHTS]
    tails = [len(c) - len(h) - 8 for c, h in zip(_WEIGHTS, headers, strict=True)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        whole = sharded(folder / "model", SHARDS)
        found = (
            scan(whole),
            scan(adapter(folder / "adapter")),
            scan(fill(folder / "plain", {"a.txt": "1", "b/c.txt": ""}), kind="plain"),
        )
        index = (whole / INDEX).read_bytes()
    return {
        "header": (
            *_WEIGHTS,
            *(n.to_bytes(2, "little") + h for n, h in zip(tails, headers, strict=True)),
        ),
        "index": (index, b'{"weight_map": {}}'),
        "manifest": tuple(map(encode, found)),
        "adapter_config": (
            adapter_config().encode(),
            adapter_config(rank_pattern={"q_proj": 4}, target_modules="all-linear").encode(),
            json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 1.5}).encode(),
        ),
    }
