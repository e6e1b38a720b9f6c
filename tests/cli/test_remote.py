"""Releases of what is on a web server or in a bucket: by its manifest, its bytes or its root."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import SERVICE
from tests.cli.support import Said, Vctl, a_fleet
from tests.sources.servers import Behaviour, serving
from tests.weights import building
from vctl_plans import weights
from vctl_plans.phase import Component
from vctl_plans.release import Artifact

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = f"b3:{'2' * 64}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Behaviour]]:
    building.adapter(tmp_path / "served" / "v2", {"training_args.bin": "x"})
    with serving(tmp_path / "served") as (url, about):
        yield f"{url}/v2", about


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give an empty bucket of a server that speaks S3."""
    pytest.importorskip("moto")
    import boto3
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    client = boto3.client("s3")
    try:
        client.create_bucket(Bucket="models")
        yield "s3://models"
    finally:
        client.close()
        running.stop()


def manifest_of(folder: Path) -> weights.Manifest:
    manifest = weights.scan(folder)
    weights.save(manifest, weights.manifest_path(folder))
    return manifest


def create(vctl: Vctl, uri: str, *more: str) -> Said:
    return vctl("release", "create", SERVICE, "--adapter", uri, *more)


def made(vctl: Vctl, number: int = 2) -> Artifact:
    return vctl.service().releases[number].components[Component.ADAPTER]


def test_manifest_beside_a_remote_artifact_says_what_it_is(server: tuple[str, Behaviour]):
    """Of the bytes only the configuration is read: nodes verify the rest."""
    url, about = server
    manifest = manifest_of(about.folder / "v2")
    vctl = a_fleet()
    said = create(vctl, url)

    assert (0, "support: release 2 (adapter=2)\n") == (said.code, said.out)
    assert (url, manifest.root) == (made(vctl).source, made(vctl).root)
    assert (4, "org/base") == (made(vctl).rank, made(vctl).base_name)
    assert sum(file.size for file in manifest.files) == made(vctl).size_bytes
    assert 0 == about.sent_bytes(".safetensors")
    assert "by the manifest that is there: nodes verify the bytes" in said.err


def test_manifest_of_another_root_than_was_given_is_refused(server: tuple[str, Behaviour]):
    url, about = server
    root = manifest_of(about.folder / "v2").root
    vctl = a_fleet()

    assert 0 == create(vctl, url, "--root", root).code
    said = create(vctl, url, "--root", OTHER)
    assert (1, "") == (said.code, said.out)
    assert f"is of {root}, not of {OTHER}" in said.err
    assert url in said.err


def test_configuration_must_be_the_manifests(server: tuple[str, Behaviour]):
    """Else rank and base would be those of another adapter."""
    url, about = server
    manifest_of(about.folder / "v2")
    config = about.folder / "v2" / "adapter_config.json"
    config.write_text(config.read_text().replace('"r": 4', '"r": 5'))
    said = create(a_fleet(), url)

    assert (1, "") == (said.code, said.out)
    assert "adapter_config.json is not the one of its manifest" in said.err


def test_manifest_of_another_kind_is_refused(server: tuple[str, Behaviour]):
    url, about = server
    manifest = weights.scan(about.folder / "v2", kind="plain")
    weights.save(manifest, about.folder / "v2" / weights.MANIFEST_NAME)
    said = create(a_fleet(), url)

    assert (1, "") == (said.code, said.out)
    assert "its manifest is of kind plain, and the adapter must be adapter" in said.err
    assert "vctl manifest --kind adapter" in said.err


def test_web_server_without_a_manifest_needs_a_root(server: tuple[str, Behaviour]):
    """It cannot be listed; with a root that is said, for nodes cannot list it either."""
    url, _ = server
    vctl = a_fleet()
    refused = create(vctl, url)
    assert (2, "") == (refused.code, refused.out)
    assert "has no manifest (vctl.manifest.json), and a web server cannot be listed" in refused.err
    assert "vctl manifest" in refused.err

    taken = create(vctl, url, "--root", OTHER)
    assert 0 == taken.code
    assert (OTHER, url) == (made(vctl).root, made(vctl).source)
    assert "taken on its root, nodes verify it" in taken.err
    assert "nodes need one to read from a web server" in taken.err


def test_server_that_is_away_needs_a_root(tmp_path: Path):
    """The nodes may reach what this machine does not."""
    with serving(tmp_path) as (url, _):
        pass
    vctl = a_fleet()
    refused = create(vctl, f"{url}/v2")
    assert (1, "") == (refused.code, refused.out)
    assert "where only nodes can read it, add --root, or --hash-on-nodes N" in refused.err

    taken = create(vctl, f"{url}/v2", "--root", OTHER)
    assert 0 == taken.code
    assert "taken on its root, nodes verify it" in taken.err


def test_token_lets_in_and_is_never_shown(server: tuple[str, Behaviour], tmp_path: Path):
    """It is read from a file that the environment names."""
    url, about = server
    manifest_of(about.folder / "v2")
    (tmp_path / "token").write_text("hunter2\n")
    vctl = a_fleet()
    vctl.env = {"VCTL_SOURCE_TOKEN_FILE": f"{url}={tmp_path / 'token'}"}
    said = create(vctl, url)

    assert 0 == said.code, said
    assert {"Bearer hunter2"} == {each.get("authorization") for each in about.seen_headers}
    assert "hunter2" not in said.out + said.err


def test_variable_that_says_it_wrongly_is_named(server: tuple[str, Behaviour]):
    vctl = a_fleet()
    vctl.env = {"VCTL_SOURCE_TOKEN_FILE": "hunter2"}
    said = create(vctl, server[0])

    assert (2, "") == (said.code, said.out)
    assert "VCTL_SOURCE_TOKEN_FILE: is not PREFIX=FILE" in said.err
    assert "hunter2" not in said.err


def test_bucket_is_pushed_to_and_read_by_its_manifest(bucket: str, tmp_path: Path):
    """And pushed to again, nothing is written."""
    adapter = building.adapter(tmp_path / "v2")
    vctl = a_fleet()
    first = create(vctl, str(adapter), "--push", f"{bucket}/support")
    again = create(vctl, str(adapter), "--push", f"{bucket}/support")
    assert (0, 0) == (first.code, again.code), first
    assert "in 2 files, 0 of them were there" in first.err
    assert "in 2 files, 2 of them were there" in again.err

    read = create(vctl, made(vctl).source)
    assert 0 == read.code, read
    assert made(vctl, 2) == made(vctl, 3) == made(vctl, 4)


def test_large_file_is_pushed_in_parts_and_compared(bucket: str, tmp_path: Path):
    """What changes after it was hashed is noticed: no manifest says that it is whole."""
    import boto3

    prompt = building.fill(tmp_path / "p", {"a.bin": bytes(range(256)) * 40_000})
    vctl = a_fleet()
    asked = ("release", "create", SERVICE, "--prompt", str(prompt), "--push", bucket)
    said = vctl(*asked)
    assert 0 == said.code, said
    prefix = vctl.service().releases[2].components[Component.PROMPT].source.rpartition("/")[2]

    client = boto3.client("s3")
    client.put_object(Bucket="models", Key=f"{prefix}/a.bin", Body=b"x")
    client.close()
    refused = vctl(*asked)
    assert (1, "") == (refused.code, refused.out)
    assert "a.bin is there with other bytes" in refused.err


def test_bucket_without_a_manifest_is_read_here(bucket: str, tmp_path: Path):
    """It can be listed, so its bytes are hashed; of what is not served nothing is read."""
    import boto3

    adapter = building.adapter(tmp_path / "v2", {"optimizer.pt": "x"})
    client = boto3.client("s3")
    for file in adapter.iterdir():
        client.upload_file(str(file), "models", f"v2/{file.name}")
    client.close()
    vctl = a_fleet()
    said = create(vctl, f"{bucket}/v2")

    assert 0 == said.code, said
    assert (weights.scan(adapter).root, 4) == (made(vctl).root, made(vctl).rank)
    assert "no manifest is there: its bytes were read here" in said.err


def test_bucket_with_nothing_there_is_refused(bucket: str):
    said = create(a_fleet(), f"{bucket}/none")

    assert (1, "") == (said.code, said.out)
    assert "models/none" in said.err


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Behaviour]]:
    """Give an adapter in a repository of a server that answers as the Hub does."""
    place = building.adapter(
        tmp_path / "hub" / "org/repo/resolve" / COMMIT, {"training_args.bin": "x"}
    )
    api = "/api/models/org/repo"
    with serving(tmp_path / "hub") as (url, about):
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.setenv("HF_TOKEN", "hf_hunter2")
        about.answers[api] = {"id": "org/repo", "sha": COMMIT}
        about.answers[f"{api}/tree/{COMMIT}"] = [
            {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": f"{n:040x}"}
            for n, file in enumerate(sorted(place.iterdir()))
        ]
        yield place, about


def test_repository_of_the_hub_is_pinned_and_read_here(hub: tuple[Path, Behaviour]):
    """The release names the commit: what the repository is later is another artifact."""
    place, about = hub
    vctl = a_fleet()
    said = create(vctl, "hf://org/repo")

    assert 0 == said.code, said
    assert f"hf://org/repo@{COMMIT}" == made(vctl).source
    assert f"hf://org/repo: pinned to the commit that it is now: {made(vctl).source}" in said.err
    assert (weights.scan(place).root, 4) == (made(vctl).root, made(vctl).rank)
    assert 0 == about.sent_bytes("training_args.bin")
    assert "hunter2" not in said.out + said.err

    again = create(vctl, f"hf://org/repo@{COMMIT}")
    assert 0 == again.code
    assert "pinned" not in again.err


def test_hub_that_is_away_needs_a_root(
    hub: tuple[Path, Behaviour], monkeypatch: pytest.MonkeyPatch
):
    """Then it is not pinned either, which is said."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    vctl = a_fleet()
    refused = create(vctl, "hf://org/repo")
    assert (1, "") == (refused.code, refused.out)
    assert "--hash-on-nodes N" in refused.err

    taken = create(vctl, "hf://org/repo", "--root", OTHER)
    assert 0 == taken.code
    assert "not pinned to a commit, what it names may change" in taken.err
    assert (OTHER, "hf://org/repo") == (made(vctl).root, made(vctl).source)
