#!/usr/bin/env python3
"""Speak for a server that takes LoRA adapters by OpenAI-like routes, and that vctl does not know.

An engine's hook (`vctl-agent --engine hook --engine-url http://127.0.0.1:8000 --engine-hook
/opt/hooks/lora-server.py`). The server has `/v1/models`, which lists adapters with a `parent`,
`/v1/load_lora_adapter` and `/v1/unload_lora_adapter`. It is taken to have started anew when the
process that listens at its port is another one; adapt `incarnation` where that cannot be seen.
"""

import json
import os
import pathlib
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

ENGINE = os.environ["VCTL_ENGINE_URL"]  # the agent sets it
LISTENS = "0A"


def main() -> None:
    """Do what stdin says; exit 75 asks to be called again, any other failure is final."""
    asked = json.load(sys.stdin)
    if asked["method"] == "describe":
        sys.stdout.write(json.dumps(describe()))
    elif asked["method"] == "load":
        if [asked["name"], asked["path"]] not in listed():  # a repeated call is no error
            body = {"lora_name": asked["name"], "lora_path": asked["path"]}
            call("/v1/load_lora_adapter", body)
    elif asked["method"] == "unload":
        if any(name == asked["name"] for name, _ in listed()):
            call("/v1/unload_lora_adapter", {"lora_name": asked["name"]})
    else:  # vctl asks for nothing that was not declared
        sys.exit(f"this hook knows no {asked['method']}")


def describe() -> dict:
    """Tell what the server holds now."""
    cards = call("/v1/models")["data"]
    base = next(card["id"] for card in cards if not card.get("parent"))
    return {
        "incarnation": incarnation(),
        "kind": "lora-server",
        "base": base,
        # logprobs: vctl asks the server itself whether an adapter answers for itself
        "capabilities": ["adapters", "cache_salt", "logprobs"],
        "adapters": [{"name": name, "path": path} for name, path in listed()],
    }


def listed() -> list[list[str]]:
    """List the adapters, each with the directory that it was loaded from."""
    cards = call("/v1/models")["data"]
    return [[card["id"], card["root"]] for card in cards if card.get("parent")]


def incarnation() -> str:
    """Name the run of the server: the socket that it listens with is another after a restart."""
    port = f"{urlsplit(ENGINE).port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(f":{port}") and fields[3] == LISTENS:
                return f"socket {fields[9]}"
    sys.stderr.write(f"nobody listens at {ENGINE}\n")
    sys.exit(os.EX_TEMPFAIL)


def call(path: str, body: dict | None = None) -> dict:
    """Ask the server; exit as the hook is to exit where it fails."""
    data = json.dumps(body).encode() if body else None
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(ENGINE + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=100) as answer:
            said = answer.read()
    except urllib.error.HTTPError as error:
        sys.stderr.write(f"{error.code}: {error.read().decode(errors='replace')}\n")
        sys.exit(os.EX_TEMPFAIL if error.code in {408, 429} or error.code >= 500 else 1)
    except OSError as error:  # it is not there: perhaps it starts just now
        sys.stderr.write(f"{error}\n")
        sys.exit(os.EX_TEMPFAIL)
    return json.loads(said) if said.startswith(b"{") else {}


if __name__ == "__main__":
    main()
