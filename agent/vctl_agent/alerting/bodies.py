"""An alert as each kind of webhook wants it.

The formats: Slack's incoming webhooks and blocks (docs.slack.dev: a section's text has at most 3000
characters; ``& < >`` are escaped, else ``<!channel>`` in a reason would call everybody), DingTalk's
custom robot (open.dingtalk.com, custom-robot-access: at most 20000 bytes), WeCom's group robot
(developer.work.weixin.qq.com, document 91770: at most 4096 bytes of UTF-8).

DingTalk and WeCom document no way to escape: what would begin a link, a mention or a tag there is
written otherwise.
"""

import base64
import hashlib
import hmac
from bisect import bisect_right
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from vctl_plans.alert import Alert, document
from vctl_plans.release import Actor

SLACK_CHARS = 3000
WECOM_BYTES = 4096
DINGTALK_BYTES = 20_000 - 1000
"""Of the text; the rest is for the body around it."""

_CUT = "..."


class Kind(StrEnum):
    """Who listens at a webhook."""

    GENERIC = "generic"
    SLACK = "slack"
    DINGTALK = "dingtalk"
    WECOM = "wecom"


def body(kind: Kind, alert: Alert, *, fleet: str) -> dict[str, Any]:
    """Return the JSON to post."""
    match kind:
        case Kind.SLACK:
            return _slack(alert, fleet)
        case Kind.DINGTALK:
            return _dingtalk(alert, fleet)
        case Kind.WECOM:
            return _wecom(alert, fleet)
        case Kind.GENERIC:
            return document(alert, fleet=fleet)


def _slack(alert: Alert, fleet: str) -> dict[str, Any]:
    def section(text: str) -> dict[str, Any]:
        return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}

    sentence = _cut(alert.sentence, SLACK_CHARS, lambda text: len(_slack_escaped(text)))
    context = {"type": "mrkdwn", "text": _slack_escaped(_origin(alert, fleet)), "verbatim": True}
    return {
        "text": _slack_escaped(f"{_head(alert)}: {sentence}"),
        "blocks": [
            section(f"*{_slack_escaped(_head(alert))}*"),
            section(_slack_escaped(sentence)),
            {"type": "context", "elements": [context]},
        ],
    }


def _slack_escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _dingtalk(alert: Alert, fleet: str) -> dict[str, Any]:
    head, sentence, origin = map(_defused, (_head(alert), alert.sentence, _origin(alert, fleet)))
    text = f"#### {head}\n\n> {sentence}\n\n{origin}"
    text = _cut(text, DINGTALK_BYTES, lambda text: len(text.encode()))
    return {"msgtype": "markdown", "markdown": {"title": head, "text": text}}


def _wecom(alert: Alert, fleet: str) -> dict[str, Any]:
    head, sentence, origin = map(_defused, (_head(alert), alert.sentence, _origin(alert, fleet)))
    frame = f"**{head}**\n> \n{origin}"
    room = WECOM_BYTES - len(frame.encode())
    said = _cut(sentence, room, lambda text: len(text.encode()))
    content = f"**{head}**\n> {said}\n{origin}"
    return {"msgtype": "markdown", "markdown": {"content": content}}


def _defused(text: str) -> str:
    """Return *text* on one line, without what is a link, an image, a mention or a tag."""
    whole = " ".join(text.split())
    return whole.replace("](", "] (").replace("<", "\uff1c").replace(">", "\uff1e")


def _head(alert: Alert) -> str:
    """Return the first line; ``vctl`` stands in it for robots that ask for a keyword."""
    return f"vctl [{alert.severity}] {alert.title}"


def _origin(alert: Alert, fleet: str) -> str:
    """Return where it comes from, who began it and why, and the id by which repeats are known."""
    said = [f"fleet {fleet}"]
    said += [f"rollout {alert.rollout}"] if alert.rollout else []
    said += [f"by {_who(alert.by)}"] if _who(alert.by) else []
    said += [f"reason: {_cut(alert.reason, 200, len)}"] if alert.reason else []
    return ", ".join([*said, f"id {alert.id}"])


def _who(actor: Actor) -> str:
    return "@".join(part for part in (actor.user, actor.host) if part) or actor.via


def _cut(text: str, limit: int, size: Callable[[str], int]) -> str:
    """Return as much of *text* as *size* lets be within *limit*, and say when it is not all."""
    if size(text) <= limit:
        return text
    fits = bisect_right(range(len(text)), limit, key=lambda end: size(text[:end] + _CUT)) - 1
    return text[: max(0, fits)] + _CUT


def dingtalk_signature(secret: str, *, timestamp_ms: int) -> dict[str, str]:
    """Return what a signed DingTalk robot wants in the query: HMAC-SHA256 over time and secret.

    The secret is the key and the end of the message as well (custom robot, "additional signature").
    The robot takes a timestamp within one hour of its own clock.
    """
    message = f"{timestamp_ms}\n{secret}".encode()
    mac = hmac.new(secret.encode(), message, hashlib.sha256).digest()
    return {"timestamp": str(timestamp_ms), "sign": base64.b64encode(mac).decode()}
