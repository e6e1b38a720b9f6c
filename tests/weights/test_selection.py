import os

import pytest

from tests.weights.building import adapter, fill, pack, u8
from vctl_plans.errors import NotAllowed
from vctl_plans.weights import scan

WEIGHTS = pack([u8("a", b"1")])


def test_selection_of_an_adapter_is_what_serving_needs(tmp_path):
    folder = adapter(
        tmp_path,
        {
            "tokenizer.json": "{}",
            "tokenizer_config.json": "{}",
            "special_tokens_map.json": "{}",
            "chat_template.jinja": "x",
            "additional_chat_templates/tools.jinja": "x",
            "additional_chat_templates/notes.txt": "x",
            "README.md": "x",
            "training_args.bin": b"\x80\x02",
            "optimizer.pt": b"PK",
            "scheduler.pt": b"PK",
            "rng_state_0.pth": b"PK",
            "trainer_state.json": "{}",
            "adapter_model.bin": b"PK",
            "run.py": "x",
            ".gitattributes": "x",
            "checkpoint-100/adapter_model.safetensors": "x",
        },
    )
    manifest = scan(folder)
    assert manifest.kind == "adapter"
    assert [file.path for file in manifest.files] == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "additional_chat_templates/tools.jinja",
        "chat_template.jinja",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert {left.path: left.reason for left in manifest.left_out} == {
        ".gitattributes": "hidden or generated",
        "README.md": "not needed to serve",
        "adapter_model.bin": "a pickle; never served",
        "additional_chat_templates/notes.txt": "not needed to serve",
        "checkpoint-100/": "a folder",
        "optimizer.pt": "the trainer's own",
        "rng_state_0.pth": "the trainer's own",
        "run.py": "not needed to serve",
        "scheduler.pt": "the trainer's own",
        "trainer_state.json": "the trainer's own",
        "training_args.bin": "the trainer's own",
    }


def test_selection_root_does_not_know_what_was_left_out(tmp_path):
    before = scan(adapter(tmp_path))
    after = scan(adapter(tmp_path, {"training_args.bin": "x", "logs/a": "x"}))
    assert before.root == after.root


def test_selection_of_a_model(tmp_path):
    kept = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.model"]
    files = dict.fromkeys(kept, "{}") | {"model.safetensors": WEIGHTS}
    left = {"pytorch_model.bin": "x", "original/params.json": "x", "all_results.json": "{}"}
    manifest = scan(fill(tmp_path, files | left))
    assert [file.path for file in manifest.files] == kept
    assert [(one.path, one.reason) for one in manifest.left_out] == [
        ("all_results.json", "not needed to serve"),
        ("original/", "a folder"),
        ("pytorch_model.bin", "a pickle; never served"),
    ]


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "model.pth", "model.pkl", "model.ckpt"]
)
def test_selection_refuses_pickles_as_weights(tmp_path, name):
    fill(tmp_path, {name: b"PK", "config.json": "{}"})
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(NotAllowed, match=f"{name}: pickled weights are refused"):
            scan(path)
    with pytest.raises(NotAllowed, match=r"safetensors is missing: a model needs it"):
        scan(tmp_path, kind="model")
    assert [file.path for file in scan(tmp_path, kind="plain").files] == ["config.json", name]


@pytest.mark.parametrize(
    ("absent", "beside"),
    [
        ("adapter_config.json", {}),
        ("adapter_model.safetensors", {}),
        ("adapter_model.safetensors", {"adapter_model.bin": b"PK"}),
    ],
)
def test_selection_of_half_an_adapter_is_refused(tmp_path, absent, beside):
    folder = adapter(tmp_path, beside)
    (folder / absent).unlink()
    with pytest.raises(NotAllowed, match=f"{absent} is missing: an adapter needs it"):
        scan(folder)


def test_selection_refuses_other_weights_in_an_adapter(tmp_path):
    folder = adapter(tmp_path, {"model.safetensors": WEIGHTS})
    with pytest.raises(NotAllowed, match=r"model.safetensors: weights that do not belong"):
        scan(folder)


def test_selection_of_one_file_knows_its_kinds(tmp_path):
    fill(tmp_path, {"prompt.txt": "x", "m.safetensors": WEIGHTS})
    assert scan(tmp_path / "prompt.txt").kind == "plain"
    assert scan(tmp_path / "m.safetensors", kind="plain").tensors == ()
    with pytest.raises(NotAllowed, match="is one file, not an adapter"):
        scan(tmp_path / "m.safetensors", kind="adapter")
    with pytest.raises(NotAllowed, match="is one file, not a model"):
        scan(tmp_path / "prompt.txt", kind="model")


@pytest.mark.parametrize("name", [b"\xff.txt", b"a\nb.txt", b"a\\b.txt", b"c:x.txt"])
def test_selection_refuses_names_that_can_not_be_kept(tmp_path, name):
    (tmp_path / os.fsdecode(name)).write_text("x")
    with pytest.raises(NotAllowed, match=r"the path (is|holds)"):
        scan(tmp_path)


def test_selection_lists_any_name(tmp_path):
    adapter(tmp_path)
    (tmp_path / os.fsdecode(b"\xff.log")).write_text("x")
    assert [left.path for left in scan(tmp_path).left_out] == ["\\udcff.log"]


def test_selection_refuses_a_pipeline_of_models(tmp_path):
    folder = fill(tmp_path, {"model_index.json": "{}", "unet/diffusion.safetensors": WEIGHTS})
    with pytest.raises(NotAllowed, match=r"unet/diffusion.safetensors: weights in a folder"):
        scan(folder)
    assert scan(folder / "unet").kind == "model"
    assert [file.path for file in scan(folder, kind="plain").files] == [
        "model_index.json",
        "unet/diffusion.safetensors",
    ]


def test_selection_refuses_a_folder_that_is_named_as_weights(tmp_path):
    fill(tmp_path, {"model.safetensors": WEIGHTS, "more.safetensors/a.txt": "x"})
    with pytest.raises(NotAllowed, match=r"more.safetensors: is a folder, named as weights"):
        scan(tmp_path)


def test_selection_of_plain_files_knows_its_own_manifest(tmp_path):
    fill(tmp_path, {"a.txt": "x", "vctl.manifest.json": "{}", "d/vctl.manifest.json": "{}"})
    manifest = scan(tmp_path, kind="plain")
    assert [file.path for file in manifest.files] == ["a.txt"]
    assert [left.path for left in manifest.left_out] == ["d/vctl.manifest.json"]
