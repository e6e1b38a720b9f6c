"""The gateway's memory on disk: the last route, its releases and groups, the agent's last word.

A gateway that starts while etcd and the agent are away serves by it. It is written off the event
loop, atomically, and only when it differs; a disk that fails is logged and never stops a request.
"""

import asyncio
import os
import tempfile
from pathlib import Path

import msgspec
import structlog

from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.state import NOBODY, Known, PeersAt, ReleaseAt, RouteAt, TenantAt
from vctl_agent.local import AgentState
from vctl_plans.groups import Groups
from vctl_plans.peers import Peers
from vctl_plans.release import Release

FILE_NAME = "gateway.json"
_RETRY_S = 5.0
_log = structlog.get_logger()


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What is on disk."""

    v: int = 1
    fleet: str
    routes: dict[str, RouteAt]
    releases: tuple[Release, ...]  # those that the routes serve or may go back to at once
    groups: tuple[Groups, ...] = ()  # those that the routes name; their digests are not trusted
    peers: tuple[Peers, ...] = ()
    tenants: dict[str, str] | None = None  # of services that have a spec; None: nobody kept them
    agent: AgentState | None = None
    cluster_id: int = 0


def saved(acted: Acted, fleet: str) -> Saved:
    """Return what to keep of *acted*."""
    known = acted.known
    wanted = {
        (service, number)
        for service, at in known.routes.items()
        for number in (*at.route.serving, *at.route.instant)
    }
    kept = (known.releases[each].release for each in sorted(wanted) if each in known.releases)
    named = frozenset().union(*(at.groups for at in known.routes.values()))
    return Saved(
        fleet=fleet,
        routes=known.routes,
        releases=tuple(kept),
        groups=tuple(known.groups[each] for each in sorted(named & known.groups.keys())),
        peers=tuple(at.peers for _, at in sorted(known.peers.items())),
        tenants={service: at.tenant for service, at in sorted(known.tenants.items())},
        agent=acted.agent,
        cluster_id=acted.cluster_id,
    )


def restored(kept: Saved) -> Acted:
    """Return what an earlier run acted on; all but routes is read again when the store answers."""
    releases = {(r.service, r.number): ReleaseAt(0, r) for r in kept.releases}
    groups = {each.digest: each for each in kept.groups}
    peers = {each.service: PeersAt(0, each) for each in kept.peers}
    whose = dict.fromkeys(kept.routes, NOBODY) if kept.tenants is None else kept.tenants
    tenants = {service: TenantAt(0, tenant) for service, tenant in whose.items()}
    known = Known(
        routes=kept.routes, releases=releases, groups=groups, peers=peers, tenants=tenants
    )
    return Acted(known=known, agent=kept.agent, cluster_id=kept.cluster_id)


def load(folder: Path, fleet: str) -> Acted:
    """Return what an earlier run left, or nothing known if there is none that can be used."""
    path = folder / FILE_NAME
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Saved)
    except FileNotFoundError:
        return Acted()
    except (OSError, msgspec.MsgspecError) as cause:
        _log.warning(
            "state on disk is unreadable, starting without it", path=str(path), error=str(cause)
        )
        return Acted()
    if kept.fleet != fleet:
        _log.warning("state on disk is another fleet's, starting without it", path=str(path))
        return Acted()
    return restored(kept)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace *path* by *content*: after a crash it holds the old or the new, whole."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:  # also a cancellation leaves no half-written file; raised again
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Saver:
    """Keeps the disk behind `Live`, and acknowledges what is on it."""

    def __init__(self, live: Live, folder: Path, fleet: str) -> None:
        self._live = live
        self._path = folder / FILE_NAME
        self._fleet = fleet
        self._written = b""
        self.is_stopped = False  # another process keeps the disk now
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()  # else the older of two states can be renamed last
        live.bells.append(self._changed.set)

    async def run(self) -> None:
        """Write after every change, for ever."""
        while True:
            self._changed.clear()
            is_saved = await self.save()
            timeout = None if is_saved else _RETRY_S
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def save(self) -> bool:
        """Write what is acted on now, if the disk holds something else; then acknowledge it.

        A disk that fails does not hold back the acknowledgement: the fleet goes on, and it is said.
        Only the word that a barrier stands has to outlive a crash, and is not given without it.
        """
        if self.is_stopped:
            return True
        async with self._writing:
            return await self._save()

    async def _save(self) -> bool:
        acted = self._live.acted
        is_saved = True
        content = msgspec.json.encode(saved(acted, self._fleet), order="sorted")
        if content != self._written:
            try:
                await asyncio.to_thread(write_atomically, self._path, content)
                self._written = content
            except OSError as cause:
                is_saved = False
                _log.error("state not saved", path=str(self._path), error=str(cause))
        has_barrier = any(at.route.hold is not None for at in acted.known.routes.values())
        if self._live.acknowledged is not acted and (is_saved or not has_barrier):
            self._live.acknowledge(acted)
        return is_saved
