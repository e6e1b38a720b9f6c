"""``vctl-gateway hash-key``: a line for the file of API keys, made of a key on stdin.

    openssl rand -hex 32 | tee key | vctl-gateway hash-key acme >> api-keys

The key is read from stdin, since arguments stand in the list of processes; at a terminal it is
asked for, and not shown.
"""

import argparse
import getpass
import sys
from collections.abc import Sequence

from vctl_agent.gateway.apikeys import hash_of
from vctl_plans.errors import PlanError
from vctl_plans.names import check_name

LEAST_CHARS = 16
"""A shorter key could be found by hashing guesses, once somebody has the file."""

_USAGE, _INTERRUPTED = 2, 130


def main(arguments: Sequence[str]) -> int:
    """Run ``vctl-gateway hash-key``; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="vctl-gateway hash-key",
        description="Read an API key on stdin, and print its line for --api-keys-file.",
    )
    parser.add_argument("tenant", nargs="?", default="", help="whose key it is; none: only hash it")
    tenant = parser.parse_args(arguments).tenant
    try:
        if tenant:
            check_name(tenant, what="tenant")
        written = hash_of(_key()).hex()
    except (PlanError, ValueError) as problem:
        sys.stderr.write(f"vctl-gateway hash-key: {problem}\n")
        return _USAGE
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return _INTERRUPTED
    sys.stdout.write(f"{tenant} {written}\n" if tenant else f"{written}\n")
    return 0


def _key() -> str:
    """Return the key, without the end of its line.

    Raises:
        ValueError: It could not come as a key, or is too short to be one.
    """
    is_asked = sys.stdin.isatty()
    try:
        text = getpass.getpass("API key: ") if is_asked else sys.stdin.read()
    except EOFError:
        text = ""
    except UnicodeDecodeError as cause:
        raise ValueError("a key is one word of ASCII: it has to stand in a header field") from cause
    key = text.rstrip("\r\n")
    if len(key) < LEAST_CHARS:
        raise ValueError(
            f"a key has {LEAST_CHARS} or more characters: make one with openssl rand -hex 32"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("a key is one word of ASCII: it has to stand in a header field")
    return key
