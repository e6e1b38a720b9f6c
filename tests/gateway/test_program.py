"""The real process: what a user starts, kills and starts again."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.gateway.support import (
    FLEET,
    KEYS,
    StubAgent,
    StubEngine,
    a_release,
    a_route,
    event,
    eventually,
    nobody_url,
    ready,
)
from tests.gateway.test_apikeys import ACME, BLUE, a_line
from tests.gateway.test_state import an_update, support
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.persist import Saver

MODEL = a_release(1).engine_name
BODY = {"model": "support", "messages": [{"role": "user", "content": "a secret"}]}


class Process:
    """A gateway as a process."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder = folder
        self._flags = flags
        self._log = (folder / "log").open("ab")
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        files = [self._folder / "port", self._folder / "admin-port"]
        for file in files:
            file.unlink(missing_ok=True)
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "vctl_agent.gateway", "--fleet", FLEET, "--node", "n1"),
            *("--listen", "127.0.0.1:0", "--port-file", str(files[0])),
            *("--admin-port-file", str(files[1]), "--socket", str(self._folder / "gw.sock")),
            *("--state", str(self._folder / "state"), "--endpoints", nobody_url()),
            *self._flags,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        await eventually(lambda: all(file.exists() for file in files), deadline_s=15)
        self.url, self.admin_url = (f"http://{file.read_text().strip()}" for file in files)

    async def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        return await self.ended()

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        async with asyncio.timeout(10):
            return await self._process.wait()

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self._folder / "log").read_text().splitlines()]

    def has_logged_a_request(self) -> bool:
        return any(line["event"] == "request" for line in self.logged())

    async def clean(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._log.close()


@contextlib.asynccontextmanager
async def process(folder: Path, *flags: str) -> AsyncIterator[Process]:
    made = Process(folder, *flags)
    await made.start()
    try:
        yield made
    finally:
        await made.clean()


async def save_state(folder: Path, engine_url: str) -> None:
    """Leave on disk what a gateway leaves that serves release 1."""
    (folder / "state").mkdir()
    live = Live(Acted(), prefix=KEYS.services, clock=lambda: 0.0)
    live.learn(an_update(9, **support(a_route(1))))
    live.accept(ready(a_release(1), engine_url=engine_url))
    await Saver(live, folder / "state", FLEET).save()


async def test_gateway_alone_after_a_kill_serves_the_last_route(tmp_path: Path):
    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        await save_state(tmp_path, engine.url)
        async with process(tmp_path) as gateway:
            for _ in range(2):
                url = f"{gateway.url}/v1/chat/completions"
                async with client.post(url, json=BODY) as answer:
                    assert (answer.status, answer.headers["x-vctl-route"]) == (200, "5")
                async with client.get(f"{gateway.admin_url}/readyz") as answer:
                    assert (answer.status, (await answer.json())["is_connected"]) == (200, False)
                await eventually(gateway.has_logged_a_request)
                assert await gateway.end(signal.SIGKILL) == -signal.SIGKILL
                await gateway.start()
        (line, *_) = [line for line in gateway.logged() if line["event"] == "request"]
        assert (line["service"], line["release"], line["status"]) == ("support", 1, 200)
        assert (line["node"], line["fleet"]) == ("n1", FLEET)
        assert "a secret" not in (tmp_path / "log").read_text()


async def test_sigterm_lets_streams_finish_and_takes_no_new_connection(tmp_path: Path):
    go = asyncio.Event()

    async def wait_then_end(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event(body["model"], "t0"))
        await go.wait()
        await response.write(event(body["model"], "t1"))
        return response

    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        engine.answer = wait_then_end
        await save_state(tmp_path, engine.url)
        async with process(tmp_path, "--grace", "10s", "--access-log", "off") as gateway:
            url = f"{gateway.url}/v1/chat/completions"
            async with client.post(url, json=BODY) as answer:
                await answer.content.readuntil(b"\n\n")
                gateway.tell(signal.SIGTERM)
                await eventually(lambda: gateway.logged()[-1]["event"] == "draining")
                async with client.get(f"{gateway.admin_url}/readyz") as readyz:
                    assert (await readyz.json())["reason"] == "draining"
                async with aiohttp.ClientSession() as other:
                    with pytest.raises(aiohttp.ClientConnectorError):
                        await other.post(url, json=BODY)
                go.set()
                assert await answer.content.read() == event("support", "t1")
            assert await gateway.ended() == 0


async def test_stream_that_outlasts_the_grace_time_is_cut(tmp_path: Path):
    async def never_end(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event(body["model"], "t0"))
        await asyncio.sleep(60)
        return response

    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        engine.answer = never_end
        await save_state(tmp_path, engine.url)
        async with process(tmp_path, "--grace", "100ms") as gateway:
            async with client.post(f"{gateway.url}/v1/chat/completions", json=BODY) as answer:
                await answer.content.readuntil(b"\n\n")
                gateway.tell(signal.SIGTERM)
                with pytest.raises(aiohttp.ClientPayloadError):
                    await answer.content.read()
            assert await gateway.ended() == 0
            assert [499] == _statuses(gateway)


async def test_second_signal_cuts_the_drain_short(tmp_path: Path):
    async def never_end(*_: Any) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        engine.answer = never_end
        await save_state(tmp_path, engine.url)
        async with process(tmp_path, "--grace", "1h") as gateway:
            url = f"{gateway.url}/v1/chat/completions"
            request = asyncio.create_task(_status(client, url))
            await eventually(lambda: engine.open == 1)
            gateway.tell(signal.SIGTERM)
            await eventually(lambda: gateway.logged()[-1]["event"] == "draining")
            gateway.tell(signal.SIGTERM)
            assert await gateway.ended() == 0
            with pytest.raises(aiohttp.ClientError):
                await request
            assert [499] == _statuses(gateway)


def _statuses(gateway: Process) -> list[int]:
    """Return what the log says of requests: also those that the end cuts stand in it."""
    return [line["status"] for line in gateway.logged() if line["event"] == "request"]


async def _status(client: aiohttp.ClientSession, url: str) -> int:
    async with client.post(url, json=BODY) as answer:
        return answer.status


async def test_malformed_request_leaves_one_line_without_its_text(tmp_path: Path):
    async with process(tmp_path) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\na secret\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await writer.wait_closed()
        await eventually(lambda: gateway.logged()[-1]["event"] == "malformed request")
    assert "a secret" not in (tmp_path / "log").read_text()


async def test_second_gateway_on_a_socket_does_not_start(tmp_path: Path):
    flags = ("--socket", str(tmp_path / "gw.sock"), "--state", str(tmp_path / "other"))
    async with process(tmp_path):
        status, error = await run("--fleet", FLEET, "--node", "n2", *flags)
    assert status == 1
    assert f"another gateway listens on {tmp_path}" in json.loads(error)["error"]


async def test_agent_speaks_to_the_process_over_its_socket(tmp_path: Path):
    async with StubEngine().running() as engine:
        await save_state(tmp_path, engine.url)
        async with process(tmp_path):
            agent = StubAgent(tmp_path / "gw.sock")
            await agent.connect()
            await eventually(lambda: bool(agent.heard))
            assert agent.last.routes == {"support": 5}
            assert not agent.last.is_connected
            await agent.say(ready(engine_url=engine.url))
            await eventually(lambda: agent.last.accepted == ())
            await agent.vanish()


async def test_api_keys_are_read_again_on_sighup(tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text(a_line("default", ACME))
    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        await save_state(tmp_path, engine.url)
        async with process(tmp_path, "--api-keys-file", str(keys)) as gateway:
            url = f"{gateway.url}/v1/chat/completions"

            async def status(key: str) -> int:
                async with client.post(url, json=BODY, headers={"x-api-key": key}) as answer:
                    return answer.status

            assert (200, 401) == (await status(ACME), await status(BLUE))
            keys.write_text(a_line("default", BLUE))
            gateway.tell(signal.SIGHUP)
            await eventually(
                lambda: any(line["event"] == "API keys read" for line in gateway.logged())
            )
            assert (401, 200) == (await status(ACME), await status(BLUE))
            await eventually(gateway.has_logged_a_request)
            (line, *_) = [line for line in gateway.logged() if line["event"] == "request"]
            assert "default" == line["tenant"]
    log = (tmp_path / "log").read_text()
    assert not [key for key in (ACME, BLUE) if key in log]


async def test_key_is_hashed_by_the_program_itself():
    made = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vctl_agent.gateway", "hash-key", "acme"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    out, _ = await made.communicate(ACME.encode() + b"\n")
    assert (0, a_line("acme", ACME)) == (made.returncode, out.decode())


async def run(*flags: str) -> tuple[int | None, str]:
    """Run a gateway that does not start; return its exit code and what it says."""
    made = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vctl_agent.gateway", *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    out, error = await made.communicate()
    assert out == b""
    return made.returncode, error.decode()


async def test_configuration_problems_are_all_said_and_end_with_2():
    status, error = await run("--node", "N", "--listen", "x")
    assert status == 2
    lines = error.splitlines()
    named = [line.split(":")[1].split()[0] for line in lines[:3]]
    assert named == ["--fleet", "--node", "--listen"]
    assert lines[3] == "vctl-gateway --help lists all settings"
