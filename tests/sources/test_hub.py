"""The Hub as a source: a server on loopback answers as the Hub's API does; the library is real.

What is not tested: the Hub itself, its rate limits, and repositories behind a login.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent.fetching import make_model, silent, size_of
from tests.sources.servers import Behaviour, serving
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_plans import sources, weights
from vctl_plans.errors import NotAllowed, SourceError, SourceMissing, SourceRefused
from vctl_plans.release import Artifact
from vctl_plans.sources import Entry

COMMIT = "0123456789abcdef0123456789abcdef01234567"
API = "/api/models/org/repo"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behaviour]:
    monkeypatch.setenv("HF_TOKEN", "hf_hunter2")
    with serving(tmp_path / "hub") as (url, about):
        monkeypatch.setenv("HF_ENDPOINT", url)
        about.answers[f"{API}/revision/main"] = {"id": "org/repo", "sha": COMMIT}
        about.answers[API] = {"id": "org/repo", "sha": COMMIT}
        yield about


def _publish(about: Behaviour, folder: str = "") -> Path:
    """Let the server list and hold what is in the repository; return where that is on disk."""
    place = about.folder / "org/repo/resolve" / COMMIT
    place.mkdir(parents=True, exist_ok=True)
    files = [p for p in place.rglob("*") if p.is_file()]
    listed = [
        {"type": "file", "path": str(p.relative_to(place)), "size": p.stat().st_size,
         "oid": f"{n:040x}"}
        for n, p in enumerate(files)
    ]  # fmt: skip
    listed.append({"type": "directory", "path": "d", "oid": "0" * 40})
    where = f"/{folder}" if folder else ""
    about.answers[f"{API}/tree/{COMMIT}{where}"] = listed
    return place


def _read(source: sources.Source, file: Entry, begin: int, end: int) -> bytes:
    with closing(source.read(file, begin, end)) as pieces:
        return b"".join(pieces)


def test_repository_is_listed_and_read(hub: Behaviour) -> None:
    place = _publish(hub)
    (place / "a.txt").write_text("hello")
    _publish(hub)
    with sources.connect("hf://org/repo") as source:
        assert [("a.txt", 5)] == [(file.path, file.size) for file in source.files()]
        assert b"ell" == _read(source, source.files()[0], 1, 4)
        assert source.manifest() is None
    assert "Bearer hf_hunter2" == hub.seen_headers[-1]["authorization"]


def test_single_file_of_a_repository(hub: Behaviour) -> None:
    place = _publish(hub)
    (place / "d").mkdir()
    (place / "d/p.txt").write_text("You are kind.")
    hub.answers[f"{API}/paths-info/{COMMIT}"] = [
        {"type": "file", "path": "d/p.txt", "size": 13, "oid": "1" * 40}
    ]
    with sources.connect(f"hf://org/repo@{COMMIT}/d/p.txt") as source:
        assert [("p.txt", 13)] == [(file.path, file.size) for file in source.files()]
        assert b"kind" == _read(source, Entry("p.txt", 13), 8, 12)


def test_revision_is_pinned(hub: Behaviour) -> None:
    assert f"hf://org/repo@{COMMIT}" == sources.pinned("hf://org/repo")
    assert f"hf://org/repo@{COMMIT}/a%20b" == sources.pinned("hf://org/repo@main/a%20b/")
    asked = len(hub.requests)
    assert f"hf://org/repo@{COMMIT}/v8" == sources.pinned(f"hf://org/repo@{COMMIT}/v8")
    assert len(hub.requests) == asked, "a commit is one already"
    assert "https://x/v8" == sources.pinned("https://x/v8")


def test_errors_tell_whether_to_try_again(hub: Behaviour) -> None:
    with pytest.raises(SourceMissing, match="404") as missing:
        sources.pinned("hf://org/other")
    assert "hunter2" not in str(missing.value)
    hub.statuses = [403]
    with pytest.raises(SourceRefused):
        sources.pinned("hf://org/other")
    _publish(hub)
    with sources.connect("hf://org/repo/nothing") as source, pytest.raises(SourceMissing):
        source.files()


def test_hub_that_is_away_may_come_back(hub: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(SourceError) as caught:
        sources.pinned("hf://org/repo")
    assert SourceError is type(caught.value)


def test_hub_is_not_written_to(hub: Behaviour) -> None:
    import io

    with sources.connect("hf://org/repo") as source, pytest.raises(NotAllowed, match="hf upload"):
        source.write("a", io.BytesIO(b"x"), size=1)


@pytest.mark.parametrize("has_manifest", [True, False])
def test_artifact_is_staged(hub: Behaviour, tmp_path: Path, has_manifest: bool) -> None:
    """Large files come from elsewhere, as on the Hub; the token does not go there."""
    place = _publish(hub)
    made = make_model(place / "v8", (1, 2))
    if not has_manifest:
        weights.manifest_path(place / "v8").unlink()
    _publish(hub, "v8")
    with serving(place) as (elsewhere, cdn):
        path = "v8/model.safetensors"
        hub.redirects[f"/org/repo/resolve/{COMMIT}/{path}"] = f"{elsewhere}/{path}"
        store = ArtifactStore(tmp_path / "state", [])
        store.open()
        artifact = Artifact(root=made.root, source=f"hf://org/repo@{COMMIT}/v8")

        staged = store.stage(artifact, silent, kind="model")

        assert made.root == weights.scan(staged).root
        assert size_of(staged) - 2 == cdn.sent_bytes()
        assert all("authorization" not in headers for headers in cdn.seen_headers)
