"""`--push URI`: what lies here is copied to where nodes read it, its manifest last."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.builders import SERVICE
from tests.cli.support import Said, Vctl, a_fleet
from tests.sources.servers import Behaviour, serving
from tests.weights import building
from vctl_plans import weights
from vctl_plans.names import root_hex
from vctl_plans.phase import Component
from vctl_plans.release import Artifact

FILES = ("adapter_config.json", "adapter_model.safetensors")


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return building.adapter(tmp_path / "v2", {"training_args.bin": "x", "README.md": "y"})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Behaviour]]:
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served") as (url, about):
        yield url, about


def push(vctl: Vctl, adapter: Path, to: str) -> Said:
    return vctl("release", "create", SERVICE, "--adapter", str(adapter), "--push", to)


def made(vctl: Vctl, number: int = 2) -> Artifact:
    return vctl.service().releases[number].components[Component.ADAPTER]


def place(adapter: Path) -> str:
    return f"v2-{root_hex(weights.scan(adapter).root)[:12]}"


def puts(about: Behaviour) -> list[str]:
    return puts_in(about.requests)


def puts_in(requests: Iterable[tuple[str, str, str]]) -> list[str]:
    return [path.rpartition("/")[2] for method, path, _ in requests if method == "PUT"]


def test_folder_is_copied_to_a_place_named_by_its_root(adapter: Path, tmp_path: Path):
    """Only what is served goes; the release names the copy."""
    vctl = a_fleet()
    said = push(vctl, adapter, str(tmp_path / "models"))
    copy = tmp_path / "models" / place(adapter)

    assert (0, "support: release 2 (adapter=2)\n") == (said.code, said.out)
    assert {*FILES, weights.MANIFEST_NAME} == {file.name for file in copy.iterdir()}
    assert copy.as_uri() == made(vctl).source
    assert weights.scan(copy).root == made(vctl).root == weights.scan(adapter).root
    assert weights.load(copy / weights.MANIFEST_NAME).root == made(vctl).root
    assert (4, "org/base") == (made(vctl).rank, made(vctl).base_name)
    assert f"v2: pushed to {copy.as_uri()}: " in said.err
    assert "in 2 files, 0 of them were there" in said.err


def test_manifest_is_written_last_to_a_web_server(adapter: Path, server: tuple[str, Behaviour]):
    """Where one lies, all files do."""
    url, about = server
    vctl = a_fleet()
    said = push(vctl, adapter, f"{url}/models/")

    assert 0 == said.code, said
    assert [*FILES, weights.MANIFEST_NAME] == puts(about)
    assert f"{url}/models/{place(adapter)}" == made(vctl).source
    assert made(vctl).root == weights.scan(about.folder / "models" / place(adapter)).root


@pytest.mark.parametrize("kind", ["web", "folder"])
def test_pushed_again_writes_nothing(
    kind: str, adapter: Path, server: tuple[str, Behaviour], tmp_path: Path
):
    """What is there is compared, and is the same."""
    url, about = server
    to = url if kind == "web" else str(tmp_path / "models")
    vctl = a_fleet()
    push(vctl, adapter, to)
    written = puts(about)
    said = push(vctl, adapter, to)

    assert 0 == said.code, said
    assert "in 2 files, 2 of them were there" in said.err
    assert written == puts(about)
    assert made(vctl, 2).source == made(vctl, 3).source


def test_pushed_again_reads_nothing_back(adapter: Path, server: tuple[str, Behaviour]):
    """The manifest that is there vouches for the files; one that went is brought again."""
    url, about = server
    push(a_fleet(), adapter, url)
    push(a_fleet(), adapter, url)
    assert 0 == about.sent_bytes()

    (about.folder / place(adapter) / FILES[1]).unlink()
    said = push(a_fleet(), adapter, url)
    assert "in 2 files, 1 of them were there" in said.err
    assert weights.scan(adapter).root == weights.scan(about.folder / place(adapter)).root


@pytest.mark.parametrize("kind", ["web", "folder"])
def test_push_that_was_cut_off_goes_on(
    kind: str, adapter: Path, server: tuple[str, Behaviour], tmp_path: Path
):
    """A file that is there is not written again; the manifest comes at last."""
    url, about = server
    folder = about.folder if kind == "web" else tmp_path / "models"
    there = folder / place(adapter)
    building.fill(there, {FILES[0]: (adapter / FILES[0]).read_bytes()})
    said = push(a_fleet(), adapter, url if kind == "web" else str(folder))

    assert 0 == said.code, said
    assert "in 2 files, 1 of them were there" in said.err
    assert weights.load(there / weights.MANIFEST_NAME).root == weights.scan(there).root
    assert puts(about) == ([FILES[1], weights.MANIFEST_NAME] if kind == "web" else [])


@pytest.mark.parametrize("kind", ["web", "folder"])
@pytest.mark.parametrize("other", ["same length", "shorter"])
def test_other_bytes_are_never_overwritten(
    other: str, kind: str, adapter: Path, server: tuple[str, Behaviour], tmp_path: Path
):
    """Neither is the release made."""
    url, about = server
    folder = about.folder if kind == "web" else tmp_path / "models"
    content = bytearray((adapter / FILES[1]).read_bytes())
    content[-1] ^= 1
    there = bytes(content if other == "same length" else content[:-1])
    building.fill(folder / place(adapter), {FILES[1]: there})
    vctl = a_fleet()
    said = push(vctl, adapter, url if kind == "web" else str(folder))

    assert (1, "") == (said.code, said.out)
    assert f"{FILES[1]} is there with other bytes" in said.err
    assert there == (folder / place(adapter) / FILES[1]).read_bytes()
    assert not (folder / place(adapter) / weights.MANIFEST_NAME).exists()
    assert [1] == list(vctl.service().releases)


def test_manifest_of_another_artifact_is_refused(adapter: Path, tmp_path: Path):
    other = building.adapter(
        tmp_path / "other", {"adapter_config.json": building.adapter_config(lora_dropout=0)}
    )
    there = tmp_path / "models" / place(adapter)
    there.mkdir(parents=True)
    weights.save(weights.scan(other), there / weights.MANIFEST_NAME)
    said = push(a_fleet(), adapter, str(tmp_path / "models"))

    assert (1, "") == (said.code, said.out)
    assert f"{weights.scan(other).root} is there, another artifact" in said.err


def test_file_that_would_be_taken_for_a_part_is_refused(tmp_path: Path):
    """A prompt is all files of its folder."""
    prompt = building.fill(tmp_path / "p", {"system.txt": "x"})
    root = weights.scan(prompt, kind="plain").root
    building.fill(tmp_path / "models" / f"p-{root_hex(root)[:12]}", {"more.txt": "x"})
    vctl = a_fleet()
    said = vctl(
        *("release", "create", SERVICE, "--prompt", str(prompt)),
        *("--push", str(tmp_path / "models")),
    )

    assert (1, "") == (said.code, said.out)
    assert "more.txt is there, which is no part of the artifact" in said.err


def test_place_that_cannot_be_written_is_refused(
    adapter: Path, server: tuple[str, Behaviour], tmp_path: Path
):
    """In words, and nothing is made."""
    url, about = server
    about.read_only = True
    (tmp_path / "file").write_text("x")
    vctl = a_fleet()
    on_web = push(vctl, adapter, url)
    on_disk = push(vctl, adapter, str(tmp_path / "file"))

    assert (1, "") == (on_web.code, on_web.out)
    assert "the server answers 403" in on_web.err
    assert (1, "") == (on_disk.code, on_disk.out)
    assert "can't be written: Not a directory" in on_disk.err
    assert [1] == list(vctl.service().releases)


def test_single_file_becomes_a_folder_with_it(tmp_path: Path):
    """Of the same root: a manifest of its own place is needed anyway."""
    building.fill(tmp_path, {"system v1.txt": "You are kind."})
    vctl = a_fleet()
    said = vctl(
        *("release", "create", SERVICE, "--prompt", str(tmp_path / "system v1.txt")),
        *("--push", str(tmp_path / "models")),
    )
    prompt = vctl.service().releases[2].components[Component.PROMPT]
    copy = tmp_path / "models" / f"system-v1.txt-{root_hex(prompt.root)[:12]}"

    assert 0 == said.code, said
    assert (copy.as_uri(), prompt.root) == (prompt.source, weights.scan(copy, kind="plain").root)


def test_empty_files_and_folders_below_go_too(tmp_path: Path, server: tuple[str, Behaviour]):
    url, about = server
    prompt = building.fill(tmp_path / "p", {"a/b/system.txt": "x", "a/empty.txt": "", "z": "é"})
    vctl = a_fleet()
    for _ in range(2):
        said = vctl("release", "create", SERVICE, "--prompt", str(prompt), "--push", url)
        assert 0 == said.code, said
    made = vctl.service().releases[3].components[Component.PROMPT]
    copy = about.folder / made.source.rpartition("/")[2]

    assert made.root == weights.scan(copy, kind="plain").root


def test_what_is_not_here_cannot_be_pushed(tmp_path: Path):
    """Also where its root is known."""
    said = a_fleet()(
        *(
            "release",
            "create",
            SERVICE,
            "--adapter",
            str(tmp_path / "none"),
            "--root",
            "b3:" + "1" * 64,
        ),
        *("--push", str(tmp_path / "models")),
    )

    assert (2, "") == (said.code, said.out)
    assert "there is no" in said.err


def test_plan_pushes_too(adapter: Path, tmp_path: Path):
    """Its places are relative to the file, as its sources are."""
    plan = (
        "service: support\nstrategy: full-switch\nrelease: {adapter: {source: v2, push: models}}\n"
    )
    (tmp_path / "plan.yaml").write_text(plan)
    vctl = a_fleet()
    said = vctl("rollout", "start", str(tmp_path / "plan.yaml"), "--no-watch")

    assert 0 == said.code, said
    assert (tmp_path / "models" / place(adapter)).as_uri() == made(vctl).source


class Meddling(list[tuple[str, str, str]]):
    """Requests; as the first file comes, somebody writes the second one here."""

    def __init__(self, file: Path, *, shorter: bool) -> None:
        super().__init__()
        self._file = file
        self._shorter = shorter

    def append(self, request: tuple[str, str, str]) -> None:
        if request[0] == "PUT" and not puts_in(self):
            content = bytearray(self._file.read_bytes())
            content[-1] ^= 1
            self._file.write_bytes(content[:-1] if self._shorter else content)
        super().append(request)


@pytest.mark.parametrize("shorter", [True, False])
def test_file_that_changes_after_it_was_hashed_ends_the_push(
    shorter: bool, adapter: Path, server: tuple[str, Behaviour]
):
    """No manifest says of a copy what it is not."""
    url, about = server
    about.requests = Meddling(adapter / FILES[1], shorter=shorter)
    vctl = a_fleet()
    said = push(vctl, adapter, url)

    assert (1, "") == (said.code, said.out)
    assert "adapter_model.safetensors: changed since it was hashed" in said.err
    assert weights.MANIFEST_NAME not in puts(about)
    assert [1] == list(vctl.service().releases)
