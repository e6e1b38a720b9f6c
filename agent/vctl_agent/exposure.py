"""Whether the engine can be reached past the gateway: where it listens beyond loopback.

Who reaches the engine reaches every adapter by name, and its calls that load and unload. The
kernel's own list of listening sockets says it, without a connection; where there is none (another
system than Linux), nothing is said.
"""

import ipaddress
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""Of this process's network namespace, in which it reaches the engine by loopback (proc(5))."""

_LISTENS = "0A"  # TCP_LISTEN of include/net/tcp_states.h
_FIELDS = 4  # up to the state
_PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Exposure:
    """Where the engine is exposed; looked at once for each run of it.

    Args:
        engine_url: Where the agent finds it.
        tables: The kernel's lists of sockets.
    """

    def __init__(self, engine_url: str, tables: Iterable[Path] = TABLES) -> None:
        self._url = engine_url
        self._tables = tuple(tables)
        self._incarnation = ""
        self.found = ""  # host:port; empty: nowhere, or it is not known

    def look(self, incarnation: str) -> None:
        """Look, if this run of the engine has not been looked at."""
        if incarnation in {"", self._incarnation}:
            return
        self._incarnation = incarnation
        self.found = exposed(self._url, _texts(self._tables))


def _texts(tables: Iterable[Path]) -> Iterator[str]:
    for table in tables:
        try:
            yield table.read_text(encoding="ascii")
        except OSError:
            continue


def exposed(url: str, tables: Iterable[str]) -> str:
    """Return where the engine at *url* listens beyond loopback; empty: nowhere, or not known.

    Args:
        url: Where the agent finds it.
        tables: The texts of the kernel's lists of sockets.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    if not _is_loopback(host):
        return f"{host}:{port}"
    listening = [address for address, at in _listeners(tables) if at == port]
    if any(address.is_loopback for address in listening):
        return ""  # the nearest is who answers; who listens everywhere is another program
    outside = [address for address in listening if address.is_unspecified]
    return f"{_host(outside[0])}:{port}" if outside else ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")  # RFC 6761, 6.3


def _listeners(tables: Iterable[str]) -> Iterator[tuple[Address, int]]:
    for text in tables:
        for line in text.splitlines()[1:]:
            fields = line.split()
            if len(fields) >= _FIELDS and fields[3] == _LISTENS:
                address, _, port = fields[1].partition(":")
                yield _address(address), int(port, 16)


def _address(digits: str) -> Address:
    """Return the address of the kernel's notation: words of four bytes in the host's order."""
    raw = bytes.fromhex(digits)
    words = struct.unpack(f"={len(raw) // 4}I", raw)
    return ipaddress.ip_address(struct.pack(f">{len(words)}I", *words))


def _host(address: Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004  IPv6
