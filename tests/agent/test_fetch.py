"""An artifact comes over a real network as it would: late, cut, changed, wrong; whole at last."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.fetching import (
    MIB,
    make_model,
    noise,
    published,
    run_until_killed,
    silent,
    size_of,
)
from tests.agent.support import (
    SERVICE,
    Node,
    a_fleet,
    a_rollout,
    make_adapter,
    next_release,
)
from tests.sources.servers import Behaviour, serving
from tests.weights.building import fill
from vctl_agent.artifacts import layout, leftovers
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.stager import Stopped
from vctl_plans import weights
from vctl_plans.errors import (
    ArtifactError,
    FileChanged,
    NoRoom,
    NotAllowed,
    RootMismatch,
    SourceError,
    SourceMissing,
    SourceRefused,
)
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact, Release

WEIGHTS = "model.safetensors"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Behaviour]]:
    (tmp_path / "srv").mkdir()
    with serving(tmp_path / "srv") as (url, about):
        yield url, about


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return _store(tmp_path / "state")


def _store(state: Path, **more: tuple[str, ...]) -> ArtifactStore:
    made = ArtifactStore(state, [], **more)  # type: ignore[arg-type]
    made.open()
    return made


def _unfinished(store: ArtifactStore, artifact: Artifact) -> Path:
    return leftovers.unfinished(store.path(artifact.root).parent, artifact.root)


def _missing_bytes(store: ArtifactStore, artifact: Artifact) -> int:
    """Return what the unfinished copy lacks, by its bytes."""
    manifest = weights.load(store.manifest_path(artifact.root))
    blocks = list(weights.blocks(manifest))
    folder = _unfinished(store, artifact)
    right = layout.right_blocks(folder, blocks, lambda _: None) if folder.exists() else set()
    return sum(block.size for block in blocks if block not in right)


def _is_right(store: ArtifactStore, artifact: Artifact) -> bool:
    staged = store.path(artifact.root)
    return store.is_staged(artifact.root) and weights.scan(staged).root == artifact.root


def test_artifact_is_fetched(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """Every file of the manifest, read-only, each byte sent once; and nothing else."""
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1, 2, 3), url=url)
    fill(tmp_path / "srv/v1", {"README.md": "not served"})
    told: list[tuple[NodePhase, int, int]] = []

    staged = store.stage(artifact, lambda *now: told.append(now), kind="model")

    assert _is_right(store, artifact)
    assert ["config.json", WEIGHTS] == sorted(path.name for path in staged.iterdir())
    assert {0o444} == {path.stat().st_mode & 0o777 for path in staged.iterdir()}
    total = size_of(staged)
    assert total == about.sent_bytes()
    assert (NodePhase.FETCHING, total, total) in told
    assert {total} == {size for _, _, size in told}
    assert not _unfinished(store, artifact).exists()


def test_files_of_all_sizes_are_fetched(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """Empty ones, folders, names that a URL has to quote."""
    files = {"empty": b"", "d/e/a b%?#.txt": b"x", "big": noise(1, 3 * MIB + 7), "mib": bytes(MIB)}
    artifact = published(fill(tmp_path / "srv/i", files), url=served[0], kind="plain")

    staged = store.stage(artifact, silent, kind="plain")

    assert files == {str(p.relative_to(staged)): p.read_bytes()
                     for p in staged.rglob("*") if p.is_file()}  # fmt: skip


def test_single_file_is_fetched_into_a_folder(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    fill(tmp_path / "srv", {"p.txt": "You are kind."})
    artifact = published(tmp_path / "srv/p.txt", url=served[0], kind="plain")

    staged = store.stage(artifact, silent, kind="plain")

    assert "You are kind." == (staged / "p.txt").read_text()


def test_server_without_ranges_will_do(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """Also to go on: then what comes before the first missing block is sent in vain."""
    url, about = served
    about.has_ranges = False
    artifact = make_model(tmp_path / "srv/v1", (1, 2, 3), url=url)
    about.cuts = {WEIGHTS: [2 * MIB + 100]}

    store.stage(artifact, silent, kind="model")

    assert _is_right(store, artifact)


def test_cut_connections_cost_the_blocks_they_were_cut_in(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", tuple(range(6)), url=url)
    cuts = [3 * MIB + 5, 2 * MIB, 100, 5 * MIB]
    about.cuts = {WEIGHTS: list(cuts)}

    store.stage(artifact, silent, kind="model")

    assert _is_right(store, artifact)
    extra = about.sent_bytes() - size_of(store.path(artifact.root))
    assert 0 <= extra <= len(cuts) * MIB


def test_server_that_is_busy_is_asked_again(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1,), url=url)
    about.statuses = [200, 503, 429]

    store.stage(artifact, silent, kind="model")

    assert _is_right(store, artifact)


@pytest.mark.parametrize(
    ("status", "kind"), [(404, SourceMissing), (403, SourceRefused), (503, SourceError)]
)
def test_error_tells_whether_to_try_again(
    store: ArtifactStore,
    served: tuple[str, Behaviour],
    tmp_path: Path,
    status: int,
    kind: type[Exception],
) -> None:
    """And what came is kept."""
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1,), url=url)
    about.statuses = [200, 200] + [status] * 40

    with pytest.raises(kind) as caught:
        store.stage(artifact, silent, kind="model")

    assert kind is type(caught.value)
    assert not store.path(artifact.root).exists()
    assert _unfinished(store, artifact).exists()
    about.statuses = []
    store.stage(artifact, silent, kind="model")
    assert _is_right(store, artifact)


def test_source_that_changes_while_it_is_copied(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """Noticed by its ETag; the next try reads what is there then."""
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1, 2, 3), url=url)
    about.cuts, about.tag_after_cut = {WEIGHTS: [MIB + MIB // 2]}, "new"

    with pytest.raises(FileChanged, match="changed while it was read"):
        store.stage(artifact, silent, kind="model")

    assert not store.path(artifact.root).exists()
    store.stage(artifact, silent, kind="model")
    assert _is_right(store, artifact)


def test_source_that_was_overwritten_is_named(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """Another version at the same place is no version of this root."""
    artifact = make_model(tmp_path / "srv/v1", (1, 2), url=served[0])
    newer = make_model(tmp_path / "srv/v1", (1, 3), url=served[0])

    with pytest.raises(RootMismatch, match=newer.root):
        store.stage(artifact, silent, kind="model")


def test_wrong_bytes_are_named_and_never_kept(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """The server sends others than the manifest says; the tensor is named."""
    artifact = make_model(tmp_path / "srv/v1", (1, 2), url=served[0])
    victim = tmp_path / "srv/v1" / WEIGHTS
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)

    with pytest.raises(RootMismatch, match="are not those that the root names") as caught:
        store.stage(artifact, silent, kind="model")

    assert ("t1",) == caught.value.tensors
    assert not store.path(artifact.root).exists()
    assert 0 < _missing_bytes(store, artifact) <= 2 * MIB


def test_blocks_of_another_artifact_are_not_fetched_again(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """Two of three tensors are here already: the third one, and what is new, comes over the net."""
    url, about = served
    store.stage(make_model(tmp_path / "srv/v1", (1, 2, 3), url=url), silent, kind="model")
    about.sent.clear()
    second = make_model(tmp_path / "srv/v2", (3, 9, 1), url=url)

    store.stage(second, silent, kind="model")

    assert _is_right(store, second)
    assert 2 * MIB + MIB // 2 == about.sent_bytes()


def test_rotten_block_of_another_artifact_is_fetched(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """What is taken from elsewhere on the disk is not trusted."""
    url, about = served
    first = store.stage(make_model(tmp_path / "srv/v1", (1, 2), url=url), silent, kind="model")
    _rot(first / WEIGHTS, -1)
    about.sent.clear()
    second = make_model(tmp_path / "srv/v2", (2, 5), url=url)

    store.stage(second, silent, kind="model")

    assert _is_right(store, second)
    assert 3 * MIB == about.sent_bytes(), "the new tensor, and the last block of the rotten one"


def test_other_artifact_that_is_gone_or_short_is_no_obstacle(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """It may be collected at any time."""
    first = store.stage(
        make_model(tmp_path / "srv/v1", (1, 2), url=served[0]), silent, kind="model"
    )
    first.chmod(0o700)
    (first / "config.json").unlink()
    (first / WEIGHTS).chmod(0o600)
    os.truncate(first / WEIGHTS, MIB)
    second = make_model(tmp_path / "srv/v2", (1, 5), url=served[0])

    store.stage(second, silent, kind="model")

    assert _is_right(store, second)


def _rot(file: Path, at: int) -> None:
    file.chmod(0o600)
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def test_stop_keeps_what_came_and_ends_soon(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """An agent that is told to end breaks reads that wait; the next one goes on."""
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1, 2, 3), url=url)
    about.cuts = {WEIGHTS: [3 * MIB]}

    def stop(phase: NodePhase, done: int, _size: int) -> None:
        if phase is NodePhase.FETCHING and done > 2 * MIB:
            about.delay_s = 600.0
            raise Stopped("the agent is shutting down")

    with pytest.raises(Stopped):
        store.stage(artifact, stop, kind="model")

    about.delay_s, about.cuts = 0.0, {}
    about.sent.clear()
    missing = _missing_bytes(store, artifact)
    assert 0 < missing < size_of(tmp_path / "srv/v1") - MIB
    _store(tmp_path / "state").stage(artifact, silent, kind="model")
    assert missing == about.sent_bytes()


def test_stop_breaks_a_read_that_waits(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """A server that has stalled holds nobody up, for its silence is no answer yet."""
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1,), url=url)
    said: list[Stopped] = []

    def stop(_phase: NodePhase, _done: int, _size: int) -> None:
        about.delay_s = 600.0
        if any(path.endswith(WEIGHTS) for _, path, _ in about.requests):
            raise Stopped("the agent is shutting down")

    def stage() -> None:
        try:
            store.stage(artifact, stop, kind="model")
        except Stopped as stopped:
            said.append(stopped)

    fetching = threading.Thread(target=stage, daemon=True)
    fetching.start()
    fetching.join(15)

    assert not fetching.is_alive()
    assert 1 == len(said)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    phase=st.sampled_from([NodePhase.FETCHING, NodePhase.VERIFYING]),
    cut=st.integers(0, 5 * MIB),
    rot=st.lists(st.integers(0, 5 * MIB), max_size=3),
)
def test_interruption_anywhere_is_gone_on_from(
    served: tuple[str, Behaviour], tmp_path: Path, phase: NodePhase, cut: int, rot: list[int]
) -> None:
    """Whatever was written, and whatever rotted of it: the same bytes, and only those that lack."""
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1, 2), url=url)
    state = tmp_path / "state"
    shutil.rmtree(state, ignore_errors=True)
    store = _store(state)
    about.cuts = {WEIGHTS: [cut]} if phase is NodePhase.FETCHING else {}

    def stop(now: NodePhase, _done: int, _size: int) -> None:
        if now is phase and (now is NodePhase.VERIFYING or not about.cuts[WEIGHTS]):
            raise Stopped("here")

    with contextlib.suppress(Stopped):
        store.stage(artifact, stop, kind="model")
    half = _unfinished(store, artifact) / WEIGHTS
    for at in rot if half.exists() else []:
        _rot(half, at)
    missing = 0 if store.path(artifact.root).exists() else _missing_bytes(store, artifact)
    about.sent.clear()
    about.cuts = {}
    again = _store(state)

    again.stage(artifact, silent, kind="model")

    assert _is_right(again, artifact)
    assert missing == about.sent_bytes()


@pytest.mark.parametrize(
    "when",
    [
        "truncate:1",
        "fetching:0",
        f"fetching:{2 * MIB}",
        f"fetching:{5 * MIB}",
        "verifying:0",
        f"verifying:{5 * MIB}",
        "chmod:4",
        "chmod:5",
        "chmod:6",
        "rename:2",
        "rename:3",
    ],
)
def test_killed_process_is_gone_on_from(
    served: tuple[str, Behaviour], tmp_path: Path, when: str
) -> None:
    """SIGKILL: what it had verified is there, only what lacks is fetched, never half a thing."""
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1, 2), url=url)
    about.delay_s = 0.002

    assert -9 == run_until_killed(tmp_path / "state", artifact, when)

    store = _store(tmp_path / "state")
    assert not store.is_staged(artifact.root)
    missing = 0
    if not store.path(artifact.root).exists():
        missing = _missing_bytes(store, artifact)
    about.sent.clear()
    about.delay_s = 0
    store.stage(artifact, silent, kind="model")
    assert _is_right(store, artifact)
    assert missing == about.sent_bytes()
    if when.startswith(("verifying", "chmod", "rename")):
        assert missing == 0


def test_complete_copy_needs_no_source(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """All had come when the agent was killed; meanwhile the source went away."""
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1,), url=url)
    assert -9 == run_until_killed(tmp_path / "state", artifact, "verifying:0")
    about.statuses = [503] * 100

    store.stage(artifact, silent, kind="model")

    assert _is_right(store, artifact)


def test_rotten_copy_is_mended_with_what_lacks(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """Rot of one block costs one block of the net."""
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1, 2, 3), url=url)
    staged = store.stage(artifact, silent, kind="model")
    _rot(staged / WEIGHTS, 4 * MIB)
    about.sent.clear()
    later = _store(tmp_path / "state")

    later.stage(artifact, silent, kind="model")

    assert _is_right(later, artifact)
    assert MIB >= about.sent_bytes() > 0


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a\\x", ".ssh/x", "x/__pycache__"])
def test_manifest_that_leads_out_is_refused(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path, path: str
) -> None:
    """Its root is right, for it was made so; and nothing is asked for, or written."""
    record = weights.FileRecord(path, 1, weights.manifest.plain_digest(1, b"\1" * 32))
    manifest = weights.manifest.compose("plain", [record], [])
    fill(tmp_path / "srv/v1", {weights.MANIFEST_NAME: weights.encode(manifest), "x": "x"})
    artifact = Artifact(root=manifest.root, source=f"{served[0]}/v1")

    with pytest.raises(ArtifactError, match=r"the path|no file|are not served"):
        store.stage(artifact, silent, kind="plain")

    assert ["/v1/vctl.manifest.json"] == [path for _, path, _ in served[1].requests]
    assert [] == list((tmp_path / "state/artifacts").iterdir())


def test_link_in_the_unfinished_copy_is_not_followed(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    artifact = make_model(tmp_path / "srv/v1", (1,), url=served[0])
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = _unfinished(store, artifact)
    folder.mkdir()
    (folder / WEIGHTS).symlink_to(victim)
    (folder / "more").symlink_to(tmp_path)
    fill(folder, {"old/file": "of another try"})

    store.stage(artifact, silent, kind="model")

    assert _is_right(store, artifact)
    assert "precious" == victim.read_text()


def test_manifest_of_pickles_is_refused_before_anything_is_fetched(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    fill(tmp_path / "srv/v1", {"config.json": "{}", "pytorch_model.bin": b"\x80\x04."})
    artifact = published(tmp_path / "srv/v1", url=served[0], kind="plain")

    with pytest.raises(NotAllowed):
        store.stage(artifact, silent, kind="model")

    assert 0 == served[1].sent_bytes()


def test_source_without_a_manifest_is_refused(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    artifact = make_model(tmp_path / "srv/v1", (1,), url=served[0])
    weights.manifest_path(tmp_path / "srv/v1").unlink()

    with pytest.raises(SourceMissing, match="cannot be listed"):
        store.stage(artifact, silent, kind="model")


def test_disk_without_room_is_said_before_anything_is_fetched(
    store: ArtifactStore, served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """Trying again may help: somebody may make room."""
    held = os.statvfs(tmp_path)
    blocks = held.f_bavail * held.f_frsize // MIB + 64
    leaves = noise(1, 32 * blocks)
    size = blocks * MIB
    record = weights.FileRecord(
        "big", size, weights.manifest.plain_digest(size, leaves), leaves=leaves
    )
    manifest = weights.manifest.compose("plain", [record], [])
    fill(tmp_path / "srv/v1", {weights.MANIFEST_NAME: weights.encode(manifest), "big": ""})
    artifact = Artifact(root=manifest.root, source=f"{served[0]}/v1")

    with pytest.raises(NoRoom, match="no room on the disk"):
        store.stage(artifact, silent, kind="plain")

    assert 0 == served[1].sent_bytes()


_FULL = """
import sys
from pathlib import Path
from tests.agent.fetching import silent
from vctl_agent.artifacts import fetch
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_plans.errors import ArtifactError
from vctl_plans.release import Artifact, Release
fetch._check_room = lambda *_: None  # nothing is said beforehand: the disk itself is to refuse
store = ArtifactStore(Path(sys.argv[1]), [])
store.open()
try:
    store.stage(Artifact(root=sys.argv[3], source=sys.argv[2]), silent, kind="model")
except ArtifactError as error:
    print(type(error).__name__, error.message, store.path(sys.argv[3]).exists())
"""


def test_disk_that_fills_up_makes_nothing(served: tuple[str, Behaviour], tmp_path: Path) -> None:
    """A disk of 4 MiB, of a mount namespace of its own; where that may not be made, no test."""
    artifact = make_model(tmp_path / "srv/v1", (1, 2, 3), url=served[0])
    (tmp_path / "full").mkdir()
    script = f'mount -t tmpfs -o size=4m none {tmp_path}/full && exec "$0" "$@"'
    command = ["unshare", "-rm", "sh", "-c", script]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespace of one's own here")
    command[-1] = script
    done = subprocess.run(
        [*command, sys.executable, "-c", _FULL, str(tmp_path / "full"), artifact.source,
         artifact.root],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("NoRoom ")
    assert done.stdout.endswith(": No space left on device False\n")


def test_only_allowed_sources_are_asked(served: tuple[str, Behaviour], tmp_path: Path) -> None:
    url, about = served
    artifact = make_model(tmp_path / "srv/v1", (1,), url=url)
    closed = _store(tmp_path / "a", allowed_sources=("https://models.example/", f"{url}/v"))

    with pytest.raises(NotAllowed, match="below none of the allowed sources"):
        closed.stage(artifact, silent, kind="model")
    assert [] == about.requests

    _store(tmp_path / "b", allowed_sources=(f"{url}/",)).stage(artifact, silent, kind="model")


def test_secret_in_a_release_is_refused_and_not_repeated(store: ArtifactStore) -> None:
    artifact = Artifact(root="b3:" + "0" * 64, source="https://ann:hunter2@models.example/v1")
    with pytest.raises(NotAllowed) as caught:
        store.stage(artifact, silent)
    assert "hunter2" not in caught.value.message


def test_unfinished_copy_stays_over_a_restart(
    served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """The next try goes on from it; what gives it up is tested with what collects."""
    artifact = make_model(tmp_path / "srv/v1", (1,), url=served[0])
    assert -9 == run_until_killed(tmp_path / "state", artifact, "verifying:0")
    later = _store(tmp_path / "state")
    assert _unfinished(later, artifact).is_dir()


def test_two_agents_on_one_disk_do_not_meet(served: tuple[str, Behaviour], tmp_path: Path) -> None:
    """Each has its own state; both fetch one artifact at once."""
    artifact = make_model(tmp_path / "srv/v1", (1, 2), url=served[0])
    stores = [_store(tmp_path / name) for name in ("a", "b")]
    threads = [
        threading.Thread(target=store.stage, args=(artifact, silent), kwargs={"kind": "model"})
        for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(_is_right(store, artifact) for store in stores)


def test_mount_with_a_manifest_is_fetched_by_blocks(tmp_path: Path) -> None:
    """`file://` too: what the node has is not read again from the share."""
    store = ArtifactStore(tmp_path / "state", [tmp_path])
    store.open()
    store.stage(make_model(tmp_path / "v1", (1, 2)), silent, kind="model")
    second = make_model(tmp_path / "v2", (1, 3))
    same = (tmp_path / "v2" / WEIGHTS).read_bytes()
    begin = same.index(noise(1, 16))
    os.truncate(tmp_path / "v2" / WEIGHTS, 0)  # the tensor that is here is a hole there
    with (tmp_path / "v2" / WEIGHTS).open("r+b") as file:
        file.write(same[:begin])
        file.seek(begin + 2 * MIB + MIB // 2)
        file.write(same[begin + 2 * MIB + MIB // 2 :])

    store.stage(second, silent, kind="model")

    assert _is_right(store, second)


async def test_release_from_a_web_server_becomes_ready(
    served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """Through the node's own loop: a server that is late is waited for, and then it is loaded."""
    made = make_adapter(tmp_path / "srv/v1")
    weights.save(weights.scan(tmp_path / "srv/v1"), weights.manifest_path(tmp_path / "srv/v1"))
    releases: dict[int, Release] = {}
    next_release(releases, adapter=Artifact(root=made.root, source=f"{served[0]}/v1"))
    served[1].statuses = [503]
    node = Node(tmp_path / "node")
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    failed = node.reports[-1].release(SERVICE, 1)
    assert failed
    assert not failed.is_permanent
    assert "503" in failed.reason
    node.now += 60
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_source_that_is_gone_is_a_failure_for_good(
    served: tuple[str, Behaviour], tmp_path: Path
) -> None:
    """The rollout need not wait for its deadline."""
    made = make_adapter(tmp_path / "srv/v1")
    releases: dict[int, Release] = {}
    next_release(releases, adapter=Artifact(root=made.root, source=f"{served[0]}/gone"))
    node = Node(tmp_path / "node")
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    failed = node.reports[-1].release(SERVICE, 1)
    assert failed
    assert failed.is_permanent
