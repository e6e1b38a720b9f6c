"""An artifact is there whole and verified, or not at all."""

import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.agent.support import make_adapter, make_files
from tests.weights.building import fill
from vctl_agent.artifacts import leftovers
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.stager import Stopped
from vctl_plans import weights
from vctl_plans.errors import ArtifactError, NotAllowed, RootMismatch, SourceError
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    made = ArtifactStore(tmp_path / "state", [tmp_path / "allowed"])
    made.open()
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "allowed").mkdir()
    return tmp_path / "allowed" / "v1"


def _ignore(_phase: NodePhase, _done: int, _size: int) -> None:
    pass


def _left(store: ArtifactStore, tmp_path: Path) -> list[str]:
    return sorted(p.name for p in (tmp_path / "state" / "artifacts").iterdir())


def test_staged_artifact_is_the_source_read_only(store: ArtifactStore, source: Path) -> None:
    """The copy has the same bytes and nobody may write to it."""
    artifact = make_adapter(source)

    staged = store.stage(artifact, _ignore)

    assert artifact.root == weights.scan(staged).root
    modes = {stat.S_IMODE(p.stat().st_mode) for p in staged.iterdir()}
    assert {0o444} == modes
    assert stat.S_IMODE(staged.stat().st_mode) == 0o555


def test_only_files_of_the_artifact_are_copied(store: ArtifactStore, source: Path) -> None:
    """A trainer's leftovers stay where they are."""
    artifact = make_adapter(source)
    (source / "training_args.bin").write_bytes(b"pickle")

    staged = store.stage(artifact, _ignore)

    assert sorted(p.name for p in staged.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


def test_mismatch_names_the_tensor_and_makes_nothing(store: ArtifactStore, source: Path) -> None:
    """With the manifest beside the source, what differs is named by tensor."""
    artifact = make_adapter(source)
    weights.save(weights.scan(source), weights.manifest_path(source))
    file = source / "adapter_model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    with pytest.raises(RootMismatch) as caught:
        store.stage(artifact, _ignore)

    assert caught.value.tensors == (
        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
    )
    assert not store.path(artifact.root).exists()


def test_source_outside_the_allowed_roots_is_refused(store: ArtifactStore, tmp_path: Path) -> None:
    """A plan cannot make a node read whatever it likes."""
    artifact = make_adapter(tmp_path / "elsewhere")

    with pytest.raises(NotAllowed, match="outside the allowed roots"):
        store.stage(artifact, _ignore)


def test_link_out_of_the_allowed_roots_is_refused(
    store: ArtifactStore, source: Path, tmp_path: Path
) -> None:
    """Where a path leads counts, and not how it is written."""
    artifact = make_adapter(tmp_path / "elsewhere")
    source.symlink_to(tmp_path / "elsewhere")
    linked = type(artifact)(root=artifact.root, source=f"file://{source}")

    with pytest.raises(NotAllowed):
        store.stage(linked, _ignore)


@pytest.mark.parametrize("uri", ["gopher://host/v1", "/plain/path", "file://far/v1"])
def test_source_of_another_kind_is_refused(store: ArtifactStore, source: Path, uri: str) -> None:
    """Only what can be read is tried."""
    artifact = make_adapter(source)

    with pytest.raises(NotAllowed, match=r"is none of|names no absolute path"):
        store.stage(type(artifact)(root=artifact.root, source=uri), _ignore)


def test_link_inside_the_source_is_refused(
    store: ArtifactStore, source: Path, tmp_path: Path
) -> None:
    """No link is followed, not even to the right bytes."""
    artifact = make_adapter(source)
    target = tmp_path / "allowed" / "moved.json"
    (source / "adapter_config.json").rename(target)
    (source / "adapter_config.json").symlink_to(target)

    with pytest.raises(NotAllowed):
        store.stage(artifact, _ignore)
    assert _left(store, tmp_path) == []


def test_source_that_is_not_there_may_come(store: ArtifactStore, source: Path) -> None:
    """A mount that is late is no permanent failure."""
    artifact = make_adapter(source)
    gone = type(artifact)(root=artifact.root, source=f"file://{source}-not-yet")

    with pytest.raises(ArtifactError) as caught:
        store.stage(gone, _ignore)

    assert type(caught.value) is SourceError


@pytest.mark.parametrize("phase", [NodePhase.FETCHING, NodePhase.VERIFYING])
def test_stop_in_the_middle_makes_nothing(
    store: ArtifactStore, source: Path, phase: NodePhase
) -> None:
    """What is not whole is not there; what came is gone on from."""
    artifact = make_adapter(source)

    def stop(now: NodePhase, _done: int, _size: int) -> None:
        if now is phase:
            raise Stopped("the agent is shutting down")

    with pytest.raises(Stopped):
        store.stage(artifact, stop)
    assert not store.path(artifact.root).exists()
    store.stage(artifact, _ignore)
    assert store.is_staged(artifact.root)


@pytest.mark.parametrize("left", ["half", "wrong", "longer", "another"])
def test_copy_without_a_manifest_is_gone_on_from(
    store: ArtifactStore, source: Path, tmp_path: Path, left: str
) -> None:
    """Whatever an earlier try left: it is no part of the artifact unless the root says so."""
    artifact = make_adapter(source)
    content = (source / "adapter_model.safetensors").read_bytes()
    leftover = {
        "half": {"adapter_model.safetensors": content[: len(content) // 2]},
        "wrong": {"adapter_model.safetensors": b"x" * len(content)},
        "longer": {"adapter_model.safetensors": content * 2},
        "another": {"d/e": b"x", "adapter_config.json/f": b"x"},
    }[left]
    fill(leftovers.unfinished(tmp_path / "state/artifacts", artifact.root), leftover)
    told: list[int] = []

    staged = store.stage(
        artifact, lambda now, done, _: told.append(done) if now is NodePhase.FETCHING else None
    )

    assert artifact.root == weights.scan(staged).root
    assert [staged.name] == _left(store, tmp_path)
    if left == "half":
        assert min(told) > len(content) // 2


def test_half_a_copy_of_a_killed_agent_is_swept(source: Path, tmp_path: Path) -> None:
    """Whatever SIGKILL left, the next agent begins clean."""
    artifact = make_adapter(source)
    half = tmp_path / "state" / "artifacts" / ".fetching-abc"
    half.mkdir(parents=True)
    (half / "adapter_model.safetensors").write_bytes(b"half")
    half.chmod(0o555)

    store = ArtifactStore(tmp_path / "state", [source.parent])
    store.open()
    assert _left(store, tmp_path) == []

    store.stage(artifact, _ignore)
    assert [artifact.root.removeprefix("b3:")] == _left(store, tmp_path)


def _rot(staged: Path) -> None:
    victim = staged / "adapter_model.safetensors"
    victim.chmod(0o644)
    with victim.open("r+b") as file:
        file.seek(
            -100, os.SEEK_END
        )  # of both tensors: they are alike, and one would heal the other
        file.write(b"\xff" * 100)


def _later(source: Path, tmp_path: Path) -> ArtifactStore:
    """Return the store of the next agent process."""
    made = ArtifactStore(tmp_path / "state", [source.parent])
    made.open()
    return made


def test_copy_that_another_process_made_is_verified_before_it_counts(
    store: ArtifactStore, source: Path, tmp_path: Path
) -> None:
    """Rot between two agents' lives is found, and the copy is brought anew at once.

    It is no reason to refuse the release: the source is what the root names.
    """
    artifact = make_adapter(source)
    staged = store.stage(artifact, _ignore)
    _rot(staged)
    later = _later(source, tmp_path)
    assert not later.is_staged(artifact.root)

    later.stage(artifact, _ignore)

    assert later.is_staged(artifact.root)
    assert artifact.root == weights.scan(staged).root
    assert [staged.name] == _left(later, tmp_path)


def test_rotten_copy_stays_until_a_better_one_is_there(
    store: ArtifactStore, source: Path, tmp_path: Path
) -> None:
    """An engine may have its directory registered: vLLM dies of one that is missing."""
    artifact = make_adapter(source)
    staged = store.stage(artifact, _ignore)
    _rot(staged)
    source.rename(source.with_name("moved"))
    later = _later(source, tmp_path)

    with pytest.raises(ArtifactError, match="is not there"):
        later.stage(artifact, _ignore)

    assert staged.exists()
    assert not later.is_staged(artifact.root)


def test_stop_while_a_copy_is_verified_leaves_the_copy(
    store: ArtifactStore, source: Path, tmp_path: Path
) -> None:
    """An agent that is told to end says nothing about the bytes; it once deleted them."""
    artifact = make_adapter(source)
    staged = store.stage(artifact, _ignore)

    def stop(_phase: NodePhase, _done: int, _size: int) -> None:
        raise Stopped("the agent is shutting down")

    with pytest.raises(Stopped):
        _later(source, tmp_path).stage(artifact, stop)

    assert staged.exists()


def test_root_that_is_no_root_is_refused_and_nothing_is_touched(
    store: ArtifactStore, tmp_path: Path
) -> None:
    """A value in etcd cannot have a node read, let alone delete, another directory."""
    victim = tmp_path / "precious"
    victim.mkdir()

    for root in (f"b3:{victim}", "b3:../../precious", "b3:", ""):
        with pytest.raises(NotAllowed, match="is not a root"):
            store.stage(Artifact(root=root, source=f"file://{victim}"), _ignore)

    assert victim.exists()


def test_source_that_cannot_be_looked_at_is_no_bug(store: ArtifactStore, source: Path) -> None:
    """What the operating system says is an `ArtifactError`, wherever it says it."""
    artifact = make_adapter(source)
    too_long = type(artifact)(root=artifact.root, source=f"file://{source.parent}/{'x' * 300}")

    with pytest.raises(ArtifactError, match="too long"):
        store.stage(too_long, _ignore)


def test_copy_that_is_gone_is_not_staged(store: ArtifactStore, source: Path) -> None:
    """The disk is looked at, not remembered."""
    artifact = make_adapter(source)
    staged = store.stage(artifact, _ignore)
    assert store.is_staged(artifact.root)

    staged.rename(staged.with_name("elsewhere"))

    assert not store.is_staged(artifact.root)


def test_one_artifact_of_two_services_is_brought_once(
    store: ArtifactStore, source: Path, tmp_path: Path
) -> None:
    """Two threads that bring the same root do not get in each other's way."""
    artifact = make_adapter(source)
    second_began = threading.Event()
    copied: list[int] = []

    def slow(phase: NodePhase, done: int, _size: int) -> None:
        if phase is NodePhase.FETCHING:
            copied.append(done)
        second_began.wait(0.05)

    def second(phase: NodePhase, done: int, _size: int) -> None:
        second_began.set()
        if phase is NodePhase.FETCHING:
            copied.append(done)

    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(store.stage, artifact, how) for how in (slow, second)]
        places = {future.result() for future in both}

    assert {store.path(artifact.root)} == places
    assert len(copied) == len(set(copied)), "each piece was copied once"
    assert [store.path(artifact.root).name] == _left(store, tmp_path)


def test_progress_tells_both_phases(store: ArtifactStore, source: Path) -> None:
    """A report can say whether a node fetches or verifies."""
    told: list[NodePhase] = []
    progress: Callable[[NodePhase, int, int], None] = lambda phase, _d, _s: told.append(phase)  # noqa: E731

    store.stage(make_adapter(source), progress)

    assert list(dict.fromkeys(told)) == [NodePhase.FETCHING, NodePhase.VERIFYING]


def test_prompt_or_index_is_any_files(store: ArtifactStore, source: Path) -> None:
    """Folders and pickles included; executable bits and hidden files are not."""
    files = {"index.pkl": b"\x80\x04.", "d/e/system.jinja": b"{{ x }}", "w.safetensors": b"not"}
    artifact = make_files(source, files | {".git/config": b"x"})
    (source / "index.pkl").chmod(0o6755)

    staged = store.stage(artifact, _ignore, kind="plain")

    found = {str(p.relative_to(staged)): p for p in staged.rglob("*") if p.is_file()}
    assert files == {name: path.read_bytes() for name, path in found.items()}
    assert {0o444} == {stat.S_IMODE(path.stat().st_mode) for path in found.values()}
    assert _later(source, staged.parents[2]).stage(artifact, _ignore, kind="plain") == staged


def test_prompt_of_one_file_is_staged_in_a_directory(store: ArtifactStore, source: Path) -> None:
    """So that every component is one, wherever it came from."""
    source.parent.mkdir(exist_ok=True)
    source.write_text("You are kind.")
    artifact = Artifact(root=weights.scan(source, kind="plain").root, source=f"file://{source}")

    staged = store.stage(artifact, _ignore, kind="plain")

    assert [source.name] == [path.name for path in staged.iterdir()]


@pytest.mark.parametrize("what", ["link", "fifo", "escape"])
def test_prompt_that_is_not_plain_files_is_refused(
    store: ArtifactStore, source: Path, tmp_path: Path, what: str
) -> None:
    """No link, no device, no way out: an index may be any bytes, and nothing else."""
    artifact = make_files(source, {"a.txt": "x", "d/b.txt": "y"})
    if what == "link":
        (source / "c.txt").symlink_to(tmp_path / "secret")
    elif what == "fifo":
        os.mkfifo(source / "c.txt")
    else:
        (source / "d").rename(tmp_path / "d")
        (source / "d").symlink_to(tmp_path / "d")

    with pytest.raises(NotAllowed):
        store.stage(artifact, _ignore, kind="plain")
    assert _left(store, tmp_path) == []


def test_plain_files_are_no_adapter(store: ArtifactStore, source: Path, tmp_path: Path) -> None:
    """A release cannot have an engine load what was only checked as a prompt."""
    artifact = make_files(source, {"adapter_model.bin": b"\x80\x04."})

    with pytest.raises(NotAllowed):
        store.stage(artifact, _ignore, kind="adapter")
    assert _left(store, tmp_path) == []
