"""The conductor permits quarantines of what serves, and says when it permits no more."""

import msgspec
import pytest

from tests.builders import a_route, some_releases
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.fusing import Fusing
from vctl_agent.pacing import PERIOD_S, RETRY_S
from vctl_plans.alert import Alert
from vctl_plans.codec import decode, encode
from vctl_plans.errors import StoreUnavailable
from vctl_plans.fuse import Fuse
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport, ReleaseReport
from vctl_plans.phase import NodePhase
from vctl_plans.snapshot import Fleet, read_services
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Put, Txn

KEYS = Keys("dev")
RELEASES = some_releases(1)
SERVICE = RELEASES[1].service
NODES = [f"n{i}" for i in range(5)]


class Term:
    """One conductor's, over a store in memory."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now = 0.0

    async def begin(self) -> None:
        self.fence = await self.store.commit(Txn((), (Put(KEYS.conductor, b"c"),)))
        await self.store.put(KEYS.release(SERVICE, 1), encode(RELEASES[1]))
        await self.store.put(KEYS.route(SERVICE), encode(a_route(stable=1)))
        self.fusing = self.anew()

    def anew(self) -> Fusing:
        return Fusing(
            self.store,
            KEYS,
            fence=self.fence,
            crashpoints=Crashpoints(),
            clock=lambda: self.now,
        )

    async def turn(self, *failing: str, fusing: Fusing | None = None) -> float:
        """Look once at what the nodes say."""
        entries = {e.key: e for e in (await self.store.list(KEYS.services)).entries}
        fleet = Fleet(
            services=read_services(KEYS, entries.values()).services,
            records={node: NodeRecord(node=node, boot_id="b") for node in NODES},
            reports={node: report(node, is_failing=node in failing) for node in NODES},
        )
        return await (fusing or self.fusing).turn(fleet, entries)

    async def fuse(self) -> Fuse | None:
        found = await self.store.get(KEYS.fuse(SERVICE))
        return decode(found.value, Fuse, key=found.key) if found else None

    async def alerts(self) -> list[Alert]:
        entries = (await self.store.list(KEYS.alerts)).entries
        return [decode(entry.value, Alert, key=entry.key) for entry in entries]


def report(node: str, *, is_failing: bool) -> NodeReport:
    release = ReleaseReport(
        service=SERVICE,
        number=1,
        digest=RELEASES[1].digest,
        phase=NodePhase.PROBING if is_failing else NodePhase.READY,
        fails_probe=is_failing,
        reason="no" if is_failing else "",
    )
    return NodeReport(node=node, boot_id="b", releases=(release,))


@pytest.fixture
async def term() -> Term:
    made = Term()
    await made.begin()
    return made


async def test_nothing_is_written_while_nobody_fails(term: Term) -> None:
    """The key is watched by all."""
    await term.turn()

    assert await term.fuse() is None


async def test_first_that_fails_is_named_and_that_is_written_once(term: Term) -> None:
    """Its end is written as well."""
    await term.turn("n3")
    written = await term.store.get(KEYS.fuse(SERVICE))
    await term.turn("n3")

    assert Fuse(service=SERVICE, release=RELEASES[1].digest, nodes=("n3",)) == await term.fuse()
    assert written == await term.store.get(KEYS.fuse(SERVICE))
    assert [] == await term.alerts()

    term.now += PERIOD_S
    await term.turn()
    assert Fuse(service=SERVICE) == await term.fuse()


async def test_more_than_may_go_are_an_alert_once(term: Term) -> None:
    """After what may go was permitted; another conductor tells it with the same id."""
    await term.turn("n1", "n3", "n4")
    assert [] == await term.alerts()
    await term.turn("n1", "n3", "n4")
    told = await term.alerts()
    assert ["n3, n4"] == [a.sentence.partition("serve on: ")[2].partition(";")[0] for a in told]

    await term.store.commit(Txn((), (Put(KEYS.alert(told[0].id), b"sent"),)))
    await term.turn("n1", "n3", "n4")
    found = await term.store.get(KEYS.alert(told[0].id))
    assert found is not None
    assert b"sent" == found.value
    await term.turn("n1", "n3", "n4", fusing=term.anew())  # which conflicts: it still waits


async def test_changes_are_written_once_a_second_at_most(term: Term) -> None:
    """All nodes watch the key."""
    await term.turn("n3")
    assert PERIOD_S == await term.turn("n4")
    assert ("n3",) == (await term.fuse()).nodes  # type: ignore[union-attr]

    term.now += PERIOD_S
    await term.turn("n4")
    assert ("n4",) == (await term.fuse()).nodes  # type: ignore[union-attr]


async def test_conductor_whose_term_is_over_permits_nothing(term: Term) -> None:
    """Its write is fenced."""
    await term.store.commit(Txn((), (Put(KEYS.conductor, b"another"),)))
    old = term.fusing
    term.fence += 1_000
    term.fusing = term.anew()
    await term.turn("n3")

    assert await term.fuse() is None
    assert old is not term.fusing


async def test_store_that_is_away_is_asked_again(
    term: Term, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody is quarantined meanwhile."""

    async def commit(_txn: Txn) -> int:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(term.store, "commit", commit)
        assert RETRY_S == await term.turn("n3")
    term.now += RETRY_S
    await term.turn("n3")

    assert ("n3",) == (await term.fuse()).nodes  # type: ignore[union-attr]


async def test_fuse_of_a_newer_vctl_is_left_alone(term: Term) -> None:
    """This one does not know what it says."""
    newer = msgspec.structs.replace(Fuse(service=SERVICE), v=99)
    await term.store.put(KEYS.fuse(SERVICE), encode(newer))
    await term.turn("n3")

    assert newer == await term.fuse()
