import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.weights.building import Made, fill, pack, sharded, u8, zeros
from vctl_plans.errors import ArtifactError, FileChanged, MalformedWeights, NotAllowed
from vctl_plans.weights import Progress, scan

MIB = 1 << 20


def model(folder: Path, content: bytes) -> Path:
    return fill(folder, {"model.safetensors": content, "config.json": "{}"})


def test_scan_of_a_file_and_of_its_directory_have_one_root(tmp_path):
    content = pack([u8("a", b"1234"), zeros("b", "F32", 3)])
    folder = fill(tmp_path / "m", {"model.safetensors": content})
    assert scan(folder).root == scan(folder / "model.safetensors").root
    assert scan(str(folder)).kind == scan(folder / "model.safetensors").kind == "model"


def test_scan_works_from_within(tmp_path, monkeypatch):
    folder = model(tmp_path / "m", pack([u8("a", b"1234")]))
    expected = scan(folder)
    monkeypatch.chdir(folder)
    assert scan(".") == expected
    assert scan("model.safetensors").content_root == expected.content_root


def test_scan_records_where_everything_lies(tmp_path):
    content = pack([u8("w", bytes(MIB + 1)), u8("a", b"1234")])
    manifest = scan(model(tmp_path, content))
    config, weights = manifest.files
    assert (config.path, config.digest) == ("config.json", f"b3:{blake3(b'{}').hexdigest()}")
    assert (weights.path, weights.size) == ("model.safetensors", len(content))
    assert weights.tensors == ("w", "a")
    assert weights.header_size == len(content) - MIB - 5
    assert [(t.name, t.size, len(t.leaves)) for t in manifest.tensors] == [
        ("a", 4, 32),
        ("w", MIB + 1, 64),
    ]


def test_scan_of_a_plain_directory_takes_every_file(tmp_path):
    folder = fill(
        tmp_path,
        {"system.jinja": "Hello", "few/a.txt": "", "few/b/c.bin": b"\0", ".git/config": "x"},
    )
    manifest = scan(folder, kind="plain")
    assert [file.path for file in manifest.files] == ["few/a.txt", "few/b/c.bin", "system.jinja"]
    assert [file.digest for file in manifest.files] == [
        f"b3:{blake3(content).hexdigest()}" for content in (b"", b"\0", b"Hello")
    ]
    assert [(left.path, left.reason) for left in manifest.left_out] == [
        (".git/", "hidden or generated")
    ]
    assert manifest.tensors == ()


def test_scan_of_many_files_opens_few_at_once(tmp_path):
    files = {f"{i:03}.txt": str(i) for i in range(200)}
    seen: list[tuple[int, int]] = []
    manifest = scan(fill(tmp_path, files), progress=lambda done, total: seen.append((done, total)))
    total = sum(map(len, files.values()))
    assert [file.path for file in manifest.files] == list(files)
    assert (seen[0], seen[-1]) == ((0, total), (total, total))
    assert seen == sorted(seen)


def test_scan_progress_counts_the_bytes_of_all_files(tmp_path):
    seen: list[tuple[int, int]] = []
    folder = model(tmp_path, pack([u8("w", bytes(3 * MIB)), u8("a", b"12")]))
    scan(folder, progress=lambda done, total: seen.append((done, total)))
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert seen[0] == (0, size)
    assert seen[-1] == (size, size)


def test_scan_progress_begins_before_any_header_is_read(tmp_path):
    folder = fill(tmp_path, {"model.safetensors": b"no header at all"})
    seen: list[tuple[int, int]] = []
    with pytest.raises(MalformedWeights):
        scan(folder, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 16)]


tensors_of = st.dictionaries(
    st.text(alphabet="abc.\u00e9", min_size=1, max_size=4),
    st.binary(max_size=9),
    min_size=2,
    max_size=6,
)


@given(tensors_of, st.data())
@settings(max_examples=40, deadline=None)
def test_scan_content_root_is_free_of_sharding_order_and_metadata(tmp_path_factory, contents, data):
    tensors = [u8(name, content) for name, content in contents.items()]
    shuffled = data.draw(st.permutations(tensors))
    cut = data.draw(st.integers(1, len(tensors) - 1))
    base = tmp_path_factory.mktemp("m")
    whole = scan(model(base / "whole", pack(tensors)))
    other = scan(model(base / "other", pack(shuffled, {"format": "pt"})))
    parts = scan(
        sharded(
            base / "parts",
            {
                "model-00001-of-00002.safetensors": shuffled[:cut],
                "model-00002-of-00002.safetensors": shuffled[cut:],
            },
        )
    )
    assert whole.content_root == other.content_root == parts.content_root
    assert len({whole.root, other.root, parts.root}) == 3


BASE = [Made("a", "U8", (4, 2), b"12345678"), u8("b", b"xy")]


@pytest.mark.parametrize(
    "changed",
    [
        [BASE[0]._replace(name="c"), BASE[1]],
        [BASE[0]._replace(dtype="I8"), BASE[1]],
        [BASE[0]._replace(shape=(2, 4)), BASE[1]],
        [BASE[0]._replace(shape=(8,)), BASE[1]],
        [BASE[0]._replace(content=b"12345679"), BASE[1]],
        [BASE[0]._replace(name="b"), BASE[1]._replace(name="a")],
        [BASE[0]],
        [*BASE, u8("empty", b"")],
    ],
    ids=["name", "dtype", "shape", "rank", "content", "names swapped", "one less", "an empty one"],
)
def test_scan_content_root_binds(changed, tmp_path):
    before = scan(model(tmp_path / "a", pack(BASE)))
    after = scan(model(tmp_path / "b", pack(changed)))
    assert before.content_root != after.content_root
    assert before.root != after.root


def test_scan_root_binds_paths_and_formats(tmp_path):
    roots = {
        scan(fill(tmp_path / "a", {"x": "1", "y": "2"})).root,
        scan(fill(tmp_path / "b", {"x": "2", "y": "1"})).root,
        scan(fill(tmp_path / "c", {"x": "12"})).root,
        scan(fill(tmp_path / "d", {"x": "1", "y": "2", "z": ""})).root,
        scan(fill(tmp_path / "e", {"d/x": "1", "y": "2"})).root,
    }
    assert len(roots) == 5


def during(action: Callable[[], object]) -> Progress:
    """A progress callback that acts once, when headers have been read and data not yet."""
    calls: list[int] = []

    def progress(done: int, total: int) -> None:
        if not calls:
            action()
        calls.append(done)

    return progress


def test_scan_notices_a_file_written_meanwhile(tmp_path):
    folder = model(tmp_path, pack([u8("w", bytes(1000))]))
    weights = folder / "model.safetensors"

    def write() -> None:
        with weights.open("r+b") as file:
            file.seek(500)
            file.write(b"x")
        os.utime(weights, ns=(1, 1))

    with pytest.raises(FileChanged, match=r"changed while it was read.*mtime_ns") as noticed:
        scan(folder, progress=during(write))
    assert "model.safetensors" in noticed.value.message
    assert noticed.value.hint


def test_scan_notices_a_file_written_while_it_is_hashed(tmp_path):
    folder = model(tmp_path, pack([u8("w", bytes(1000))]))
    weights = folder / "model.safetensors"

    def late(done: int, total: int) -> None:
        if done:  # hashed, but not yet checked
            os.utime(weights, ns=(1, 1))

    with pytest.raises(ArtifactError, match=r"changed while it was read \(mtime_ns"):
        scan(folder, progress=late)


def test_scan_notices_a_file_replaced_cut_or_removed(tmp_path):
    content = pack([u8("w", bytes(1000))])

    def replace(path):
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(path)

    actions = {
        "inode": replace,
        "size": lambda path: os.truncate(path, 700),
        "was removed": lambda path: path.unlink(),
    }
    for i, (told, action) in enumerate(actions.items()):
        folder = model(tmp_path / str(i), content)
        weights = folder / "model.safetensors"
        with pytest.raises(FileChanged, match=told):
            scan(folder, progress=during(partial(action, weights)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json: was added"),
        (lambda folder: (folder / "config.json").unlink(), "config.json: was removed"),
    ],
)
def test_scan_notices_files_that_come_and_go(tmp_path, change, told):
    folder = model(tmp_path, pack([u8("w", bytes(1000))]))
    with pytest.raises(FileChanged, match=told):
        scan(folder, progress=during(partial(change, folder)))


def test_scan_does_not_mind_what_is_no_part_of_the_artifact(tmp_path):
    folder = model(tmp_path, pack([u8("w", bytes(1000))]))
    before = scan(folder)
    after = scan(folder, progress=during(lambda: fill(folder, {"train.log": "x", ".x": "x"})))
    assert after.root == before.root


def test_scan_of_a_large_plain_file_is_by_blocks(tmp_path):
    content = os.urandom(2 * MIB + 3)
    file = scan(fill(tmp_path, {"index.faiss": content}), kind="plain").files[0]
    blocks = [content[at : at + MIB] for at in range(0, len(content), MIB)]
    assert file.leaves == b"".join(blake3(block).digest() for block in blocks)
    assert file.form == "blocks"
    whole = scan(fill(tmp_path / "one", {"index.faiss": content[:MIB]}), kind="plain").files[0]
    assert (whole.digest, whole.form) == (f"b3:{blake3(content[:MIB]).hexdigest()}", "plain")


def test_scan_by_direct_reads_gives_the_same(tmp_path):
    files = {"model.safetensors": pack([u8("w", os.urandom(3 * MIB + 77)), u8("a", b"12")])}
    folder = fill(tmp_path, files | {"config.json": b"{}", "tokenizer.model": os.urandom(MIB + 5)})
    notes: list[str] = []
    assert scan(folder, direct=True, note=notes.append) == scan(folder)


def test_scan_says_where_direct_reads_are_not_to_be_had(tmp_path, monkeypatch):
    folder = model(tmp_path, pack([u8("w", b"1234")]))
    monkeypatch.setattr("vctl_plans.weights.files.go_direct", lambda fd: False)
    notes: list[str] = []
    assert scan(folder, direct=True, note=notes.append) == scan(folder)
    assert [note.rpartition(": ")[2] for note in notes] == [
        "its file system has no direct reads; read as usual"
    ] * 2


def test_scan_tells_what_it_can_not_read(tmp_path):
    with pytest.raises(ArtifactError, match="nowhere: can't be read: No such file"):
        scan(tmp_path / "nowhere")
    with pytest.raises(NotAllowed, match="is no path: embedded null byte"):
        scan("a\0b")
    folder = fill(tmp_path / "empty", {".hidden": ""})
    with pytest.raises(NotAllowed, match="holds no file to serve"):
        scan(folder)


def test_scan_refuses_links_wherever_they_are(tmp_path):
    good = model(tmp_path / "good", pack([u8("a", b"1")]))
    (tmp_path / "link").symlink_to(good)
    linked = fill(tmp_path / "linked", {"config.json": "{}"})
    (linked / "model.safetensors").symlink_to(good / "model.safetensors")
    nested = fill(tmp_path / "nested", {"a.txt": ""})
    (nested / "folder").symlink_to(tmp_path)
    for path in (tmp_path / "link", linked, linked / "model.safetensors", nested):
        with pytest.raises(NotAllowed, match="is a symbolic link"):
            scan(path)


def test_scan_quotes_a_path_that_can_not_be_printed(tmp_path):
    (tmp_path / os.fsdecode(b"\xff\n")).symlink_to(tmp_path)
    with pytest.raises(NotAllowed) as refused:
        scan(tmp_path)
    assert refused.value.message == f"'{tmp_path}/\\udcff\\n': is a symbolic link"


def test_scan_refuses_a_link_that_appears_meanwhile(tmp_path):
    content = pack([u8("w", bytes(1000))])
    folder = model(tmp_path / "m", content)
    (tmp_path / "elsewhere").write_bytes(content)

    def swap() -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(NotAllowed, match=r"model.safetensors: is a symbolic link"):
        scan(folder, progress=during(swap))


def test_scan_refuses_a_folder_that_becomes_a_link(tmp_path):
    folder = fill(tmp_path / "p", {"sub/a.txt": "1"})

    def swap() -> None:
        (folder / "sub").rename(tmp_path / "moved")
        (folder / "sub").symlink_to(tmp_path / "moved")

    with pytest.raises(ArtifactError, match=r"sub/a.txt"):
        scan(folder, progress=during(swap))


def test_scan_refuses_what_is_no_file(tmp_path):
    folder = fill(tmp_path / "m", {"config.json": "{}"})
    os.mkfifo(folder / "model.safetensors")
    for path in (folder, folder / "model.safetensors"):
        with pytest.raises(NotAllowed, match="is neither a"):
            scan(path)
    with pytest.raises(NotAllowed, match="is neither a directory nor a regular file"):
        scan("/dev/null")


def test_scan_names_the_file_that_is_malformed(tmp_path):
    content = pack([u8("w", bytes(1000))])
    folder = model(tmp_path, content[:-1])
    with pytest.raises(MalformedWeights, match="truncated") as refused:
        scan(folder)
    assert refused.value.path == str(folder / "model.safetensors")
    assert refused.value.offset == len(content) - 1
