"""The tests' own proxy leaves nothing open, also when a connection comes as it closes."""

import asyncio
import gc
import socket
from urllib.parse import urlsplit

import pytest

from tests.etcd.proxy import Proxy


def _open_transports() -> list[asyncio.BaseTransport]:
    """All of this process's: the type is asked, as `isinstance` wakes lazy objects of torch's."""
    gc.collect()
    found = (each for each in gc.get_objects() if issubclass(type(each), asyncio.Transport))
    return [transport for transport in found if not transport.is_closing()]


@pytest.mark.parametrize("turns", range(6))
async def test_proxy_that_closes_as_it_accepts_leaves_no_socket(turns: int) -> None:
    """Else the socket's warning fails whatever test runs when it is collected."""
    before = len(_open_transports())
    async with Proxy(target_port=1) as proxy:
        place = urlsplit(proxy.endpoint)
        client = socket.create_connection((place.hostname, place.port))
        for _ in range(turns):
            await asyncio.sleep(0)
    client.close()

    assert before == len(_open_transports())
