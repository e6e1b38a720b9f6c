import threading

import pytest

from vctl_agent.engines.torch.generate import Piece
from vctl_agent.engines.torch.sampling import Token
from vctl_agent.engines.torch.scheduler import Job, Scheduler

pytestmark = pytest.mark.torch


class Script:
    """Stands in for a generation: some steps of prefill, then tokens; or a fault."""

    def __init__(self, log, name, *, prefill=0, tokens=1, fault=None):
        self.log, self.name, self.fault = log, name, fault
        self.prefill, self.tokens = prefill, tokens

    def step(self):
        self.log.append(self.name)
        if self.fault:
            raise self.fault
        if self.prefill:
            self.prefill -= 1
            return None
        self.tokens -= 1
        return Piece(Token(65, None, ()), "A", None if self.tokens else "length", 0)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def job(script):
    emitted: list[Piece | Exception] = []
    return Job(script, emitted.append), emitted


def test_a_short_request_is_not_held_up_by_a_long_one():
    scheduler = Scheduler(max_running=8)
    steps: list[str] = []
    long, _ = job(Script(steps, "long", tokens=50))
    short, emitted = job(Script(steps, "short", prefill=1, tokens=2))
    scheduler.submit(long)
    scheduler.round()
    scheduler.submit(short)
    for _ in range(3):
        assert scheduler.round() == 0
    assert steps == ["long"] + ["long", "short"] * 3
    assert [piece.finish_reason for piece in emitted] == [None, "length"]


def test_an_errand_is_done_between_steps():
    scheduler = Scheduler(max_running=8)
    steps: list[str] = []
    scheduler.submit(job(Script(steps, "one", tokens=2))[0])
    scheduler.round()
    scheduler.between_steps(lambda: steps.append("errand"))
    scheduler.round()
    scheduler.round()
    assert steps == ["one", "errand", "one"]


def test_an_errand_wakes_a_thread_that_has_nothing_to_do():
    scheduler = Scheduler(max_running=8)
    scheduler.start()
    done = threading.Event()
    scheduler.between_steps(done.set)
    assert done.wait(10)
    scheduler.close()


def test_no_job_means_nothing_to_wait_for():
    scheduler = Scheduler(max_running=1)
    steps: list[str] = []
    assert scheduler.round() is None
    scheduler.submit(job(Script(steps, "one"))[0])
    assert scheduler.round() is None
    assert steps == ["one"]


def test_those_over_the_limit_wait_for_room():
    scheduler = Scheduler(max_running=1)
    steps: list[str] = []
    for name in ("one", "two"):
        scheduler.submit(job(Script(steps, name, tokens=2))[0])
    while scheduler.round() is not None:
        pass
    scheduler.round()
    scheduler.round()
    assert steps == ["one", "one", "two", "two"]


def test_a_cancelled_job_takes_no_further_step():
    scheduler = Scheduler(max_running=2)
    steps: list[str] = []
    cancelled, emitted = job(Script(steps, "cancelled", tokens=9))
    scheduler.submit(cancelled)
    scheduler.round()
    scheduler.cancel(cancelled)
    assert scheduler.round() is None
    assert (len(steps), len(emitted)) == (1, 1)


def test_a_fault_ends_its_own_job_only():
    scheduler = Scheduler(max_running=2)
    steps: list[str] = []
    fault = RuntimeError("broken")
    bad, heard = job(Script(steps, "bad", fault=fault))
    good, emitted = job(Script(steps, "good", tokens=2))
    scheduler.submit(bad)
    scheduler.submit(good)
    scheduler.round()
    scheduler.round()
    assert heard == [fault]
    assert [piece.finish_reason for piece in emitted] == [None, "length"]


def test_a_delay_paces_each_request_by_itself():
    clock = Clock()
    steps: list[str] = []
    scheduler = Scheduler(max_running=2, token_delay_s=1.0, clock=clock)
    scheduler.submit(job(Script(steps, "one", tokens=3))[0])
    assert scheduler.round() == 1.0
    clock.now = 0.5
    scheduler.submit(job(Script(steps, "two", tokens=3))[0])
    assert scheduler.round() == 0.5
    assert scheduler.round() == 0.5
    clock.now = 1.0
    scheduler.round()
    assert steps == ["one", "two", "one"]


def test_the_thread_takes_jobs_and_ends():
    scheduler = Scheduler(max_running=2)
    steps: list[str] = []
    ended = threading.Event()
    scheduler.start()
    assert scheduler.is_alive()
    scheduler.submit(Job(Script(steps, "one"), lambda _: ended.set()))
    assert ended.wait(5)
    scheduler.close()
    assert not scheduler.is_alive()
    assert steps == ["one"]
