"""A web server as a source: ranges, changes, refusals, and errors whose type tells what to do."""

import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.sources.servers import Behaviour, serving
from tests.weights.building import adapter, fill
from vctl_plans import sources, weights
from vctl_plans.errors import (
    FileChanged,
    NotAllowed,
    RootMismatch,
    SourceError,
    SourceMissing,
    SourceRefused,
)
from vctl_plans.sources import Credentials, Entry, TokenFile

CONTENT = bytes(range(256)) * 4096  # 1 MiB
FILE = Entry("big file.bin", len(CONTENT))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Behaviour]]:
    fill(tmp_path / "v8", {FILE.path: CONTENT})
    with serving(tmp_path) as (url, about):
        yield f"{url}/v8", about


def _read(source: sources.Source, begin: int, end: int, file: Entry = FILE) -> bytes:
    with closing(source.read(file, begin, end)) as pieces:
        return b"".join(pieces)


@pytest.mark.parametrize("has_ranges", [True, False])
@pytest.mark.parametrize(("begin", "end"), [(0, 10), (70_000, 900_001), (0, len(CONTENT))])
def test_range_is_read(
    server: tuple[str, Behaviour], has_ranges: bool, begin: int, end: int
) -> None:
    """With ranges and without, also a second time."""
    url, about = server
    about.has_ranges = has_ranges
    with sources.connect(url) as source:
        assert has_ranges == source.has_ranges(FILE)
        assert CONTENT[begin:end] == _read(source, begin, end)
        assert CONTENT[begin:end] == _read(source, begin, end)


def test_only_the_range_is_sent(server: tuple[str, Behaviour]) -> None:
    url, about = server
    with sources.connect(url) as source:
        _read(source, 1000, 2000)
    assert 1000 == about.sent_bytes()


def test_manifest_of_a_folder_and_of_a_file(tmp_path: Path) -> None:
    """The same names as on disk."""
    folder = adapter(tmp_path / "v1")
    weights.save(weights.scan(folder), weights.manifest_path(folder))
    fill(tmp_path, {"prompt.txt": "You are kind."})
    single = tmp_path / "prompt.txt"
    weights.save(weights.scan(single, kind="plain"), weights.manifest_path(single))
    with serving(tmp_path) as (url, _):
        with sources.connect(f"{url}/v1/") as source:
            found = source.manifest()
            assert found == weights.scan(folder)
            assert [f.path for f in found.files] == [f.path for f in source.files()]
        with sources.connect(f"{url}/prompt.txt") as source:
            assert [Entry("prompt.txt", 13)] == list(source.files())
            assert b"kind" == _read(source, 8, 12, Entry("prompt.txt", 13))


def test_without_a_manifest_there_is_no_listing(server: tuple[str, Behaviour]) -> None:
    with sources.connect(server[0]) as source:
        assert source.manifest() is None
        with pytest.raises(SourceMissing, match="cannot be listed"):
            source.files()


def test_manifest_of_another_root(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "v1")
    weights.save(weights.scan(folder), weights.manifest_path(folder))
    with (
        serving(tmp_path) as (url, _),
        sources.connect(f"{url}/v1") as source,
        pytest.raises(RootMismatch),
    ):
        source.manifest(root="b3:" + "0" * 64)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, SourceMissing),
        (410, SourceMissing),
        (401, SourceRefused),
        (403, SourceRefused),
        (400, SourceRefused),
        (408, SourceError),
        (429, SourceError),
        (500, SourceError),
        (503, SourceError),
        (412, FileChanged),
    ],
)
def test_status_tells_whether_to_try_again(
    server: tuple[str, Behaviour], status: int, kind: type[Exception]
) -> None:
    url, about = server
    about.statuses = [status]
    with sources.connect(url) as source, pytest.raises(kind, match=str(status)) as caught:
        _read(source, 0, 10)
    assert kind is type(caught.value)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with (
        sources.connect(f"http://127.0.0.1:{port}/v8") as source,
        pytest.raises(SourceError, match="refused") as caught,
    ):
        source.manifest()
    assert SourceError is type(caught.value)


def test_cut_connection_gives_what_came(server: tuple[str, Behaviour]) -> None:
    """What came before the cut can be used; then the error says that it was cut."""
    url, about = server
    about.cuts = {"bin": [100_000]}
    pieces: list[bytes] = []
    with sources.connect(url) as source:
        with pytest.raises(SourceError) as caught:
            pieces.extend(source.read(FILE, 0, len(CONTENT)))
        got = b"".join(pieces)
        assert SourceError is type(caught.value)
        assert CONTENT[: len(got)] == got
        assert 10 == len(_read(source, len(got), len(got) + 10))


@pytest.mark.parametrize("has_ranges", [True, False])
def test_changed_file_is_noticed(server: tuple[str, Behaviour], has_ranges: bool) -> None:
    """Between two reads its ETag is another: the bytes of two versions are never mixed."""
    url, about = server
    about.has_ranges = has_ranges
    with sources.connect(url) as source:
        _read(source, 0, 1000)
        about.tag = "new"
        with pytest.raises(FileChanged, match="changed while it was read"):
            _read(source, 1000, 2000)


def test_file_of_another_size_is_noticed(server: tuple[str, Behaviour]) -> None:
    url, _ = server
    with (
        sources.connect(url) as source,
        pytest.raises(FileChanged, match=f"{len(CONTENT)} bytes, and not 5"),
    ):
        _read(source, 0, 5, Entry(FILE.path, 5))


def test_encoded_answer_is_refused(server: tuple[str, Behaviour]) -> None:
    """A server that compresses would send other bytes than the file's."""
    url, about = server
    about.headers = {"Content-Encoding": "gzip"}
    with sources.connect(url) as source, pytest.raises(SourceRefused, match="encoded"):
        _read(source, 0, 10)


def test_redirect_is_followed_without_the_token(tmp_path: Path) -> None:
    """What lets us in at one server is no business of another."""
    fill(tmp_path / "v8", {"f": b"hello"})
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with serving(tmp_path) as (far, far_about), serving(tmp_path) as (near, near_about):
        near_about.redirects = {"/v8/f": f"{far}/v8/f"}
        lets_in = Credentials((TokenFile(near, token),))
        with sources.connect(f"{near}/v8", lets_in) as source:
            assert b"hello" == _read(source, 0, 5, Entry("f", 5))
        assert "Bearer s3cret" == near_about.seen_headers[0]["authorization"]
        assert "authorization" not in far_about.seen_headers[0]


def test_redirects_end(server: tuple[str, Behaviour]) -> None:
    url, about = server
    about.redirects = {"/v8/f": "/v8/f"}
    with sources.connect(url) as source, pytest.raises(SourceRefused, match="redirects"):
        _read(source, 0, 5, Entry("f", 5))


@pytest.mark.parametrize("path", ["../token", "/etc/passwd", "a/../../b", "a\\b", ""])
def test_path_that_leads_out_is_refused(server: tuple[str, Behaviour], path: str) -> None:
    with sources.connect(server[0]) as source, pytest.raises(NotAllowed):
        _read(source, 0, 1, Entry(path, 1))
    assert [] == server[1].requests


def test_pushed_file_is_there(server: tuple[str, Behaviour], tmp_path: Path) -> None:
    url, about = server
    with sources.connect(url) as source:
        source.write("d/e.txt", io.BytesIO(b"pushed"), size=6)
        assert b"pushed" == (tmp_path / "v8/d/e.txt").read_bytes()
        about.read_only = True
        with pytest.raises(SourceRefused, match="403"):
            source.write("f.txt", io.BytesIO(b"x"), size=1)


def test_pushed_manifest_makes_it_a_source(server: tuple[str, Behaviour], tmp_path: Path) -> None:
    url, _ = server
    manifest = weights.scan(tmp_path / "v8", kind="plain")
    with sources.connect(url) as source:
        source.write_manifest(manifest)
        assert manifest == source.manifest(root=manifest.root)
        assert [FILE] == list(source.files())


def test_abort_ends_a_read_that_waits(server: tuple[str, Behaviour]) -> None:
    """An agent that is told to end does not wait for a slow server."""
    url, about = server
    about.delay_s = 30.0
    failed: list[SourceError] = []
    source = sources.connect(url)

    def read() -> None:
        try:
            _read(source, 0, 10)
        except SourceError as error:
            failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    deadline = time.monotonic() + 10
    while not about.requests and time.monotonic() < deadline:
        time.sleep(0.01)
    source.abort()
    reader.join(10)
    assert not reader.is_alive()
    assert 1 == len(failed)
    with pytest.raises(SourceError, match="ended from here"):
        _read(source, 0, 10)
    source.close()


def test_netrc_lets_in(server: tuple[str, Behaviour], tmp_path: Path) -> None:
    url, about = server
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ann password hunter2\n")
    environment = {"NETRC": str(tmp_path / "netrc")}
    with sources.connect(url, sources.from_environment(environment)) as source:
        _read(source, 0, 10)
    assert "Basic YW5uOmh1bnRlcjI=" == about.seen_headers[0]["authorization"]


def test_secrets_are_in_no_message(tmp_path: Path) -> None:
    """Neither a token that cannot be used nor a line of netrc is repeated."""
    (tmp_path / "token").write_text("hunter2 and more")
    (tmp_path / "netrc").write_text("machine x login ann password hunter2 hunter2 hunter2\n")
    token = Credentials((TokenFile("https://x", tmp_path / "token"),))
    for credentials in (token, Credentials(netrc_file=tmp_path / "netrc")):
        with pytest.raises(SourceRefused) as caught:
            sources.connect("https://x/v8", credentials)
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None
    with pytest.raises(ValueError, match="PREFIX=FILE") as wrong:
        sources.token_file("hunter2")
    assert "hunter2" not in str(wrong.value)


def test_longest_prefix_names_the_token(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    text = f"https://x/={tmp_path}/a,https://x/private={tmp_path}/b"
    credentials = sources.from_environment({"VCTL_SOURCE_TOKEN_FILE": text})
    assert "Bearer a" == credentials.header("https://x/v8")
    assert "Bearer b" == credentials.header("https://x/private/v8")
    assert not credentials.header("https://x.example/v8")
