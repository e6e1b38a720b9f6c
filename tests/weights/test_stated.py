"""What a manifest and a configuration say of an adapter, without its weights."""

from pathlib import Path

import pytest

from tests.weights import building
from vctl_plans import weights
from vctl_plans.errors import MalformedWeights, NotAllowed, RootMismatch

WHERE = "s3://ml/v8"


def _config(folder: Path) -> bytes:
    return (folder / "adapter_config.json").read_bytes()


def test_they_say_what_the_files_say(tmp_path: Path):
    folder = building.adapter(tmp_path / "v8")
    manifest = weights.scan(folder)

    assert weights.adapter_facts(folder) == weights.stated_facts(
        manifest, _config(folder), where=WHERE
    )


def test_other_configuration_than_the_manifests_is_refused(tmp_path: Path):
    folder = building.adapter(tmp_path / "v8")
    manifest = weights.scan(folder)
    other = _config(folder).replace(b'"r": 4', b'"r": 8')
    with pytest.raises(RootMismatch, match=r"s3://ml/v8: adapter_config\.json is not the one"):
        weights.stated_facts(manifest, other, where=WHERE)


@pytest.mark.parametrize("kind", ["model", "plain"])
def test_manifest_of_something_else_is_refused(kind: weights.Kind, tmp_path: Path):
    folder = building.adapter(tmp_path / "v8", {"model.safetensors": building.pack([])})
    manifest = weights.scan(folder, kind=kind)
    with pytest.raises(NotAllowed, match=f"its manifest is of kind {kind}"):
        weights.stated_facts(manifest, _config(folder), where=WHERE)


def test_ranks_must_be_those_of_the_shapes(tmp_path: Path):
    """A manifest that was made by no scan of ours is told by its own shapes."""
    good = weights.scan(building.adapter(tmp_path / "good"))
    config = building.adapter_config(r=8)
    folder = building.fill(tmp_path / "p", {"adapter_config.json": config})
    record = weights.scan(folder, kind="plain").files[0]
    files = [record if f.path == record.path else f for f in good.files]
    manifest = weights.manifest.compose("adapter", files, good.tensors)
    with pytest.raises(MalformedWeights, match="is of rank 4, the configuration's r is 8"):
        weights.stated_facts(manifest, config.encode(), where=WHERE)
