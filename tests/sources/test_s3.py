"""An S3 server as a source: a real one on loopback, and boto3 as it is."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.agent.fetching import make_model, size_of
from tests.weights.building import adapter, fill
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_plans import sources, weights
from vctl_plans.errors import (
    FileChanged,
    NotAllowed,
    RootMismatch,
    SourceError,
    SourceMissing,
    SourceRefused,
)
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact
from vctl_plans.sources import Entry

BUCKET = "models"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Give a client for a bucket that is empty; variables say where it is, as a node has them."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with closing(boto3.session.Session().client("s3")) as client:
        client.create_bucket(Bucket=BUCKET)
        yield client
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for found in page.get("Contents", ()):
                client.delete_object(Bucket=BUCKET, Key=found["Key"])
        client.delete_bucket(Bucket=BUCKET)


def _upload(bucket: Any, folder: Path, prefix: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder)}"
            bucket.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())


def _read(source: sources.Source, file: Entry, begin: int, end: int) -> bytes:
    with closing(source.read(file, begin, end)) as pieces:
        return b"".join(pieces)


def _ignore(_phase: NodePhase, _done: int, _size: int) -> None:
    pass


def test_prefix_is_listed_and_read(bucket: Any, tmp_path: Path) -> None:
    """Only what is below it: `v1` is no prefix of `v10`."""
    _upload(bucket, fill(tmp_path / "a", {"x.txt": "hello", "d/y z.txt": "there"}), "p/v1")
    _upload(bucket, fill(tmp_path / "b", {"other.txt": "other"}), "p/v10")
    bucket.put_object(Bucket=BUCKET, Key="p/v1/folder/", Body=b"")
    with sources.connect(f"s3://{BUCKET}/p/v1") as source:
        found = source.files()
        assert [("d/y z.txt", 5), ("x.txt", 5)] == [(f.path, f.size) for f in found]
        assert b"ell" == _read(source, found[1], 1, 4)
        assert b"there" == _read(source, found[0], 0, 5)
        assert source.manifest() is None


def test_single_object_is_a_source(bucket: Any, tmp_path: Path) -> None:
    file = fill(tmp_path, {"p.txt": "You are kind."}) / "p.txt"
    weights.save(weights.scan(file, kind="plain"), weights.manifest_path(file))
    bucket.put_object(Bucket=BUCKET, Key="p/p.txt", Body=file.read_bytes())
    with sources.connect(f"s3://{BUCKET}/p/p.txt") as source:
        assert ["p.txt"] == [entry.path for entry in source.files()]
        assert b"kind" == _read(source, Entry("p.txt", 13), 8, 12)
    document = weights.manifest_path(file).read_bytes()
    bucket.put_object(Bucket=BUCKET, Key="p/p.txt.vctl.manifest.json", Body=document)
    with sources.connect(f"s3://{BUCKET}/p/p.txt") as source:
        assert source.manifest() == weights.decode(document)
        assert b"kind" == _read(source, Entry("p.txt", 13), 8, 12)


def test_pushed_folder_is_a_source(bucket: Any, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "v1")
    manifest = weights.scan(folder)
    with sources.connect(f"s3://{BUCKET}/pushed") as target:
        for record in manifest.files:
            with (folder / record.path).open("rb") as content:
                target.write(record.path, content, size=record.size)
        target.write_manifest(manifest)
    with sources.connect(f"s3://{BUCKET}/pushed") as source:
        assert manifest == source.manifest(root=manifest.root)


def test_changed_object_is_noticed(bucket: Any) -> None:
    """Whether it was listed before or read before."""
    for was_listed in (True, False):
        bucket.put_object(Bucket=BUCKET, Key="v/a", Body=b"hello")
        with sources.connect(f"s3://{BUCKET}/v") as source:
            file = source.files()[0] if was_listed else Entry("a", 5)
            assert b"h" == _read(source, file, 0, 1)
            bucket.put_object(Bucket=BUCKET, Key="v/a", Body=b"HELLO")
            with pytest.raises(FileChanged):
                _read(source, file, 1, 2)


def test_errors_tell_whether_to_try_again(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put_object(Bucket=BUCKET, Key="v/a", Body=b"hello")
    with sources.connect(f"s3://{BUCKET}/v") as source:
        with pytest.raises(SourceMissing, match="404"):
            _read(source, Entry("b", 5), 0, 5)
        with pytest.raises(FileChanged, match="5 bytes, and not 4"):
            _read(source, Entry("a", 4), 0, 4)
        with pytest.raises(NotAllowed):
            _read(source, Entry("../a", 5), 0, 5)
    with sources.connect(f"s3://{BUCKET}/nothing") as source, pytest.raises(SourceMissing):
        source.files()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with sources.connect(f"s3://{BUCKET}/v") as source, pytest.raises(SourceError) as away:
        source.files()
    assert SourceError is type(away.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with sources.connect(f"s3://{BUCKET}/v") as source, pytest.raises(SourceRefused) as caught:
        source.files()
    assert "hunter2" not in str(caught.value)


def test_aborted_source_reads_no_more(bucket: Any) -> None:
    bucket.put_object(Bucket=BUCKET, Key="v/a", Body=b"hello")
    with sources.connect(f"s3://{BUCKET}/v") as source:
        source.abort()
        with pytest.raises(SourceError, match="ended from here"):
            _read(source, Entry("a", 5), 0, 5)


def test_paths_that_lead_out_are_refused(bucket: Any) -> None:
    """A bucket's keys may be any text; a file's place may not."""
    bucket.put_object(Bucket=BUCKET, Key="v/a//b", Body=b"x")
    with sources.connect(f"s3://{BUCKET}/v") as source, pytest.raises(NotAllowed):
        source.files()


@pytest.mark.parametrize("has_manifest", [True, False])
def test_artifact_is_staged(bucket: Any, tmp_path: Path, has_manifest: bool) -> None:
    """By blocks with a manifest; in whole without, for a bucket can be listed."""
    made = make_model(tmp_path / "v1", (1, 2))
    fill(tmp_path / "v1", {"README.md": "not served"})
    if not has_manifest:
        weights.manifest_path(tmp_path / "v1").unlink()
    _upload(bucket, tmp_path / "v1", "v1")
    store = ArtifactStore(tmp_path / "state", [], allowed_sources=(f"s3://{BUCKET}",))
    store.open()
    artifact = Artifact(root=made.root, source=f"s3://{BUCKET}/v1")
    told: list[tuple[NodePhase, int, int]] = []

    staged = store.stage(artifact, lambda *now: told.append(now), kind="model")

    assert made.root == weights.scan(staged).root
    assert (NodePhase.FETCHING, size_of(staged), size_of(staged)) in told
    assert ["config.json", "model.safetensors"] == sorted(p.name for p in staged.iterdir())


def test_wrong_bytes_without_a_manifest_leave_nothing(bucket: Any, tmp_path: Path) -> None:
    made = make_model(tmp_path / "v1", (1,))
    bucket.put_object(Bucket=BUCKET, Key="v1/config.json", Body=b"{ }")
    weights_file = tmp_path / "v1/model.safetensors"
    bucket.put_object(Bucket=BUCKET, Key="v1/model.safetensors", Body=weights_file.read_bytes())
    store = ArtifactStore(tmp_path / "state", [])
    store.open()
    with pytest.raises(RootMismatch, match=f"s3://{BUCKET}/v1"):
        store.stage(Artifact(root=made.root, source=f"s3://{BUCKET}/v1"), _ignore, kind="model")
    assert [] == list((tmp_path / "state/artifacts").iterdir())
