"""Where the store's settings come from, and what is said about wrong ones."""

import pytest

from vctl_plans.errors import SettingsError
from vctl_plans.store.settings import Endpoint, StoreSettings, parse_endpoint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://etcd:1234", Endpoint("etcd", 1234, is_tls=False)),
        ("https://etcd:1234", Endpoint("etcd", 1234, is_tls=True)),
        ("https://etcd/", Endpoint("etcd", 2379, is_tls=True)),
        ("etcd", Endpoint("etcd", 2379, is_tls=False)),
        ("10.0.0.1:1", Endpoint("10.0.0.1", 1, is_tls=False)),
        ("[::1]:2380", Endpoint("::1", 2380, is_tls=False)),
    ],
)
def test_an_endpoint_is_read_with_or_without_scheme(text: str, expected: Endpoint):
    assert parse_endpoint(text) == expected


@pytest.mark.parametrize(
    "text", ["", "ftp://etcd", "http://", "http://etcd:0x1", "etcd:99999", "http://etcd/v3", "a b"]
)
def test_what_is_no_endpoint_is_refused(text: str):
    with pytest.raises(ValueError, match=r"address|scheme|port"):
        parse_endpoint(text)


def test_an_endpoint_is_shown_with_scheme_and_brackets():
    assert parse_endpoint("[::1]", is_tls=True).url == "https://[::1]:2379"


def test_nothing_set_means_loopback():
    settings = StoreSettings.from_environment({})
    assert settings == StoreSettings()
    assert settings.parsed_endpoints == (Endpoint("127.0.0.1", 2379, is_tls=False),)


def test_etcdctl_variables_are_read(tmp_path):
    for name in ("ca", "cert", "key"):
        (tmp_path / name).touch()
    settings = StoreSettings.from_environment(
        {
            "ETCDCTL_ENDPOINTS": "a:1, b:2,",
            "ETCDCTL_CACERT": str(tmp_path / "ca"),
            "ETCDCTL_CERT": str(tmp_path / "cert"),
            "ETCDCTL_KEY": str(tmp_path / "key"),
            "ETCDCTL_USER": "ann:se:cret",
        }
    )
    assert settings.endpoints == ("a:1", "b:2")
    assert [endpoint.is_tls for endpoint in settings.parsed_endpoints] == [True, True]
    assert (settings.user, settings.password) == ("ann", "se:cret")
    assert settings.key_file == str(tmp_path / "key")


def test_vctl_variables_win_over_etcdctl_ones():
    environment = {"VCTL_ENDPOINTS": "mine", "ETCDCTL_ENDPOINTS": "theirs"}
    environment |= {"VCTL_USER": "me:x", "ETCDCTL_USER": "you:y", "VCTL_STORE_TIMEOUT_S": "1.5"}
    settings = StoreSettings.from_environment(environment)
    assert (settings.endpoints, settings.user, settings.timeout_s) == (("mine",), "me", 1.5)


def test_the_password_may_have_its_own_variable():
    environment = {"ETCDCTL_USER": "ann", "ETCDCTL_PASSWORD": "secret"}
    assert StoreSettings.from_environment(environment).password == "secret"


def test_all_problems_are_named_at_once_by_their_variables():
    with pytest.raises(SettingsError) as caught:
        StoreSettings.from_environment(
            {
                "ETCDCTL_ENDPOINTS": "ftp://x",
                "VCTL_CACERT": "/nowhere/ca.pem",
                "ETCDCTL_USER": "ann",
                "VCTL_STORE_TIMEOUT_S": "soon",
            }
        )
    names = [problem.partition(":")[0] for problem in caught.value.problems]
    assert names == ["ETCDCTL_ENDPOINTS", "VCTL_CACERT", "ETCDCTL_USER", "VCTL_STORE_TIMEOUT_S"]
    assert "no file /nowhere/ca.pem" in str(caught.value)


def test_a_certificate_without_key_is_a_problem_of_the_key(tmp_path):
    (tmp_path / "cert").touch()
    with pytest.raises(SettingsError, match="VCTL_KEY: a certificate needs its key"):
        StoreSettings.from_environment({"ETCDCTL_CERT": str(tmp_path / "cert")})


def test_settings_made_in_code_are_checked_too():
    with pytest.raises(SettingsError, match="endpoints: at least one"):
        StoreSettings(endpoints=())
    with pytest.raises(SettingsError, match="timeout_s"):
        StoreSettings(timeout_s=float("nan"))


def test_the_password_is_never_shown():
    assert "secret" not in repr(StoreSettings(user="ann", password="secret"))


def test_token_stands_in_place_of_a_user(tmp_path):
    """Who somebody is has one answer; and no text shows it."""
    file = tmp_path / "token"
    file.write_text("secret\n")
    by_file = StoreSettings.from_environment({"VCTL_TOKEN_FILE": str(file)})
    by_value = StoreSettings.from_environment({"ETCDCTL_AUTH_JWT_TOKEN": "secret"})
    assert ("secret", "secret") == (by_file.present_token(), by_value.present_token())
    assert "secret" not in repr(by_value)

    for more in ({"VCTL_USER": "a:b"}, {"VCTL_TOKEN": "x"}):
        with pytest.raises(SettingsError, match="not both"):
            StoreSettings.from_environment({"VCTL_TOKEN_FILE": str(file), **more})
    with pytest.raises(SettingsError, match="VCTL_TOKEN_FILE: there is no file"):
        StoreSettings.from_environment({"VCTL_TOKEN_FILE": str(tmp_path / "none")})
