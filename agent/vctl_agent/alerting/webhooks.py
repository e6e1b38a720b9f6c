"""Where alerts go: a YAML list in a file of its own, for a webhook's address is a secret.

    - kind: slack                      # generic | slack | dingtalk | wecom
      url_file: /run/secrets/slack     # or url: https://...
      severities: [P0, P1]             # all if not given
    - kind: dingtalk
      url: https://oapi.dingtalk.com/robot/send?access_token=...
      secret_file: /run/secrets/dingtalk
      name: on-call                    # what logs call it; else its kind and place in the list

All problems are told at once, and none of them repeats an address.
"""

from collections import Counter
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import httpx
import msgspec
import yaml

from vctl_agent.alerting.bodies import Kind
from vctl_plans.alert import Severity
from vctl_plans.errors import SettingsError
from vctl_plans.names import suggestion

_FIELDS = ("kind", "url", "url_file", "secret_file", "severities", "name")
_SHORTEST_SECRET = 6
_SHOWN_CHARS = 200

W = TypeVar("W", Kind, Severity)


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook. Its address and its secret never stand in a log."""

    name: str
    kind: Kind
    url: str
    secret: str = ""
    severities: frozenset[Severity] = frozenset(Severity)

    def __repr__(self) -> str:
        return f"<webhook {self.name}, {self.kind}>"

    def scrubbed(self, text: str) -> str:
        """Return the beginning of *text* without what is secret: servers repeat what they got."""
        parts = urlsplit(self.url)
        words = [word for _, word in parse_qsl(parts.query)]
        secrets = (self.url, self.secret, parts.path, parts.query, parts.password or "", *words)
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "***")
        return " ".join(text.split())[:_SHOWN_CHARS]


def read_webhooks(text: str) -> tuple[Webhook, ...]:
    """Return the webhooks of the file *text*; none where no file is named.

    Raises:
        SettingsError: All problems.
    """
    if not text:
        return ()
    try:
        content = yaml.safe_load(Path(text).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as cause:
        raise SettingsError([f"{text}: {cause}"]) from cause
    except yaml.YAMLError as cause:  # its own text shows the line, which may be an address
        raise SettingsError([f"{text}: it is no YAML: {type(cause).__name__}"]) from cause
    if not isinstance(content, list):
        raise SettingsError([f"{text}: webhooks are a list"])
    problems: list[str] = []
    found = [_webhook(place, entry, problems) for place, entry in enumerate(content)]
    for name, count in Counter(each.name for each in found if each).items():
        if count > 1:
            problems.append(f"{count} webhooks are called {name}")
    if problems:
        raise SettingsError([f"{text}: {problem}" for problem in problems])
    return tuple(each for each in found if each)


def _webhook(place: int, entry: Any, problems: list[str]) -> Webhook | None:
    """Return one webhook, or note what is wrong with it."""
    where = f"[{place}]"
    if not isinstance(entry, dict):
        problems.append(f"{where} is no mapping")
        return None
    before = len(problems)
    problems.extend(
        f"{where} has no field {str(field)!r}; {suggestion(str(field), _FIELDS)}"
        for field in entry
        if field not in _FIELDS
    )
    kind = _one_of(Kind, entry.get("kind"), f"{where}.kind", problems)
    severities = _severities(entry, where, problems)
    url, secret = _url(entry, where, problems), _secret(entry, kind, where, problems)
    name = entry.get("name", f"{entry.get('kind')}-{place}")
    if not isinstance(name, str) or not name:
        problems.append(f"{where}.name is no text")
    if kind is None or len(problems) > before:
        return None
    return Webhook(name=name, kind=kind, url=url, secret=secret, severities=severities)


def _one_of(kind: type[W], value: Any, where: str, problems: list[str]) -> W | None:
    try:
        return kind(value)
    except ValueError:
        problems.append(f"{where}: {value!r} is none of {', '.join(kind)}")
        return None


def _severities(entry: dict[str, Any], where: str, problems: list[str]) -> frozenset[Severity]:
    values = entry.get("severities", list(Severity))
    if not isinstance(values, list) or not values:
        problems.append(f"{where}.severities is no list of {', '.join(Severity)}")
        return frozenset()
    read = [_one_of(Severity, value, f"{where}.severities", problems) for value in values]
    return frozenset(value for value in read if value)


def _url(entry: dict[str, Any], where: str, problems: list[str]) -> str:
    if ("url" in entry) == ("url_file" in entry):
        problems.append(f"{where} needs one of url and url_file")
        return ""
    url = entry.get("url")
    if "url_file" in entry:
        url = _content(entry["url_file"], f"{where}.url_file", problems)
        if url is None:
            return ""
    if not _is_address(url):
        problems.append(f"{where}: its url is no address like https://host/path")
    return str(url)


def _is_address(url: Any) -> bool:
    try:
        parsed = httpx.URL(url)  # what it does not take would fail at the first alert
    except (httpx.InvalidURL, TypeError):
        return False
    return parsed.scheme in {"http", "https"} and bool(parsed.host)


def _secret(entry: dict[str, Any], kind: Kind | None, where: str, problems: list[str]) -> str:
    if "secret_file" not in entry:
        return ""
    if kind is not None and kind is not Kind.DINGTALK:
        problems.append(f"{where}.secret_file: only dingtalk signs with a secret")
        return ""
    return _content(entry["secret_file"], f"{where}.secret_file", problems) or ""


def _content(path: Any, where: str, problems: list[str]) -> str | None:
    """Return what a file holds, without the newline that editors leave."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, TypeError) as cause:
        problems.append(f"{where}: {cause}")
        return None
    if not text:
        problems.append(f"{where}: {path} is empty")
        return None
    return text
