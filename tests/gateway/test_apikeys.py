"""The file of API keys: what a line may be, and how a file that changes is taken."""

import io
import os
import re
from pathlib import Path

import pytest
import structlog
from hypothesis import given as over
from hypothesis import strategies as st

from vctl_agent.gateway import hashkey
from vctl_agent.gateway.answers import Refused
from vctl_agent.gateway.apikeys import ApiKeys, Held, KeysFile, hash_of, parse, read_keys_file
from vctl_agent.gateway.tenancy import Tenancy
from vctl_agent.gateway.wire.fields import Fields
from vctl_plans.errors import SettingsError

ACME, ACME_NEW, BLUE = (f"sk-{name}-0123456789abcdef" for name in ("acme", "acme-new", "blue"))


def a_line(tenant: str, key: str) -> str:
    return f"{tenant} {hash_of(key).hex()}\n"


def opened(path: Path, text: str) -> ApiKeys:
    path.write_text(text)
    file = read_keys_file(str(path))
    assert file is not None
    keys = ApiKeys(file)
    look_twice(keys)
    return keys


def look_twice(keys: ApiKeys) -> None:
    keys.look()
    keys.look()


def test_lines_name_tenants_by_the_hashes_of_their_keys():
    text = (
        "# keys of the team\n\n"
        f"  {a_line('acme', ACME)}"
        f"acme\t{hash_of(ACME_NEW).hex().upper()}  # the new one\r\n"
        f"{a_line('blue', BLUE)}{a_line('blue', BLUE)}"
    )
    expected = {hash_of(ACME): "acme", hash_of(ACME_NEW): "acme", hash_of(BLUE): "blue"}
    assert expected == parse(text)


def test_all_problems_are_told_with_their_lines_and_no_key_is_shown():
    text = f"Acme {'0' * 64}\nacme {ACME}\n{a_line('acme', BLUE)}{a_line('blue', BLUE)}blue\n"
    with pytest.raises(SettingsError) as refused:
        parse(text)
    allowed = "use 1 to 63 of a-z 0-9 . _ -, beginning and ending with a letter or a digit"
    assert [
        f"line 1: tenant: 'Acme' is not a name: {allowed}",
        "line 2: the second word is no SHA-256: 64 hexadecimal digits, not the key itself",
        "line 4: blue has the same key as acme: a key is of one tenant",
        "line 5: 1 words; a line is TENANT SHA-256, and # begins a comment",
    ] == refused.value.problems
    assert ACME not in str(refused.value)


@pytest.mark.parametrize("text", ["", "\n# nothing\n"])
def test_file_without_a_key_is_refused_for_it_lets_nobody_in(text: str):
    with pytest.raises(SettingsError, match="it holds no key"):
        parse(text)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"acme\n"])
def test_file_that_cannot_be_used_is_a_problem_that_names_it(tmp_path: Path, content: bytes | None):
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=str(path)):
        read_keys_file(str(path))
    assert read_keys_file("") is None


def test_changed_file_is_taken_once_it_has_held_still(tmp_path: Path):
    path = tmp_path / "keys"
    keys = opened(path, a_line("acme", ACME) + a_line("blue", BLUE))
    with path.open("w") as writing:
        writing.write(a_line("acme", ACME))
        writing.flush()
        keys.look()  # half of it: right in every line, and not all
        assert {"acme", "blue"} == set(keys.held.values())
        writing.write(a_line("acme", ACME_NEW))
    keys.look()
    assert hash_of(ACME_NEW) not in keys.held
    keys.look()
    assert {hash_of(ACME): "acme", hash_of(ACME_NEW): "acme"} == keys.held


def test_file_renamed_into_place_is_taken_though_it_looks_alike(tmp_path: Path):
    path, other = tmp_path / "keys", tmp_path / "other"
    keys = opened(path, a_line("acme", ACME))
    before = path.stat()
    other.write_text(a_line("acme", BLUE))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    look_twice(keys)
    assert {hash_of(BLUE): "acme"} == keys.held


def test_file_written_over_with_its_old_time_is_taken_though_it_looks_alike(tmp_path: Path):
    path = tmp_path / "keys"
    keys = opened(path, a_line("acme", ACME))
    before = path.stat()
    path.write_text(a_line("acme", BLUE))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    look_twice(keys)
    assert {hash_of(BLUE): "acme"} == keys.held


def test_file_that_comes_back_wrong_is_told_once_and_that_it_is_gone_again_as_well(tmp_path: Path):
    path = tmp_path / "keys"
    keys = opened(path, a_line("acme", ACME))
    path.unlink()
    keys.look()
    path.write_text("acme\n")
    with structlog.testing.capture_logs() as logs:
        for _ in range(4):
            keys.look()
        path.unlink()
        look_twice(keys)
    assert 2 == len(logs)
    assert "No such file" in keys.problem


@pytest.mark.parametrize("content", ["acme\n", "", None])
def test_bad_file_keeps_the_keys_before_says_so_once_and_a_good_one_mends_it(
    tmp_path: Path, content: str | None
):
    path = tmp_path / "keys"
    keys = opened(path, a_line("acme", ACME))
    with structlog.testing.capture_logs() as logs:
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        for _ in range(4):
            keys.look()
    assert ["API keys not read, those before hold"] == [line["event"] for line in logs]
    assert ({hash_of(ACME): "acme"}, True) == (keys.held, str(path) in keys.problem)
    path.write_text(a_line("acme", ACME))
    look_twice(keys)
    assert ({hash_of(ACME): "acme"}, "") == (keys.held, keys.problem)


def test_reread_takes_the_file_at_once(tmp_path: Path):
    path = tmp_path / "keys"
    keys = opened(path, a_line("acme", ACME))
    path.write_text(a_line("acme", BLUE))
    keys.reread()
    assert {hash_of(BLUE): "acme"} == keys.held


def test_keys_are_hashed_as_the_bytes_that_came():
    """A header field that is no UTF-8 comes with surrogates."""
    odd = b"k\xff\xfe".decode("utf-8", "surrogateescape")
    assert hash_of(odd) != hash_of("k\ufffd\ufffd")
    assert KeysFile(Path("x"), {hash_of(odd): "acme"}).held[hash_of(odd)] == "acme"


def test_hash_key_prints_a_line_that_can_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{ACME}\n"))
    assert 0 == hashkey.main(["acme"])
    assert {hash_of(ACME): "acme"} == parse(capsys.readouterr().out)
    monkeypatch.setattr("sys.stdin", io.StringIO(ACME))
    assert 0 == hashkey.main([])
    assert f"{hash_of(ACME).hex()}\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        (["acme"], "short\n", "16 or more characters"),
        (["acme"], "two words of a key\n", "one word of ASCII"),
        (["acme"], "ä" * 20, "one word of ASCII"),
        (["Acme"], ACME, "is not a name"),
    ],
)
def test_hash_key_refuses_what_could_not_be_a_key(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    text: str,
    said: str,
):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert 2 == hashkey.main(arguments)
    told = capsys.readouterr()
    assert ("", True) == (told.out, said in told.err)


@over(st.text())
def test_any_text_is_a_file_of_keys_or_has_its_problems_told(text: str):
    held: Held = {}
    problems: list[str] = []
    try:
        held = parse(text)
    except SettingsError as refused:
        problems = refused.problems
    assert bool(held) != bool(problems)
    assert all(len(key) == 32 for key in held)


WORDS = st.sampled_from([ACME, BLUE, "acme", "Bearer", "bearer", "Basic", "", ",", "\udcff", "é"])
FIELDS = st.lists(
    st.tuples(
        st.sampled_from(["authorization", "Authorization", "x-api-key", "X-API-Key", "x-other"]),
        st.lists(WORDS, max_size=4).map(" ".join),
    ),
    max_size=4,
)


def keys_in(fields: list[tuple[str, str]]) -> set[str]:
    """Return what stands where keys stand, by another way than the gateway's."""
    found = set()
    for name, value in fields:
        bearer = re.fullmatch(r"\s*bearer\s+(.*?)\s*", value, re.IGNORECASE | re.DOTALL)
        if name.lower() == "x-api-key":
            found.add(value.strip())
        elif name.lower() == "authorization" and bearer:
            found.add(bearer[1])
    return found - {""}


@over(FIELDS)
def test_only_a_key_that_stands_alone_lets_anybody_in(fields: list[tuple[str, str]]):
    """Whatever else is sent; and whoever is not let in gets 401."""
    tenancy = Tenancy(ApiKeys(KeysFile(Path("x"), {hash_of(ACME): "acme"})))
    tenant, status = "", 0
    try:
        tenant = tenancy.admit(Fields(fields))
    except Refused as refused:
        status = refused.status
    assert (("acme", 0) if keys_in(fields) == {ACME} else ("", 401)) == (tenant, status)
