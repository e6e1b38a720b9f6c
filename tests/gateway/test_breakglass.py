"""Root has one node serve a release: kept over a restart, shown, and never a revoked one."""

import asyncio
import contextlib
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.gateway.support import (
    Bench,
    StubEngine,
    a_route,
    bench,
    eventually,
    serving,
)
from tests.gateway.test_program import BODY, process, save_state
from vctl_agent.gateway.breakglass import FILE_NAME, Order, Overrides, Reply
from vctl_agent.gateway.handover import control_path


async def said(state: Path, *arguments: str) -> tuple[int, str, str]:
    """Run `vctl-gateway override` as root would."""
    made = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vctl_agent.gateway", "override", "--state", str(state)),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await made.communicate()
    assert made.returncode is not None
    return made.returncode, out.decode(), error.decode()


async def release_of(gateway: Bench, **headers: str) -> tuple[int, str]:
    async with gateway.ask(headers=headers or None) as answer:
        return answer.status, answer.headers.get("x-vctl-release", "")


async def test_override_serves_shows_and_ends(tmp_path: Path):
    async with serving(tmp_path, has_access_log=False) as gateway:
        state = gateway.settings.state
        await eventually(control_path(state).exists)
        assert (200, "1") == await release_of(gateway)

        done = await said(state, "--service", "support", "--release", "2", "--reason", "INC-7")
        assert (0, "support: release 2 (INC-7)\n", "") == done
        assert (200, "2") == await release_of(gateway)
        assert 'vctl_gateway_override{release="2",service="support"} 1.0' in await gateway.metrics()
        await eventually(lambda: gateway.agent.last.overrides == {"support": 2})
        await gateway.route(a_route(1, candidate=2, weight=0.0))
        assert (200, "2") == await release_of(gateway)

        assert (0, "no override stands\n", "") == await said(
            state, "--service", "support", "--clear"
        )
        assert (200, "1") == await release_of(gateway)


async def test_revocation_outweighs_an_override(tmp_path: Path):
    async with serving(tmp_path, has_access_log=False) as gateway:
        state = gateway.settings.state
        await eventually(control_path(state).exists)
        override = ("--service", "support", "--release", "2", "--reason", "r")
        assert 0 == (await said(state, *override))[0]
        await gateway.route(a_route(1, revoked=(2,)))

        assert (200, "1") == await release_of(gateway)
        code, _, error = await said(state, *override)
        assert (1, True) == (code, "is revoked" in error)


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        (Order(service="support", release=7, reason="r"), "not ready here (ready: 1, 2)"),
        (Order(service="support", release=2), "needs a reason"),
        (Order(service="nobody", release=1, reason="r"), "not ready here (ready: none)"),
    ],
)
async def test_order_that_cannot_be_followed_changes_nothing(
    tmp_path: Path, order: Order, problem: str
):
    async with serving(tmp_path, has_access_log=False) as gateway:
        overrides = Overrides(gateway.gateway.live, tmp_path)
        reply = msgspec.json.decode(overrides.act(msgspec.json.encode(order).decode()), type=Reply)

        assert problem in reply.problem
        assert not (tmp_path / FILE_NAME).exists()
        assert (200, "1") == await release_of(gateway)


async def test_nonsense_on_the_control_socket_is_answered_and_stops_nothing(tmp_path: Path):
    async with bench(tmp_path) as gateway:
        path = control_path(gateway.settings.state)
        await eventually(path.exists)
        for line in (b"override {\n", b"nonsense\n", b"\n", b"", b"x" * 70_000):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(line)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(5):
                    await reader.read()
            writer.close()
        assert 0 == (await said(gateway.settings.state))[0]


async def test_override_outlives_the_process(tmp_path: Path):
    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        await save_state(tmp_path, engine.url)
        kept = b'[{"service":"support","release":1,"reason":"r"}]'
        (tmp_path / "state" / FILE_NAME).write_bytes(kept)
        async with process(tmp_path) as gateway:
            async with client.post(f"{gateway.url}/v1/completions", json=BODY) as answer:
                assert "1" == answer.headers["x-vctl-release"]
            assert "override stands" in {line["event"] for line in gateway.logged()}

            def whys() -> list[str]:
                return [line["why"] for line in gateway.logged() if line["event"] == "request"]

            await eventually(lambda: whys() == ["break-glass"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--service", "support"), 2),
        (("--service", "support", "--release", "2", "--clear"), 2),
        (("--release", "2"), 2),
        (("--service", "Bad Name", "--clear"), 2),
        ((), 1),  # nobody answers there
    ],
)
async def test_wrong_commands_say_what_is_missing(
    tmp_path: Path, arguments: tuple[str, ...], code: int
):
    found, _, error = await said(tmp_path, *arguments)

    assert code == found
    assert error
