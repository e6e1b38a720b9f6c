"""What must not be sent, as a table: each has one defined answer, and none of it reaches an engine.

Over a bare socket, through the whole gateway: what a client library would never send is the point.
"""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.hopping import KEY
from tests.gateway.support import Bench, a_route, serving
from tests.gateway.test_apikeys import ACME, BLUE
from tests.gateway.test_tenancy import FILE, give

BODY = b'{"model": "support", "prompt": "hi"}'


def post(
    *fields: bytes, body: bytes = BODY, length: int | None = None, path: bytes = b"/v1/completions"
) -> bytes:
    """Return a request whose fields, and whose length, may be anything."""
    size = len(body) if length is None else length
    lines = [b"POST %s HTTP/1.1" % path, b"Host: x", *fields]
    if not any(field.lower().startswith((b"content-length", b"transfer-enc")) for field in fields):
        lines.append(b"Content-Length: %d" % size)
    return b"\r\n".join([*lines, b"", b""]) + body


def chunked(*pieces: bytes) -> bytes:
    return post(b"Transfer-Encoding: chunked", body=b"".join(pieces))


DEEP = b'{"model": "support", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
JSON = b"Content-Type: application/json"

BAD: dict[str, tuple[bytes, int, str]] = {
    "no JSON": (post(body=b"{"), 400, "invalid_json"),
    "JSON, and more": (post(body=BODY + b"{}"), 400, "invalid_json"),
    "no object": (post(body=b"[1]"), 400, "invalid_json"),
    "nothing": (post(body=b""), 400, "invalid_json"),
    "no model": (post(body=b'{"prompt": "hi"}'), 400, "invalid_value"),
    "a model that is no text": (post(body=b'{"model": {}}'), 400, "invalid_value"),
    "no number of JSON's": (post(body=b'{"model": NaN}'), 400, "invalid_json"),
    "no UTF-8": (post(body=b'{"model": "support", "prompt": "\xff"}'), 400, "invalid_json"),
    "half a surrogate": (post(body=b'{"model": "\\ud800"}'), 400, "invalid_json"),
    "UTF-16": (post(body=BODY.decode().encode("utf-16")), 400, "invalid_json"),
    "a form": (
        post(b"Content-Type: application/x-www-form-urlencoded"), 415, "unsupported_media_type",
    ),
    "plain text": (
        post(b"Content-Type: text/plain; charset=utf-8"), 415, "unsupported_media_type",
    ),
    "parts": (
        post(b"Content-Type: multipart/form-data; boundary=b"), 415, "unsupported_media_type",
    ),
    "compressed": (
        post(JSON, b"Content-Encoding: gzip", body=gzip.compress(BODY)),
        415,
        "unsupported_media_type",
    ),
    "a huge field": (post(b"x-a: " + b"a" * 70_000), 431, "invalid_request"),
    "many fields": (post(*[b"x-%d: 1" % n for n in range(200)]), 431, "invalid_request"),
    "two lengths": (post(b"Content-Length: 36", b"Content-Length: 5"), 400, "invalid_request"),
    "a length and chunks": (
        post(b"Content-Length: 36", b"Transfer-Encoding: chunked"), 400, "invalid_request",
    ),
    "a length below zero": (post(b"Content-Length: -1"), 400, "invalid_request"),
    "a length that is too large": (post(length=2**40), 413, "body_too_large"),
    "chunks that lie": (chunked(b"5\r\n", BODY, b"\r\n0\r\n\r\n"), 400, "invalid_body"),
    "chunks without a size": (chunked(b"zz\r\n", BODY, b"\r\n0\r\n\r\n"), 400, "invalid_body"),
    "two hosts": (post(b"Host: y"), 400, "invalid_request"),
    "a field without a name": (post(b": x"), 400, "invalid_request"),
    "a field that goes on": (post(b"x-a: 1", b" 2"), 400, "invalid_request"),
    "a zero in a field": (post(b"x-a: \0"), 400, "invalid_request"),
    "two releases": (post(b"x-vctl-release: 1", b"x-vctl-release: 2"), 400, "invalid_release"),
    "no release": (post(b"x-vctl-release: -1"), 400, "invalid_release"),
    "a release of many digits": (post(b"x-vctl-release: 99999999999"), 400, "invalid_release"),
    "another kind of digits": (
        post("x-vctl-release: \u0661".encode()), 400, "invalid_release",
    ),
    "a release that is not routed": (post(b"x-vctl-release: 9"), 409, "release_not_served"),
    "a hop without a proof": (post(b"x-vctl-hop: {}"), 403, "hop_denied"),
    "a proof without a hop": (post(b"x-vctl-hop-proof: " + b"0" * 64), 403, "hop_denied"),
    "a proof that is no ASCII": (
        post(b"x-vctl-hop: {}", b"x-vctl-hop-proof: \xff\xfe"), 403, "hop_denied",
    ),
    "a salt that is no text": (
        post(body=b'{"model": "support", "cache_salt": [1]}'), 400, "invalid_value",
    ),
    "an engine's own path": (post(path=b"/v1/load_lora_adapter"), 404, "not_found"),
    "another method": (b"DELETE /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", 405,
                       "method_not_allowed"),
    "another protocol": (
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        501,
        "invalid_request",
    ),
}  # fmt: skip


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Bench]:
    given = {"has_access_log": False, "fleet_key": KEY, "max_body_bytes": 2**20}
    async with serving(tmp_path, **given) as made:
        yield made
        assert made.gateway.references.listing() == ()


async def answers(gateway: Bench, raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return the first answer to what is sent: status, fields and body."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**20)
    try:
        async with asyncio.timeout(5):
            writer.write(raw)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = (line.partition(": ") for line in head[1:-2])
            fields = {name.lower(): value for name, _, value in pairs}
            body = await reader.readexactly(int(fields.get("content-length", "0")))
            return int(head[0].split()[1]), fields, body
    finally:
        writer.close()


@pytest.mark.parametrize("name", sorted(BAD))
async def test_bad_input_has_its_answer_and_reaches_no_engine(gateway: Bench, name: str):
    raw, status, code = BAD[name]
    found, _, body = await answers(gateway, raw)
    assert (status, code) == (found, json.loads(body)["error"]["code"])
    assert [] == gateway.engine.bodies
    assert 200 == (await answers(gateway, post()))[0]  # and the gateway goes on


@pytest.mark.parametrize(
    "fields",
    [
        (b"Content-Type: application/json; charset=utf-8",),
        (b"Content-Type: application/vnd.openai+json",),
        (b"Content-Type: application/octet-stream",),
        (b"Content-Encoding: identity",),
        (b"x-vctl-release: 1", b"x-vctl-release: 1"),
        (b"x-vctl-route: 7", b"x-vctl-vector: a=1", b"x-vctl-later: x"),
        (b"x-vctl-session: p1.forged.0", b"x-vctl-session: p1.other.1"),
        (b"x-vctl-tenant: a", b"x-vctl-tenant: b", b"x-vctl-user: \xff"),
        (b"Cookie: vctl-session=p1.1.forged.00; ;;=", b"Cookie: \xff"),
        (b"Connection: content-length, x-vctl-release, authorization",),
    ],
)
async def test_what_is_odd_and_harms_nobody_is_served(gateway: Bench, fields: tuple[bytes, ...]):
    status, told, _ = await answers(gateway, post(*fields))
    assert (200, "1") == (status, told["x-vctl-release"])
    (got,) = gateway.engine.headers
    assert not [name for name in got if name.lower().startswith("x-vctl-")]


async def test_deep_nesting_is_answered(gateway: Bench):
    """As a conversation whose beginning cannot be read, or is the engine's to refuse: never 500."""
    await gateway.route(a_route(1, candidate=2, weight=50.0))
    status, _, body = await answers(gateway, post(body=DEEP))
    assert (400, "invalid_json") == (status, json.loads(body)["error"]["code"])
    assert [] == gateway.engine.bodies


async def test_body_shorter_than_its_length_is_waited_for_and_what_follows_is_its_own(
    gateway: Bench,
):
    """A length that is too small makes the rest another request, which is none."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(post(body=BODY + b"}} extra", length=len(BODY)))
    answer = await reader.read()
    writer.close()
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert [b"200", b"400"] == statuses
    assert 1 == len(gateway.engine.bodies)


KEYED: dict[str, tuple[tuple[bytes, ...], int]] = {
    "none": ((), 401),
    "unknown": ((b"Authorization: Bearer sk-unknown-0123456789",), 401),
    "two keys": (
        (b"Authorization: Bearer %b" % ACME.encode(), b"x-api-key: " + BLUE.encode()), 401,
    ),
    "the same twice": (
        (b"Authorization: Bearer %b" % ACME.encode(), b"x-api-key: " + ACME.encode()), 200,
    ),
    "twice in one field": ((b"Authorization: Bearer %b, Bearer x" % ACME.encode(),), 401),
    "a tenant's name": ((b"Authorization: Bearer acme", b"x-vctl-tenant: acme"), 401),
    "no UTF-8": ((b"x-api-key: \xff\xfe",), 401),
    "a huge one": ((b"x-api-key: " + b"a" * 60_000,), 401),
    "a forged hop": ((b"x-vctl-hop: {}", b"x-vctl-hop-proof: 00"), 403),
    "named in Connection": (
        (b"x-api-key: " + ACME.encode(), b"Connection: x-api-key, keep-alive"), 200,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(KEYED))
async def test_forged_and_doubled_keys_have_their_answer(tmp_path: Path, name: str):
    fields, status = KEYED[name]
    async with serving(tmp_path, has_access_log=False, fleet_key=KEY, api_keys=FILE) as gateway:
        await give(gateway, "support", "acme")
        found, told, _ = await answers(gateway, post(*fields))
        assert status == found
        assert ("www-authenticate" in told) == (status == 401)
        assert (1 if status == 200 else 0) == len(gateway.engine.bodies)
        for got in gateway.engine.headers:
            assert not {"authorization", "x-api-key"} & {each.lower() for each in got}
