"""Break-glass: one node's gateway serves a release because root said so, with etcd away.

    vctl-gateway override --state DIR --service S --release N --reason R
    vctl-gateway override --state DIR --service S --clear
    vctl-gateway override --state DIR

It is kept over restarts until it is cleared, and shown wherever this gateway is shown. It changes
nothing in etcd and nothing on other nodes. A revoked release is not served by it either (I6).
"""

import argparse
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from vctl_agent.gateway.handover import control_path
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.persist import write_atomically
from vctl_agent.unixpath import within_reach
from vctl_plans.errors import PlanError, VctlError
from vctl_plans.names import check_name

FILE_NAME = "overrides.json"
WORD = "override "
"""What a line on the control socket begins with that is for here."""

_WITHIN_S = 10.0
_FAILED, _USAGE = 1, 2
_log = structlog.get_logger()


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """What root said of one service."""

    service: str
    release: int
    reason: str


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A line on the control socket; without a service it only asks what stands."""

    service: str = ""
    release: int = 0  # 0: clear
    reason: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered."""

    problem: str = ""
    overrides: tuple[Override, ...] = ()


class Overrides:
    """What stands, on disk and in `Live`."""

    def __init__(self, live: Live, folder: Path) -> None:
        self._live = live
        self._path = folder / FILE_NAME
        self._standing: dict[str, Override] = {}

    def open(self) -> None:
        """Read what an earlier run kept; a file that cannot be read stops nothing, and is said."""
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=list[Override])
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as cause:
            _log.error("overrides unreadable, none stands", path=str(self._path), error=str(cause))
            return
        self._standing = {each.service: each for each in kept}
        self._apply()
        for each in kept:
            _log.warning("override stands", service=each.service, release=each.release)

    def act(self, text: str) -> bytes:
        """Carry out one line, and return the line of the answer."""
        try:
            self._carry_out(msgspec.json.decode(text, type=Order))
            reply = Reply(overrides=tuple(self._standing.values()))
        except (VctlError, msgspec.MsgspecError, OSError) as problem:
            reply = Reply(problem=str(problem), overrides=tuple(self._standing.values()))
        return msgspec.json.encode(reply) + b"\n"

    def _carry_out(self, order: Order) -> None:
        if not order.service:
            return
        standing = dict(self._standing)
        if order.release:
            self._check(order)
            standing[order.service] = Override(
                service=order.service, release=order.release, reason=order.reason
            )
        else:
            standing.pop(order.service, None)
        write_atomically(self._path, msgspec.json.encode(list(standing.values())))
        self._standing = standing
        self._apply()
        _log.warning(
            "override set" if order.release else "override cleared",
            service=order.service,
            release=order.release,
            reason=order.reason,
        )

    def _check(self, order: Order) -> None:
        release_id = (order.service, order.release)
        if not order.reason:
            raise VctlError("an override needs a reason")
        if self._live.is_revoked(release_id):
            raise VctlError(f"release {order.release} of {order.service} is revoked")
        if release_id not in self._live.loaded:
            here = sorted(n for service, n in self._live.loaded if service == order.service)
            listed = ", ".join(map(str, here)) or "none"
            raise VctlError(
                f"release {order.release} of {order.service} is not ready here (ready: {listed})"
            )

    def _apply(self) -> None:
        self._live.override({each.service: each.release for each in self._standing.values()})


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run ``vctl-gateway override``; return its exit code."""
    given = _parsed(arguments, environment)
    try:
        if given.service:
            check_name(given.service, what="service")
        reply = _asked(Path(given.state), _order(given))
    except (VctlError, OSError) as problem:
        sys.stderr.write(f"vctl-gateway override: {problem}\n")
        return _USAGE if isinstance(problem, PlanError) else _FAILED
    for each in reply.overrides:
        sys.stdout.write(f"{each.service}: release {each.release} ({each.reason})\n")
    if not reply.overrides:
        sys.stdout.write("no override stands\n")
    if reply.problem:
        sys.stderr.write(f"vctl-gateway override: {reply.problem}\n")
        return _FAILED
    return 0


def _parsed(arguments: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="vctl-gateway override",
        description="Have this node's gateway serve one release, with etcd away or not.",
    )
    state = environment.get("VCTL_GATEWAY_STATE", "/var/lib/vctl/gateway")
    parser.add_argument("--state", default=state, help="the gateway's folder")
    parser.add_argument("--service", default="", help="the service; none: show what stands")
    parser.add_argument("--release", type=int, default=0, help="the release to serve")
    parser.add_argument("--reason", default="", help="why, for whoever finds it")
    parser.add_argument("--clear", action="store_true", help="go back to what the route says")
    given = parser.parse_args(arguments)
    if given.service and bool(given.release > 0) == given.clear:
        parser.error("give --release N and --reason R, or --clear")
    if not given.service and (given.release or given.clear):
        parser.error("which --service?")
    return given


def _order(given: argparse.Namespace) -> Order:
    return Order(service=given.service, release=given.release, reason=given.reason)


def _asked(state: Path, order: Order) -> Reply:
    path = control_path(state)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_WITHIN_S)
        try:
            with within_reach(path) as near:
                connection.connect(near)
        except OSError as cause:
            raise VctlError(
                f"no gateway answers at {path} ({cause.strerror}): is it --state, and are you root?"
            ) from cause
        connection.sendall(WORD.encode() + msgspec.json.encode(order) + b"\n")
        connection.shutdown(socket.SHUT_WR)
        said = b""
        while piece := connection.recv(65536):
            said += piece
    try:
        return msgspec.json.decode(said, type=Reply)
    except msgspec.MsgspecError as cause:
        raise VctlError("the gateway did not answer: see its log") from cause
