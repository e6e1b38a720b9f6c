"""Over TLS: who a server is gets checked, and nothing is sent on in the clear."""

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from tests.sources.servers import Behaviour, serving
from tests.weights.building import fill
from vctl_plans import sources
from vctl_plans.errors import SourceError, SourceRefused
from vctl_plans.sources import Credentials, Entry, TokenFile

FILE = Entry("f", 5)


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return made


@pytest.fixture
def server(tmp_path: Path, authority: trustme.CA) -> Iterator[tuple[str, Behaviour]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    fill(tmp_path / "srv/v8", {"f": b"hello"})
    with serving(tmp_path / "srv", tls=context) as (url, about):
        yield f"{url}/v8", about


def _read(source: sources.Source) -> bytes:
    with closing(source.read(FILE, 0, 5)) as pieces:
        return b"".join(pieces)


@pytest.fixture
def trusted(tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an operator trusts a private authority."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))


@pytest.mark.usefixtures("trusted")
def test_server_that_is_known_is_read(server: tuple[str, Behaviour]) -> None:
    with sources.connect(server[0]) as source:
        assert b"hello" == _read(source)


def test_server_that_nobody_vouches_for_is_not(server: tuple[str, Behaviour]) -> None:
    with sources.connect(server[0]) as source, pytest.raises(SourceError, match="certificate"):
        _read(source)
    assert [] == server[1].requests


@pytest.mark.usefixtures("trusted")
def test_redirect_into_the_clear_is_refused(server: tuple[str, Behaviour], tmp_path: Path) -> None:
    """Neither a token nor the names of files go over a wire that anybody can read."""
    url, about = server
    (tmp_path / "token").write_text("s3cret")
    lets_in = Credentials((TokenFile(url, tmp_path / "token"),))
    with serving(tmp_path / "srv") as (clear, clear_about):
        about.redirects = {"/v8/f": f"{clear}/v8/f"}
        with (
            sources.connect(url, lets_in) as source,
            pytest.raises(SourceRefused, match="from https to http"),
        ):
            _read(source)
        assert [] == clear_about.requests


@pytest.mark.usefixtures("trusted")
def test_abort_ends_a_read_that_waits(server: tuple[str, Behaviour]) -> None:
    url, about = server
    about.delay_s = 30.0
    failed: list[SourceError] = []
    with sources.connect(url) as source:

        def read() -> None:
            try:
                _read(source)
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
