"""What each kind of webhook is sent: exact, for the other side takes nothing else."""

import msgspec
import pytest

from vctl_agent.alerting.bodies import (
    DINGTALK_BYTES,
    SLACK_CHARS,
    WECOM_BYTES,
    Kind,
    body,
    dingtalk_signature,
)
from vctl_plans.alert import Alert, Severity
from vctl_plans.release import Actor

REPLACE = msgspec.structs.replace

ALERT = Alert(
    id="r2-5",
    service="support",
    severity=Severity.P0,
    title="support: rolling back",
    sentence="error ratio 2.1 > 1.5 & rising on <n1>",
    rollout="r2",
    phase="rolling_back",
    from_release=1,
    to_release=2,
    back_to=1,
    by=Actor(user="ann", host="ci"),
    reason="<!channel> INC-1",
)


def test_generic_body_is_the_alert_with_fleet_and_kind():
    assert {
        "kind": "vctl.alert",
        "v": 1,
        "fleet": "dev",
        "id": "r2-5",
        "service": "support",
        "severity": "P0",
        "title": "support: rolling back",
        "sentence": "error ratio 2.1 > 1.5 & rising on <n1>",
        "rollout": "r2",
        "phase": "rolling_back",
        "from_release": 1,
        "to_release": 2,
        "back_to": 1,
        "by": {"user": "ann", "host": "ci"},
        "reason": "<!channel> INC-1",
    } == body(Kind.GENERIC, ALERT, fleet="dev")


def test_slack_body_escapes_what_slack_takes_for_markup():
    sentence = "error ratio 2.1 &gt; 1.5 &amp; rising on &lt;n1&gt;"
    origin = "fleet dev, rollout r2, by ann@ci, reason: &lt;!channel&gt; INC-1, id r2-5"
    assert {
        "text": f"vctl [P0] support: rolling back: {sentence}",
        "blocks": [
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": "*vctl [P0] support: rolling back*",
                    "verbatim": True,
                },
            },
            {"type": "section", "text": {"type": "mrkdwn", "text": sentence, "verbatim": True}},
            {
                "type": "context",
                "elements": [{"type": "mrkdwn", "text": origin, "verbatim": True}],
            },
        ],
    } == body(Kind.SLACK, ALERT, fleet="dev")


def test_dingtalk_body_is_markdown_with_a_title():
    assert {
        "msgtype": "markdown",
        "markdown": {
            "title": "vctl [P0] support: rolling back",
            "text": "#### vctl [P0] support: rolling back\n\n"
            "> error ratio 2.1 \uff1e 1.5 & rising on \uff1cn1\uff1e\n\n"
            "fleet dev, rollout r2, by ann@ci, reason: \uff1c!channel\uff1e INC-1, id r2-5",
        },
    } == body(Kind.DINGTALK, ALERT, fleet="dev")


def test_wecom_body_is_markdown():
    assert {
        "msgtype": "markdown",
        "markdown": {
            "content": "**vctl [P0] support: rolling back**\n"
            "> error ratio 2.1 \uff1e 1.5 & rising on \uff1cn1\uff1e\n"
            "fleet dev, rollout r2, by ann@ci, reason: \uff1c!channel\uff1e INC-1, id r2-5",
        },
    } == body(Kind.WECOM, ALERT, fleet="dev")


@pytest.mark.parametrize("kind", [Kind.DINGTALK, Kind.WECOM])
def test_markdown_holds_no_link_mention_or_line_of_a_reason(kind):
    """A reason is anybody's text: it must not look like a part of the message."""
    said = str(body(kind, REPLACE(ALERT, reason="a\n# b ![x](http://evil) <@all>"), fleet="dev"))
    assert "](" not in said
    assert "<@" not in said
    assert "a # b ![x] (http://evil)" in said


def test_long_sentences_are_cut_to_what_each_takes():
    """By Slack's characters after escaping, by the others' bytes of UTF-8."""
    long = REPLACE(ALERT, sentence="节点<" * 9000, reason="为什么" * 3000)
    slack = body(Kind.SLACK, long, fleet="dev")["blocks"]
    section, context = slack[1]["text"]["text"], slack[2]["elements"][0]["text"]
    wecom = body(Kind.WECOM, long, fleet="dev")["markdown"]["content"].encode()
    dingtalk = body(Kind.DINGTALK, long, fleet="dev")["markdown"]["text"].encode()
    assert SLACK_CHARS - 5 <= len(section) <= SLACK_CHARS
    assert len(context) <= SLACK_CHARS
    assert section.endswith("...")
    assert not section.removesuffix("...").endswith(("&", "&l", "&lt"))
    assert WECOM_BYTES - 5 <= len(wecom) <= WECOM_BYTES
    assert wecom.decode().endswith("id r2-5")
    assert DINGTALK_BYTES - 5 <= len(dingtalk) <= DINGTALK_BYTES


def test_dingtalk_signature_is_what_others_compute():
    """By openssl dgst -sha256 -hmac "$secret" -binary | base64."""
    assert {
        "timestamp": "1577262236757",
        "sign": "hmPWwU+7lVdm3ZZz0r9tSfx0L4Q26jWOZr9+Gs6EZQM=",
    } == dingtalk_signature("this is secret", timestamp_ms=1577262236757)
