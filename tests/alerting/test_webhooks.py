"""The file of webhooks: what it may say, and that its secrets stay in it."""

from pathlib import Path

import pytest

from vctl_agent.alerting.bodies import Kind
from vctl_agent.alerting.webhooks import Webhook, read_webhooks
from vctl_agent.settings import read_settings
from vctl_plans.alert import Severity
from vctl_plans.errors import SettingsError

URL = "https://hooks.example.com/services/T000/B000/XXXX"


def read(folder: Path, text: str) -> tuple[Webhook, ...]:
    file = folder / "webhooks.yaml"
    file.write_text(text)
    return read_webhooks(str(file))


def test_webhooks_are_read_with_what_lies_in_other_files(tmp_path: Path):
    (tmp_path / "url").write_text(f"{URL}\n")
    (tmp_path / "secret").write_text("SEC123456\n")
    assert (
        Webhook(name="slack-0", kind=Kind.SLACK, url=URL),
        Webhook(
            name="on-call",
            kind=Kind.DINGTALK,
            url="https://oapi.dingtalk.com/robot/send?access_token=abc",
            secret="SEC123456",
            severities=frozenset({Severity.P0}),
        ),
    ) == read(
        tmp_path,
        f"""
        - {{kind: slack, url_file: {tmp_path}/url}}
        - kind: dingtalk
          name: on-call
          url: https://oapi.dingtalk.com/robot/send?access_token=abc
          secret_file: {tmp_path}/secret
          severities: [P0]
        """,
    )


def test_all_problems_of_the_file_are_told_at_once_and_no_address(tmp_path: Path):
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(SettingsError) as caught:
        read(
            tmp_path,
            f"""
            - just text
            - {{kind: slak, url: "{URL}"}}
            - {{kind: slack}}
            - {{kind: slack, url: "{URL}", url_file: x}}
            - {{kind: slack, url: "hooks.example.com/T000"}}
            - {{kind: slack, url: 7}}
            - {{kind: slack, url_file: {tmp_path}/none}}
            - {{kind: slack, url_file: {tmp_path}/empty}}
            - {{kind: slack, url: "{URL}", secret_file: {tmp_path}/empty}}
            - {{kind: wecom, url: "{URL}", severities: [P2]}}
            - {{kind: wecom, url: "{URL}", severities: P0}}
            - {{kind: wecom, url: "{URL}", severity: P0}}
            - {{kind: wecom, url: "{URL}", name: x}}
            - {{kind: generic, url: "{URL}", name: x}}
            """,
        )
    said = caught.value.problems
    for part in (
        "[0] is no mapping",
        "[1].kind: 'slak' is none of generic, slack, dingtalk, wecom",
        "[2] needs one of url and url_file",
        "[3] needs one of url and url_file",
        "[4]: its url is no address",
        "[5]: its url is no address",
        "[6].url_file: ",
        f"[7].url_file: {tmp_path}/empty is empty",
        "[8].secret_file: only dingtalk",
        "[9].severities: 'P2' is none of P0, P1, info",
        "[10].severities is no list",
        "[11] has no field 'severity'; did you mean 'severities'?",
        "2 webhooks are called x",
    ):
        assert sum(part in problem for problem in said) == 1, (part, said)
    assert len(said) == 13
    assert not [problem for problem in said if "T000" in problem]


@pytest.mark.parametrize("text", ["kind: slack", "[", "\x00", "- [a", "17"])
def test_file_that_is_no_list_is_a_problem(tmp_path: Path, text: str):
    with pytest.raises(SettingsError):
        read(tmp_path, text)


def test_agent_tells_problems_of_the_file_with_its_others(tmp_path: Path):
    file = tmp_path / "webhooks.yaml"
    file.write_text("- {kind: slak, url: x}\n")
    with pytest.raises(SettingsError) as caught:
        read_settings(["--webhooks", str(file)], {"VCTL_ENGINE_URL": "http://e"})
    where = f"--webhooks (VCTL_WEBHOOKS): {file}"
    assert [
        "--fleet (VCTL_FLEET): is required",
        f"{where}: [0].kind: 'slak' is none of generic, slack, dingtalk, wecom",
        f"{where}: [0]: its url is no address like https://host/path",
    ] == caught.value.problems


def test_agent_needs_no_webhooks():
    environment = {"VCTL_FLEET": "dev", "VCTL_ENGINE_URL": "http://e"}
    assert () == read_settings([], environment).webhooks


def test_webhook_does_not_show_its_address():
    hook = Webhook(name="a", kind=Kind.DINGTALK, url=f"{URL}?access_token=tok123", secret="SEC123")
    assert "<webhook a, dingtalk>" == repr(hook)


def test_secrets_are_taken_out_of_what_servers_say():
    hook = Webhook(name="a", kind=Kind.DINGTALK, url=f"{URL}?access_token=tok123", secret="SEC123")
    said = (
        f"The URL {URL}?access_token=tok123 was not found: /services/T000/B000/XXXX tok123 SEC123"
    )
    shown = hook.scrubbed(said + "\n" * 3 + "x" * 500)
    assert shown.startswith("The URL *** was not found: *** *** *** xxx")
    assert len(shown) == 200


def test_file_of_the_documentation_is_read(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text(encoding="utf-8")
    text = page.split("```yaml\n")[1].split("```")[0]
    for name in ("slack-url", "dingtalk-url", "dingtalk-secret"):
        (tmp_path / name).write_text(URL)
    found = read(tmp_path, text.replace("/run/secrets", str(tmp_path)))
    assert [Kind.SLACK, Kind.DINGTALK, Kind.GENERIC] == [hook.kind for hook in found]
