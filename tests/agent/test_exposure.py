"""An engine that can be reached past the gateway is seen, and one on loopback is not."""

import socket
import sys
from pathlib import Path

import pytest

from vctl_agent.exposure import Exposure, exposed

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"


def a_table(*sockets: tuple[str, int, str]) -> str:
    """Return a table as the kernel writes it; the tests' hosts are little-endian."""
    lines = (
        f"  {n}: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 0 0\n"
        for n, (address, port, state) in enumerate(sockets)
    )
    return HEAD + "".join(lines)


LOOPBACK, ANY, ANY_6 = "0100007F", "00000000", "0" * 32
LOOPBACK_6 = "0" * 24 + "01000000"
LISTENS, TALKS = "0A", "01"
URL = "http://127.0.0.1:8000"

little_endian = pytest.mark.skipif(sys.byteorder == "big", reason="the samples are not")


@little_endian
@pytest.mark.parametrize(
    ("url", "table", "found"),
    [
        (URL, a_table((LOOPBACK, 8000, LISTENS)), ""),
        ("http://[::1]:8000", a_table((LOOPBACK_6, 8000, LISTENS)), ""),
        (URL, a_table((ANY, 8000, LISTENS)), "0.0.0.0:8000"),
        ("http://localhost:8000", a_table((ANY_6, 8000, LISTENS)), "[::]:8000"),
        (URL, a_table((ANY, 8001, LISTENS), (ANY, 8000, TALKS)), ""),
        (URL, a_table((ANY, 8000, LISTENS), (LOOPBACK, 8000, LISTENS)), ""),
        (URL, a_table(("0700000A", 8000, LISTENS)), ""),  # 10.0.0.7: not who answers on loopback
        ("http://10.0.0.7:8000", "", "10.0.0.7:8000"),
        ("https://engine.example", "", "engine.example:443"),
        (URL, "", ""),
    ],
)
def test_where_the_engine_is_exposed(url: str, table: str, found: str) -> None:
    """By its address, or by what the kernel says of its port."""
    assert found == exposed(url, [table])


def test_each_run_of_the_engine_is_looked_at_once(tmp_path: Path) -> None:
    """A list that is not there says nothing."""
    table = tmp_path / "tcp"
    exposure = Exposure(URL, [table, tmp_path / "none"])
    exposure.look("e1")
    table.write_text(a_table((ANY, 8000, LISTENS)))
    for incarnation, found in (("", ""), ("e1", ""), ("e2", "0.0.0.0:8000"), ("", "0.0.0.0:8000")):
        exposure.look(incarnation)
        assert found == exposure.found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel has no such list")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_kernels_own_list_is_read_right(host: str) -> None:
    """Of a real socket."""
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]
        exposure = Exposure(f"http://127.0.0.1:{port}")
        exposure.look("e1")

    assert ("" if host == "127.0.0.1" else f"0.0.0.0:{port}") == exposure.found
