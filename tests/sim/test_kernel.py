"""Virtual time: order, clocks, processes that are stopped and killed; the store's ways."""

import asyncio
import contextlib

import pytest

from tests.sim.client import Client
from tests.sim.groundwork import KEYS
from tests.sim.kernel import Kernel, Process
from tests.sim.network import Network
from tests.sim.store import Etcd, State
from vctl_plans.errors import Conflict, Indeterminate, RestoredBackup, StoreUnavailable
from vctl_plans.store.port import CreateRevisionIs, Put, Txn

KEY = KEYS.rollout("s")


def a_process(kernel: Kernel, name: str = "p", *, rate: float = 1.0) -> Process:
    process = Process(kernel, name, rate=rate)
    process.start()
    return process


def a_client(etcd: Etcd, process: Process) -> Client:
    client = Client(etcd, process, Network("seed"))
    process.on_pause = process.on_resume = client.feel
    process.on_death = client.drop
    return client


def test_events_happen_in_the_order_of_their_times_then_of_asking() -> None:
    kernel = Kernel()
    seen: list[object] = []
    for name, delay_s in (("b", 2.0), ("a", 1.0), ("c", 2.0)):
        kernel.after(delay_s, None, seen.append, name)
    kernel.soon(None, seen.append, "now")
    kernel.run_until(5.0)

    assert ["now", "a", "b", "c"] == seen
    assert 5.0 == kernel.now


def test_process_sleeps_by_its_own_clock() -> None:
    kernel = Kernel()
    woke: list[tuple[float, float]] = []
    process = a_process(kernel, rate=2.0)

    async def sleep() -> None:
        await asyncio.sleep(10)
        woke.append((kernel.now, process.clock()))

    process.spawn(sleep())
    kernel.run_until(60.0)

    assert [(5.0, 10.0)] == woke


def test_stopped_process_does_what_came_to_it_when_it_goes_on() -> None:
    kernel = Kernel()
    seen: list[object] = []
    process = a_process(kernel)
    process.after(1.0, seen.append, "timer")
    process.pause()
    kernel.run_until(10.0)
    before = list(seen)
    process.resume()
    kernel.run_until(10.0)

    assert [] == before
    assert ["timer"] == seen


def test_killed_process_clears_up_without_any_effect() -> None:
    kernel = Kernel()
    seen: list[object] = []
    etcd = Etcd(kernel, KEYS)
    process = a_process(kernel)
    client = a_client(etcd, process)

    async def work() -> None:
        try:
            await asyncio.sleep(10)
            seen.append("worked")
        finally:
            with contextlib.suppress(StoreUnavailable):
                await client.put(KEY, b"last word")

    process.spawn(work())
    kernel.run_until(1.0)
    process.pause()
    process.kill()
    kernel.run_until(60.0)

    assert [] == seen
    assert etcd.cluster.get(KEY) is None
    assert not etcd.clients


def test_task_that_fails_breaks_the_history() -> None:
    kernel = Kernel()

    async def fail() -> None:
        raise ZeroDivisionError

    a_process(kernel).spawn(fail())
    with pytest.raises(ZeroDivisionError):
        kernel.run_until(1.0)


def test_no_loop_is_left_behind() -> None:
    """Other tests of the same worker run loops of their own."""
    kernel = Kernel()
    process = a_process(kernel)
    process.spawn(asyncio.sleep(1))
    kernel.run_until(0.5)
    process.kill()

    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def run(kernel: Kernel, process: Process, work: object) -> list[object]:
    """Run a coroutine to its end; return its result, or the error that it raised."""
    ended: list[object] = []

    async def caught() -> None:
        try:
            ended.append(await work)  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001  it is looked at
            ended.append(error)

    process.spawn(caught())
    kernel.run_until(kernel.now + 30.0)
    return ended


def test_transaction_whose_comparison_fails_writes_nothing() -> None:
    kernel = Kernel()
    etcd, process = Etcd(kernel, KEYS), a_process(kernel)
    client = a_client(etcd, process)
    txn = Txn((CreateRevisionIs(KEY, 0),), (Put(KEY, b"one"),))
    first, second = (
        run(kernel, process, client.commit(txn)),
        run(kernel, process, client.commit(txn)),
    )

    assert [2] == first
    assert isinstance(second[0], Conflict)
    assert 2 == etcd.cluster.revision


def test_lost_reply_is_indeterminate_and_may_have_been_written() -> None:
    kernel = Kernel()
    etcd, process = Etcd(kernel, KEYS), a_process(kernel)
    client = a_client(etcd, process)
    client.network.loss = 0.5
    ends = [run(kernel, process, client.put(KEY, b"%d" % n))[0] for n in range(30)]
    lost = [n for n, end in enumerate(ends) if isinstance(end, Indeterminate)]
    found = etcd.cluster.get(KEY)

    assert lost
    assert found
    assert len(ends) - len(lost) < found.version < len(ends)


def test_watch_is_late_in_order_and_lists_anew_after_a_cut() -> None:
    kernel = Kernel()
    seen: list[object] = []
    etcd, process = Etcd(kernel, KEYS), a_process(kernel)
    client = a_client(etcd, process)
    client.network.lag_s = 5.0

    def hear(state: State) -> None:
        update = state.update
        value = update.entries[KEY].value if KEY in update.entries else b""
        seen.append((update.is_live, value))

    client.follow(KEYS.services, hear)
    for number in range(5):
        etcd.apply(Txn(operations=(Put(KEY, b"%d" % number),)))
    at_once = list(seen)
    kernel.run_until(20.0)
    heard = list(seen)
    client.is_cut = True
    client.feel()
    etcd.apply(Txn(operations=(Put(KEY, b"unheard"),)))
    kernel.run_until(40.0)
    client.is_cut = False
    client.feel()
    kernel.run_until(60.0)

    assert [] == at_once
    assert [(True, b"")] + [(True, b"%d" % n) for n in range(5)] == heard
    assert [(False, b"4"), (True, b"unheard")] == seen[len(heard) :]


@pytest.mark.parametrize("how", ["cut off", "stopped", "killed"])
def test_lease_ends_with_its_key_when_its_holder_is(how: str) -> None:
    kernel = Kernel()
    etcd, process = Etcd(kernel, KEYS), a_process(kernel)
    client = a_client(etcd, process)
    lease = run(kernel, process, client.grant(10.0))[0]
    run(kernel, process, client.put(KEY, b"here", lease_id=lease.id))  # type: ignore[attr-defined]
    is_kept = etcd.cluster.get(KEY) is not None
    if how == "cut off":
        client.is_cut = True
        client.feel()
    elif how == "stopped":
        process.pause()
    else:
        process.kill()
    kernel.run_until(kernel.now + 9.0)
    is_kept_still = etcd.cluster.get(KEY) is not None
    kernel.run_until(kernel.now + 2.0)

    assert is_kept
    assert is_kept_still
    assert etcd.cluster.get(KEY) is None


def test_holder_gives_up_before_others_see_its_lease_gone() -> None:
    kernel = Kernel()
    etcd, process = Etcd(kernel, KEYS), a_process(kernel)
    client = a_client(etcd, process)
    lease = run(kernel, process, client.grant(10.0))[0]
    client.is_cut = True
    client.feel()
    cut_at = kernel.now
    kernel.run_until(cut_at + 60.0, is_over=lambda: lease.is_over)  # type: ignore[attr-defined]

    assert kernel.now < cut_at + 10.0


def test_leases_outlive_etcd_being_away() -> None:
    kernel = Kernel()
    etcd, process = Etcd(kernel, KEYS), a_process(kernel)
    client = a_client(etcd, process)
    lease = run(kernel, process, client.grant(10.0))[0]
    run(kernel, process, client.put(KEY, b"here", lease_id=lease.id))  # type: ignore[attr-defined]
    etcd.go_away()
    kernel.run_until(kernel.now + 100.0)
    is_kept = etcd.cluster.get(KEY) is not None
    etcd.come_back()
    kernel.run_until(kernel.now + 11.0)

    assert is_kept
    assert etcd.cluster.get(KEY) is None


def test_restored_backup_is_refused_by_who_knew_the_store() -> None:
    kernel = Kernel()
    etcd, process = Etcd(kernel, KEYS), a_process(kernel)
    client = a_client(etcd, process)
    run(kernel, process, client.put(KEY, b"old"))
    backup = etcd.backup()
    run(kernel, process, client.put(KEY, b"new"))
    etcd.restore(backup)
    known, fresh = run(kernel, process, client.get(KEY)), Client(etcd, process, Network("seed"))
    found = run(kernel, process, fresh.get(KEY))[0]

    assert isinstance(known[0], RestoredBackup)
    assert b"old" == found.value  # type: ignore[attr-defined]
