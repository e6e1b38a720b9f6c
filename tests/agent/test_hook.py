"""A hook is told, is believed by its exit code, and never holds anything up."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from vctl_agent.hook import Hook
from vctl_plans.errors import EngineError, PermanentEngineError, TemporaryEngineError


def a_hook(
    script: str, *, timeout_s: float = 20.0, environment: dict[str, str] | None = None
) -> Hook:
    """Return a hook that is a line of shell."""
    env = {"PATH": os.environ["PATH"]} if environment is None else environment
    return Hook(("/bin/sh", "-c", script), timeout_s=timeout_s, environment=env)


async def test_hook_reads_the_document(tmp_path: Path) -> None:
    """On stdin, to its end."""
    document = b'{"event": "load"}' * 20_000

    await a_hook(f"cat > {tmp_path}/seen").run("load", document)

    assert document == (tmp_path / "seen").read_bytes()


async def test_hook_that_reads_nothing_is_no_failure() -> None:
    """A document that nobody takes breaks no pipe."""
    await a_hook("exit 0").run("load", b"x" * 1_000_000)


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        ("exit 75", TemporaryEngineError, "the hook failed on load (exit code 75)"),
        ("echo busy >&2; exit 75", TemporaryEngineError,
         "the hook failed on load (exit code 75): busy"),
        ("exit 1", PermanentEngineError, "the hook failed on load (exit code 1)"),
        ("echo one >&2; echo 'no such index' >&2; echo >&2; exit 3", PermanentEngineError,
         "the hook failed on load (exit code 3): no such index"),
        ("echo not this; exit 2", PermanentEngineError, "the hook failed on load (exit code 2)"),
        ("kill -9 $$", PermanentEngineError, "the hook failed on load (signal 9)"),
        (r"printf 'a\033[31mb' >&2; exit 1", PermanentEngineError,
         "the hook failed on load (exit code 1): a[31mb"),
    ],
)  # fmt: skip
async def test_failure_is_told_by_the_exit_code(
    script: str, kind: type[EngineError], message: str
) -> None:
    """75 asks for another try; anything else is final, with the last line of stderr."""
    with pytest.raises(EngineError) as failed:
        await a_hook(script).run("load", b"")

    assert (kind, message) == (type(failed.value), failed.value.message)


async def test_much_on_stderr_is_cut() -> None:
    """A report stays small, whatever a hook writes."""
    script = "i=0; while [ $i -lt 3000 ]; do printf xxxxxxxx >&2; i=$((i+1)); done; exit 1"

    with pytest.raises(PermanentEngineError) as failed:
        await a_hook(script).run("load", b"")

    assert "the hook failed on load (exit code 1): " + "x" * 300 == failed.value.message


async def test_hook_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    """It may be tried again."""
    script = f"sleep 600 & echo $! > {tmp_path}/child; wait"

    with pytest.raises(TemporaryEngineError, match=r"within 0\.3 s, and was killed"):
        await a_hook(script, timeout_s=0.3).run("unload", b"")

    await _gone(int((tmp_path / "child").read_text()))


async def test_hook_is_killed_when_the_agent_ends(tmp_path: Path) -> None:
    """The next agent calls it again."""
    running = asyncio.create_task(a_hook(f"echo $$ > {tmp_path}/pid; sleep 600").run("load", b""))
    async with asyncio.timeout(10):
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    await _gone(int((tmp_path / "pid").read_text()))


async def test_child_that_lives_on_holds_nothing_up(tmp_path: Path) -> None:
    """A hook may start a server, which keeps what it inherited open."""
    async with asyncio.timeout(10):
        await a_hook(f"sleep 600 & echo $! > {tmp_path}/child").run("load", b"")

    child = int((tmp_path / "child").read_text())
    assert _lives(child), "it was not the hook's deadline that ended the wait"
    os.kill(child, signal.SIGKILL)


async def test_program_that_is_not_there_is_a_failure_for_good() -> None:
    """Each rollout says so, until somebody mends it."""
    hook = Hook(("/no/such/hook",), timeout_s=5, environment={})

    with pytest.raises(PermanentEngineError, match="/no/such/hook cannot be run: No such file"):
        await hook.run("load", b"")


async def test_hook_does_not_inherit_credentials(tmp_path: Path) -> None:
    """What the agent needs for etcd is not the hook's."""
    environment = {
        "PATH": os.environ["PATH"],
        "ETCDCTL_PASSWORD": "s1",
        "ETCDCTL_USER": "root:s2",
        "VCTL_USER": "root:s3",
        "VCTL_PASSWORD": "s4",
        "MINE": "kept",
    }

    await a_hook(f"env > {tmp_path}/env", environment=environment).run("load", b"")

    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert {"MINE", "PATH"} <= names
    assert not {name for name in names if name.startswith(("ETCDCTL_", "VCTL_"))}


async def _gone(pid: int) -> None:
    """Wait until a process has ended."""
    async with asyncio.timeout(10):
        while _lives(pid):
            await asyncio.sleep(0.01)


def _lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
