"""The program as a user runs it: real processes, real sockets, real signals."""

import json
import signal
import subprocess
import sys
import time

import httpx
import pytest

pytestmark = pytest.mark.torch

COMMAND = [
    sys.executable,
    "-c",
    "from vctl_agent.engines.torch.program import main; main()",
]
ASK = {"model": "base", "prompt": "Tell me", "temperature": 0, "ignore_eos": True}


def until(true, what, deadline_s=20.0):
    end = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end, f"{what} did not happen in {deadline_s} s"
        time.sleep(0.02)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))

    def ran(*arguments):
        return subprocess.run(
            [*COMMAND, *map(str, arguments)], capture_output=True, check=False, timeout=60
        )

    return ran


@pytest.fixture
def start(folders, tmp_path, monkeypatch):
    """Start an engine and return the process and its address; all are killed in the end."""
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    started: list[subprocess.Popen[bytes]] = []

    def begin(*flags):
        port_file = tmp_path / f"port{len(started)}"
        log = (tmp_path / f"log{len(started)}").open("wb")
        arguments = ["--base", folders / "base", "--port", "0", "--port-file", port_file, *flags]
        process = subprocess.Popen(
            [*COMMAND, "serve", *map(str, arguments)], stdout=subprocess.PIPE, stderr=log
        )
        log.close()
        started.append(process)
        until(lambda: port_file.exists() or process.poll() is not None, "listening")
        assert process.poll() is None, (tmp_path / f"log{len(started) - 1}").read_text()
        return process, f"http://127.0.0.1:{port_file.read_text().strip()}"

    yield begin
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def test_a_request_is_dropped_with_its_client_and_finished_on_sigterm(start):
    process, url = start("--token-delay-ms", "20", "--served-name", "base")
    assert process.stdout.readline().decode() == f"{url}\n"

    def inflight():
        return httpx.get(f"{url}/engine").json()["inflight"]

    for is_stream in (True, False):
        body = {**ASK, "max_tokens": 400, "stream": is_stream}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/completions", json=body, timeout=httpx.Timeout(5, read=0.01))
        until(lambda: inflight() == {}, "cancelling", 1.0)

    body = {**ASK, "max_tokens": 20, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert process.wait(10) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_a_request_that_takes_too_long_is_cut_off(start):
    process, url = start("--token-delay-ms", "100", "--shutdown-timeout", "0.2")
    body = {**ASK, "max_tokens": 400, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
    assert process.wait(10) == 0


def test_a_killed_engine_comes_back_as_another_incarnation_and_empty(start, folders):
    process, url = start()
    body = {"lora_name": "one", "lora_path": str(folders / "a")}
    assert httpx.post(f"{url}/v1/load_lora_adapter", json=body).status_code == 200
    before = httpx.get(f"{url}/engine").json()
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    after = httpx.get(f"{start()[1]}/engine").json()
    assert before["incarnation"] != after["incarnation"]
    assert (len(before["adapters"]), after["adapters"]) == (1, [])


def test_make_and_answer_agree_with_a_served_answer(run, start, folders, tmp_path):
    made = run("make-adapter", tmp_path / "x", "--base", folders / "base", "--seed", 9)
    assert (made.returncode, made.stdout, made.stderr) == (0, b"", b"")
    chat = {"messages": [{"role": "user", "content": "Hello"}]}
    (tmp_path / "prompts.json").write_text(json.dumps(["Hello", chat]))
    answered = run(
        *("answer", "--base", folders / "base", "--adapter", tmp_path / "x"),
        *("--prompts", tmp_path / "prompts.json", "--max-tokens", 5),
    )
    said = json.loads(answered.stdout)["answers"]
    assert [one["prompt"] for one in said] == ["Hello", chat]
    url = start()[1]
    body = {"lora_name": "x", "lora_path": str(tmp_path / "x")}
    httpx.post(f"{url}/v1/load_lora_adapter", json=body).raise_for_status()
    ask = {"model": "x", "temperature": 0, "max_tokens": 5, "return_token_ids": True}
    served = [
        httpx.post(f"{url}/v1/completions", json={**ask, "prompt": "Hello"}).json(),
        httpx.post(f"{url}/v1/chat/completions", json={**ask, **chat}).json(),
    ]
    served = [one["choices"][0] for one in served]
    assert [one["token_ids"] for one in said] == [one["token_ids"] for one in served]
    assert said[1]["text"] == served[1]["message"]["content"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("serve", "--base", "/nowhere"), 1, "/nowhere/config.json: No such file"),
        (("make-base", "/dev/null", "--seed", "1"), 1, "/dev/null is there already"),
        (("serve",), 2, "--base"),
    ],
)
def test_what_cannot_be_done_is_said_on_stderr(run, arguments, code, message):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (code, b"")
    assert message in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
