from pathlib import Path

import pytest

from tests.gateway.test_apikeys import ACME, a_line
from vctl_agent.configuration import Address
from vctl_agent.gateway.apikeys import KeysFile, hash_of
from vctl_agent.gateway.settings import read_settings
from vctl_plans.errors import SettingsError

NEEDED = ["--fleet", "dev", "--node", "n1"]


def test_every_setting_has_a_default_but_fleet_and_node():
    found = read_settings(NEEDED, {})
    assert found.listen == Address("127.0.0.1", 8080)
    assert found.admin == Address("127.0.0.1", 0)
    assert found.socket == Path("/run/vctl/gateway.sock")
    assert found.max_body_bytes == 32 * 2**20
    assert found.port_file is None
    assert (found.has_passthrough, found.has_access_log) == (False, True)
    assert found.store.endpoints == ("http://127.0.0.1:2379",)


def test_settings_are_flags_and_variables_and_a_flag_wins():
    environment = {
        "VCTL_FLEET": "dev",
        "VCTL_NODE": "n1",
        "VCTL_ENDPOINTS": "http://a:1",
        "VCTL_GATEWAY_LISTEN": "[::1]:0",
        "VCTL_GATEWAY_GRACE": "1.5m",
        "VCTL_GATEWAY_PASSTHROUGH": "true",
        "VCTL_GATEWAY_MAX_BODY": "2KiB",
        "VCTL_GATEWAY_ACCESS_LOG": "off",
    }
    found = read_settings(["--node", "n2", "--endpoints", "http://b:2"], environment)
    assert (found.fleet, found.node) == ("dev", "n2")
    assert found.store.endpoints == ("http://b:2",)
    assert found.listen == Address("::1", 0)
    assert (found.grace_s, found.max_body_bytes) == (90.0, 2048)
    assert (found.has_passthrough, found.has_access_log) == (True, False)


def test_switch_may_stand_alone():
    assert read_settings([*NEEDED, "--passthrough"], {}).has_passthrough


def test_fleet_key_is_read_from_its_file(tmp_path: Path):
    file = tmp_path / "key"
    file.write_text("a" * 32 + "\n")
    found = read_settings(NEEDED, {"VCTL_FLEET_KEY_FILE": str(file)}).fleet_key
    assert found is not None
    assert found.has_signed(found.sign(b"x"), b"x")
    assert "aaa" not in repr(found)
    assert read_settings(NEEDED, {}).fleet_key is None


@pytest.mark.parametrize("content", [None, "", "short\n", "a" * 32 + "\nshort\n"])
def test_fleet_key_that_is_none_is_a_problem_that_does_not_show_it(
    tmp_path: Path, content: str | None
):
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError) as error:
        read_settings([*NEEDED, "--fleet-key-file", str(file)], {})
    (problem,) = error.value.problems
    assert problem.startswith("--fleet-key-file (VCTL_FLEET_KEY_FILE): ")
    assert "short" not in problem
    assert "aaa" not in problem


def test_all_problems_are_reported_at_once():
    arguments = [
        *("--node", "N 1", "--listen", "8080", "--socket", "/" + "s" * 120, "--colour"),
        *("--max-body", "0", "--grace", "soon", "--passthrough", "maybe", "--endpoints", "ftp://x"),
    ]
    with pytest.raises(SettingsError) as error:
        read_settings(arguments, {"VCTL_ENGINE_URL": "localhost", "VCTL_PREFIX": "vctl/"})
    named = "\n".join(error.value.problems)
    for part in (
        "--fleet (VCTL_FLEET): is required",
        "--node (VCTL_NODE)",
        "--listen (VCTL_GATEWAY_LISTEN)",
        "--socket (VCTL_SOCKET)",
        "unknown argument --colour",
        "--max-body (VCTL_GATEWAY_MAX_BODY)",
        "--grace (VCTL_GATEWAY_GRACE)",
        "--passthrough (VCTL_GATEWAY_PASSTHROUGH)",
        "--engine-url (VCTL_ENGINE_URL)",
        "--prefix (VCTL_PREFIX)",
        "VCTL_ENDPOINTS",
    ):
        assert part in named
    assert len(error.value.problems) == 11


def test_api_keys_and_the_engines_key_are_read_from_their_files(tmp_path: Path):
    keys, engine, config = tmp_path / "keys", tmp_path / "engine", tmp_path / "gateway.yaml"
    keys.write_text(a_line("acme", ACME))
    engine.write_text("engine-key\n")
    config.write_text(f"api_keys_file: {keys}\n")
    environment = {"VCTL_GATEWAY_ENGINE_API_KEY_FILE": str(engine)}
    found = read_settings([*NEEDED, "--config", str(config)], environment)
    assert found.api_keys == KeysFile(keys, {hash_of(ACME): "acme"})
    assert found.engine_key == "engine-key"
    assert read_settings(NEEDED, {"VCTL_ENGINE_KEY_FILE": str(engine)}).engine_key == ""
    assert (read_settings(NEEDED, {}).api_keys, read_settings(NEEDED, {}).engine_key) == (None, "")


def test_files_of_keys_that_are_none_are_problems_told_at_once(tmp_path: Path):
    keys, engine = tmp_path / "keys", tmp_path / "engine"
    keys.write_text(f"acme {ACME}\nblue\n")
    engine.write_text("two\nlines\n")
    environment = {
        "VCTL_GATEWAY_API_KEYS_FILE": str(keys),
        "VCTL_GATEWAY_ENGINE_API_KEY_FILE": str(engine),
    }
    with pytest.raises(SettingsError) as refused:
        read_settings(NEEDED, environment)
    where = "--api-keys-file (VCTL_GATEWAY_API_KEYS_FILE)"
    engines = "--engine-api-key-file (VCTL_GATEWAY_ENGINE_API_KEY_FILE)"
    first = "the second word is no SHA-256: 64 hexadecimal digits, not the key itself"
    assert [
        f"{where}: {keys}: line 1: {first}",
        f"{where}: {keys}: line 2: 1 words; a line is TENANT SHA-256, and # begins a comment",
        f"{engines}: {engine} must hold one line of ASCII",
    ] == refused.value.problems
