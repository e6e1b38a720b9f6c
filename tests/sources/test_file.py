"""A mount as a source: no link, no device and no way out; what changes is noticed."""

import io
import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.weights.building import adapter, fill
from vctl_plans import sources, weights
from vctl_plans.errors import (
    ArtifactError,
    FileChanged,
    NotAllowed,
    SourceError,
    SourceRefused,
)
from vctl_plans.sources import Entry


def _read(source: sources.Source, file: Entry, begin: int, end: int) -> bytes:
    with closing(source.read(file, begin, end)) as pieces:
        return b"".join(pieces)


def test_folder_is_listed_and_read(tmp_path: Path) -> None:
    fill(tmp_path / "a b", {"x.txt": "hello", "d/y.txt": "there"})
    with sources.connect((tmp_path / "a b").as_uri()) as source:
        listed = source.files()
        assert [("d/y.txt", 5), ("x.txt", 5)] == [(f.path, f.size) for f in listed]
        assert b"ell" == _read(source, listed[1], 1, 4)
        assert source.manifest() is None


def test_single_file_is_a_source(tmp_path: Path) -> None:
    fill(tmp_path, {"p.txt": "hello", "q.txt": "other"})
    file = tmp_path / "p.txt"
    weights.save(weights.scan(file, kind="plain"), weights.manifest_path(file))
    with sources.connect(file.as_uri()) as source:
        assert ["p.txt"] == [listed.path for listed in source.files()]
        manifest = source.manifest()
        assert manifest
        assert ["p.txt"] == [record.path for record in manifest.files]


def test_manifest_beside_a_folder_is_read(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "v1")
    manifest = weights.scan(folder)
    weights.save(manifest, weights.manifest_path(folder))
    with sources.connect(folder.as_uri()) as source:
        assert manifest == source.manifest(root=manifest.root)


def test_place_that_is_not_there_may_come(tmp_path: Path) -> None:
    """A mount may be late."""
    with sources.connect((tmp_path / "v1").as_uri()) as source:
        for ask in (source.files, source.manifest):
            with pytest.raises(SourceError) as caught:
                ask()
            assert SourceError is type(caught.value)


@pytest.mark.parametrize("what", ["link", "folder", "fifo", "source", "manifest"])
def test_what_is_no_plain_file_is_refused(tmp_path: Path, what: str) -> None:
    fill(tmp_path, {"secret/s.txt": "secret", "v1/d/a.txt": "a"})
    folder, file = tmp_path / "v1", Entry("s.txt", 6)
    if what == "link":
        (folder / "s.txt").symlink_to(tmp_path / "secret/s.txt")
    elif what == "folder":
        (folder / "e").symlink_to(tmp_path / "secret")
        file = Entry("e/s.txt", 6)
    elif what == "fifo":
        os.mkfifo(folder / "s.txt")
    elif what == "source":
        folder = tmp_path / "link"
        folder.symlink_to(tmp_path / "secret")
    else:
        (folder / weights.MANIFEST_NAME).symlink_to(tmp_path / "secret/s.txt")
    with sources.connect(folder.as_uri()) as source, pytest.raises(ArtifactError):
        _ = source.manifest() if what == "manifest" else _read(source, file, 0, 6)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "d/../../x", ""])
def test_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    fill(tmp_path, {"secret": "s", "v1/a": "a"})
    with sources.connect((tmp_path / "v1").as_uri()) as source:
        with pytest.raises(NotAllowed):
            _read(source, Entry(path, 1), 0, 1)
        with pytest.raises(NotAllowed):
            source.write(path, io.BytesIO(b"x"), size=1)


@pytest.mark.parametrize("how", ["rewritten", "grown", "replaced", "removed"])
def test_changed_file_is_noticed(tmp_path: Path, how: str) -> None:
    """Also one that has the same size, and the time that it had before."""
    fill(tmp_path, {"v1/a": "hello"})
    path = tmp_path / "v1/a"
    with sources.connect((tmp_path / "v1").as_uri()) as source:
        file = source.files()[0]
        before = path.stat()
        if how == "removed":
            path.unlink()
        elif how == "replaced":
            (tmp_path / "new").write_text("HELLO")
            (tmp_path / "new").replace(path)
        else:
            path.write_text("HELLO" if how == "rewritten" else "hello, you")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(FileChanged):
            _read(source, file, 0, 5)


def test_pushed_folder_is_an_artifact(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "v1")
    manifest = weights.scan(folder)
    with sources.connect((tmp_path / "pushed/v1").as_uri()) as target:
        for record in manifest.files:
            with (folder / record.path).open("rb") as content:
                target.write(record.path, content, size=record.size)
        target.write_manifest(manifest)
    assert manifest == weights.verify(tmp_path / "pushed/v1", manifest)
    with sources.connect((tmp_path / "pushed/v1").as_uri()) as source:
        assert manifest == source.manifest(root=manifest.root)


def test_push_follows_no_link(tmp_path: Path) -> None:
    fill(tmp_path, {"v1/a": "a", "elsewhere/b": "b"})
    (tmp_path / "v1/d").symlink_to(tmp_path / "elsewhere")
    with (
        sources.connect((tmp_path / "v1").as_uri()) as target,
        pytest.raises(SourceRefused, match="symbolic link"),
    ):
        target.write("d/b", io.BytesIO(b"x"), size=1)
    assert "b" == (tmp_path / "elsewhere/b").read_text()


def test_half_a_push_is_not_there(tmp_path: Path) -> None:
    fill(tmp_path, {"v1/a": "old"})
    with (
        sources.connect((tmp_path / "v1").as_uri()) as target,
        pytest.raises(ArtifactError, match="3 bytes were given, and not 5"),
    ):
        target.write("a", io.BytesIO(b"new"), size=5)
    assert "old" == (tmp_path / "v1/a").read_text()
    assert ["a"] == [path.name for path in (tmp_path / "v1").iterdir()]


@pytest.mark.parametrize("uri", ["gopher://x/y", "https://ann:hunter2@x/y", "/plain"])
def test_what_is_no_source_is_refused(uri: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        sources.connect(uri)
    assert "hunter2" not in caught.value.message
