"""A fleet whose nodes do not conduct: processes without a node decide, and tell what went wrong."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.support import LEASE_TTL_S, Fleet, a_fleet
from vctl_agent.crashpoints import VARIABLE
from vctl_cli.dev.layout import clean
from vctl_cli.dev.program import Program
from vctl_cli.programs import command_of
from vctl_plans.keys import Keys
from vctl_plans.store.gateway import GatewayReader
from vctl_plans.store.settings import StoreSettings

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.xdist_group("conductor-only"),
]

NAMES = ("c1", "c2")


class Hook(ThreadingHTTPServer):
    """A webhook that keeps what it got; it is busy for as many posts as it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.got: list[dict[str, object]] = []
        self.busy = 0


class _Answer(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append(json.loads(body))
        self.send_response(503 if self.server.busy else 200)
        self.server.busy = max(0, self.server.busy - 1)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    with Hook() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def conductors() -> dict[str, Program]:
    return {}


@pytest.fixture(scope="module")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, hook: Hook, conductors: dict[str, Program]
) -> Iterator[Fleet]:
    """One node that may not conduct, and two processes that do nothing else."""
    folder = tmp_path_factory.mktemp("fleet")
    url = f"http://127.0.0.1:{hook.server_address[1]}/secret-path"
    webhooks = folder / "webhooks.yaml"
    webhooks.write_text(f"- {{kind: generic, url: '{url}'}}\n")
    with ExitStack() as stack:
        made = stack.enter_context(a_fleet(folder, nodes=1, agent_arguments=("--conduct", "off")))
        for name in NAMES:
            program = _conductor(made, name, webhooks)
            stack.callback(program.kill)
            program.start()
            conductors[name] = program
        made.until(lambda: _elected(made) in NAMES)
        said = made.vctl("rollout", "start", "--new-service", "--adapter", str(made.adapter("v1")))
        assert said.code == 0, (said, _logs(conductors))
        yield made


def _conductor(fleet: Fleet, name: str, webhooks: Path) -> Program:
    arguments = {
        "--fleet": fleet.dev.options.fleet,
        "--node": name,
        "--endpoints": fleet.dev.layout.endpoint,
        "--lease-ttl": f"{LEASE_TTL_S:g}",
        "--webhooks": str(webhooks),
    }
    flat = [part for pair in arguments.items() for part in pair]
    return Program(
        name,
        [command_of("vctl-agent"), "--conductor-only", *flat],
        env=clean(os.environ) | {"NO_PROXY": "127.0.0.1"},
        log=fleet.folder / "logs" / f"{name}-agent.log",
    )


def _read(fleet: Fleet, key: str) -> bytes:
    settings = StoreSettings(endpoints=(fleet.dev.layout.endpoint,))
    with GatewayReader(settings, budget_s=2.0) as reader:
        found = reader.get(key)
    return found.value if found else b""


def _elected(fleet: Fleet) -> str:
    """Return the name of who conducts; nothing while nobody does."""
    return _read(fleet, Keys(fleet.dev.options.fleet).conductor).decode().partition(" ")[0]


def _logs(conductors: dict[str, Program]) -> str:
    return "\n".join(program.log_tail() for program in conductors.values())


def test_rollout_goes_on_under_another_conductor_when_one_is_killed(
    fleet: Fleet, conductors: dict[str, Program]
) -> None:
    """With SIGKILL, while it runs: the next one has the office once the lease has ended."""
    first = _elected(fleet)
    command = fleet.begin("rollout", "start", "--adapter", str(fleet.adapter("v2")), "--soak", "1s")
    fleet.until(lambda: fleet.rollout().to_release == 2)
    conductors[first].kill()
    out, err = command.communicate(timeout=60)

    assert 0 == command.returncode, (out, err, _logs(conductors))
    (second,) = set(NAMES) - {first}
    assert second == _elected(fleet)
    assert ["n1"] == list(fleet.dev.read().records)
    conductors[first].start()


def test_summary_is_kept_and_shown(fleet: Fleet) -> None:
    """Within a second or so of the last decision."""

    def is_current() -> bool:
        said = fleet.vctl("status", "--summary")
        assert 0 == said.code, said
        return "1 nodes present, 1 known\nsupport: 1 ready" in said.out and "older" not in said.out

    fleet.until(is_current)


def _fail(fleet: Fleet) -> str:
    """Roll out a release whose bytes are not those of its root; return its alert's id."""
    victim = fleet.folder / "models" / "adapters" / f"rotten{len(fleet.service().releases)}"
    victim.mkdir()
    for file in fleet.adapter("v3").iterdir():
        (victim / file.name).write_bytes(file.read_bytes())
    assert 0 == fleet.vctl("release", "create", "support", "--adapter", str(victim)).code
    weights = victim / "adapter_model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    said = fleet.vctl("rollout", "start", "--release", str(max(fleet.service().releases)))

    assert 1 == said.code, said
    rollout = fleet.rollout()
    return f"{rollout.id}-{rollout.seq}"


def _until_forgotten(fleet: Fleet, alert: str) -> None:
    key = Keys(fleet.dev.options.fleet).alert(alert)
    fleet.until(lambda: not _read(fleet, key))


def test_rollout_that_fails_is_told_to_the_webhook_though_it_is_busy_first(
    fleet: Fleet, hook: Hook, conductors: dict[str, Program]
) -> None:
    """The same id twice, and nothing left to send; the address stands in no log."""
    hook.busy = 1
    alert = _fail(fleet)

    _until_forgotten(fleet, alert)
    first, second = (said for said in hook.got if said["id"] == alert)
    assert first == second
    assert ("vctl.alert", "P1", fleet.rollout().sentence, "dev") == tuple(
        first[name] for name in ("kind", "severity", "sentence", "fleet")
    )
    logs = "".join(program.log.read_text() for program in conductors.values())
    assert "alert delivered" in logs
    assert "secret-path" not in logs


@pytest.mark.parametrize(("effect", "expected"), [(1, 1), (2, 2), (3, 1)])
def test_alert_is_told_at_least_once_though_its_conductor_dies(
    fleet: Fleet, hook: Hook, conductors: dict[str, Program], effect: int, expected: int
) -> None:
    """Right after it (1) decided, (2) delivered, (3) forgot: only the second tells it again."""
    for program in conductors.values():
        program.kill()
    doomed, heir = (conductors[name] for name in NAMES)
    doomed.start(more_env={VARIABLE: str(effect)})
    fleet.until(lambda: _elected(fleet) == NAMES[0])

    alert = _fail(fleet)
    fleet.until(lambda: not doomed.is_running)
    heir.start()
    fleet.until(lambda: _elected(fleet) == NAMES[1])
    _until_forgotten(fleet, alert)

    assert [alert] * expected == [said["id"] for said in hook.got if said["id"] == alert]
