"""`vctl release create`."""

from pathlib import Path

import pytest

from tests.builders import SERVICE
from tests.cli.support import Vctl, a_fleet
from tests.weights import building
from vctl_plans import weights
from vctl_plans.phase import Component


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return building.adapter(tmp_path / "v2")


def test_release_is_written_and_nothing_moves(adapter: Path):
    vctl = a_fleet()
    said = vctl("release", "create", SERVICE, "--adapter", str(adapter), "--reason", "try it")
    service = vctl.service()
    assert (said.code, said.out) == (0, "support: release 2 (adapter=2)\n")
    assert weights.scan(adapter).root == service.releases[2].components[Component.ADAPTER].root
    assert (service.current_route.stable, service.rollout) == (1, None)


def test_service_must_exist_or_be_said_to_be_new(adapter: Path):
    vctl = Vctl()
    refused = vctl("release", "create", SERVICE, "--adapter", str(adapter))
    assert (refused.code, refused.out) == (2, "")
    assert "--new-service" in refused.err
    made = vctl("release", "create", SERVICE, "--adapter", str(adapter), "--new-service")
    assert (made.code, made.out) == (0, "support: release 1 (adapter=1)\n")


def test_root_must_be_one_and_must_match(adapter: Path):
    vctl = a_fleet()
    arguments = ("release", "create", SERVICE, "--adapter", str(adapter), "--root")
    assert vctl(*arguments, "b3:1").code == 2
    assert vctl(*arguments, f"b3:{'0' * 64}").code == 1
    assert list(vctl.service().releases) == [1]


def test_name_of_a_service_is_checked(adapter: Path):
    said = a_fleet()("release", "create", "Sup port", "--adapter", str(adapter))
    assert (said.code, said.out) == (2, "")
    assert "service: 'Sup port' is not a name" in said.err


def test_release_of_several_components(adapter: Path, tmp_path: Path):
    vctl = a_fleet()
    prompt = building.fill(tmp_path / "prompt", {"system.txt": "x", "run.py": "y", ".git/x": "z"})
    index = building.fill(tmp_path / "index", {"index.pkl": b"\x80\x04.", "docs.parquet": "PAR1"})
    said = vctl(
        *("release", "create", SERVICE, "--adapter", str(adapter)),
        *("--prompt", str(prompt), "--index", str(index)),
    )
    release = vctl.service().releases[2]
    assert (said.code, said.out) == (0, "support: release 2 (adapter=2,index=1,prompt=1)\n")
    assert release.components[Component.PROMPT].root == weights.scan(prompt, kind="plain").root
    assert release.components[Component.INDEX].root == weights.scan(index, kind="plain").root
    assert "left out: .git/ (hidden or generated)" in said.err
    for folder in (prompt, index):
        assert weights.load(folder / "vctl.manifest.json").kind == "plain"
    shown = vctl("release", "show", "2")
    assert "vector    adapter=2,index=1,prompt=1" in shown.out.splitlines()
    assert f"prompt    {release.components[Component.PROMPT].root}" in shown.out.splitlines()


def test_release_without_an_adapter(tmp_path: Path):
    prompt = building.fill(tmp_path, {"system.txt": "x"}) / "system.txt"
    vctl = Vctl()
    said = vctl("release", "create", SERVICE, "--prompt", str(prompt), "--new-service")
    assert (said.code, said.out) == (0, "support: release 1 (prompt=1)\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "release: what is to be in it?"),
        (("--prompt", "p", "--prompt-root", "b3:1"), "--prompt-root: 'b3:1' is not a root"),
        (("--prompt", "p", "--index-root", f"b3:{'0' * 64}"), "--index-root: without --index"),
        (("--prompt", "none"), "release.prompt.source: there is no"),
        (("--prompt", ".hidden"), "nodes keep no hidden file"),
        (("--prompt", "s4://b/p"), "did you mean 's3://'?"),
        (("--prompt", "gs://b/p"), "gs://b/p is none of file://, http://, https://, s3://, hf://"),
        (("--prompt", "https://ann:hunter2@host/p"), "holds a user or a password"),
        (("--prompt", "https://host/p?token=hunter2"), "has a query or a fragment"),
        (("--prompt", "s3://b/p", "--push", "s3://c"), "only what lies here can be pushed"),
        (("--prompt", "p", "--push", "hf://org/repo"), "the Hub is not written to"),
        (("--prompt", "p", "--push", "s3://b", "--hash-on-nodes", "2"), "beside hash_on_nodes"),
        (("--prompt", "p", "--push", "p/copies"), "release.prompt.push: is within what is to be"),
        (("--push", "s3://b"), "--push: without a component"),
        (("--hash-on-nodes", "2"), "--hash-on-nodes: without a component"),
    ],
)
def test_what_cannot_be_in_a_release_is_told(
    arguments: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    building.fill(tmp_path, {"p/a.txt": "x", ".hidden": "x"})
    monkeypatch.chdir(tmp_path)
    vctl = a_fleet()
    said = vctl("release", "create", SERVICE, *arguments)
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert "hunter2" not in said.err
    assert list(vctl.service().releases) == [1]


def test_prompt_of_another_root_and_prompt_with_a_link_are_refused(tmp_path: Path):
    prompt = building.fill(tmp_path / "p", {"a.txt": "x"})
    vctl = a_fleet()
    asked = ("release", "create", SERVICE, "--prompt", str(prompt))
    assert vctl(*asked, "--prompt-root", f"b3:{'0' * 64}").code == 1
    (prompt / "secret").symlink_to("/etc/passwd")
    linked = vctl(*asked)
    assert linked.code == 1
    assert "secret: is a symbolic link" in linked.err
    assert list(vctl.service().releases) == [1]
