"""Virtual time: one queue of events, and an event loop for each simulated process.

A process runs the agent's and the commands' real coroutines. Its loop is a face of the one queue,
so a process can be stopped, slowed, or killed between any two of its steps, and its clock may run
at another rate than the world's. Nothing here is random: equal times run in the order in which they
were asked for.
"""

import asyncio
import heapq
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

_KILL_STEPS = 5000


class Event:
    """Something that is to happen."""

    __slots__ = ("args", "epoch", "is_cancelled", "is_step", "process", "run", "when")

    def __init__(
        self, when: float, process: "Process | None", run: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self.when = when
        self.process = process
        self.epoch = process.epoch if process else 0
        self.run = run
        self.args = args
        self.is_cancelled = False
        self.is_step = False  # of a task or a future, which must take it to end

    def cancel(self) -> None:
        """Have it not happen."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Whether it was cancelled; asyncio asks."""
        return self.is_cancelled


class Kernel:
    """The queue."""

    def __init__(self) -> None:
        self.now = 0.0
        self.count = 0  # events that happened
        self.after_each: Callable[[], None] = lambda: None
        self.problem: BaseException | None = None  # of a task that failed
        self._ready: deque[Event] = deque()
        self._later: list[tuple[float, int, Event]] = []
        self._number = 0

    def soon(self, process: "Process | None", run: Callable[..., Any], *args: Any) -> Event:
        """Have *run* called now, after what is to be called now already."""
        event = Event(self.now, process, run, args)
        self._ready.append(event)
        return event

    def after(
        self, delay_s: float, process: "Process | None", run: Callable[..., Any], *args: Any
    ) -> Event:
        """Have *run* called in *delay_s*."""
        return self.at(self.now + max(0.0, delay_s), process, run, *args)

    def at(
        self, when: float, process: "Process | None", run: Callable[..., Any], *args: Any
    ) -> Event:
        """Have *run* called at a time; what is asked for the same time keeps its order."""
        event = Event(when, process, run, args)
        self._number += 1
        heapq.heappush(self._later, (event.when, self._number, event))
        return event

    def give(self, held: list[Event]) -> None:
        """Have what came to a process that was stopped happen now."""
        self._ready.extend(held)

    def run_until(self, end_s: float, *, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen up to *end_s*, or until *is_over*."""
        outer = _get_running_loop()
        try:
            self._run_until(end_s, is_over)
        finally:
            _set_running_loop(outer)

    def _run_until(self, end_s: float, is_over: Callable[[], bool]) -> None:
        while not is_over():
            if self._ready:
                event = self._ready.popleft()
            elif self._later and self._later[0][0] <= end_s:
                event = heapq.heappop(self._later)[2]
                self.now = event.when
            else:
                self.now = end_s
                return
            if not event.is_cancelled:
                self._happen(event)

    def _happen(self, event: Event) -> None:
        process = event.process
        if process:
            if event.epoch != process.epoch or not process.is_alive:
                return
            if process.is_paused:
                process.held.append(event)
                return
            _set_running_loop(process.loop)
        else:
            _set_running_loop(None)
        self.count += 1
        event.run(*event.args)
        if self.problem:
            problem, self.problem = self.problem, None
            raise problem
        self.after_each()

    def end(self, process: "Process") -> None:
        """Let a process that can do nothing any more clear up: its tasks are cancelled."""
        outer = _get_running_loop()
        _set_running_loop(process.loop)
        for _ in range(_KILL_STEPS):
            tasks = [task for task in process.tasks if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self._let_finish(process)
        else:
            raise RuntimeError(f"{process.name} does not end: {tasks}")
        self.problem = None
        process.tasks.clear()
        _set_running_loop(outer)

    def _let_finish(self, process: "Process") -> None:
        for _ in range(_KILL_STEPS):
            mine = [event for event in self._ready if event.process is process]
            if not mine:
                return
            self._ready = deque(event for event in self._ready if event.process is not process)
            for event in mine:
                if event.is_step and not event.is_cancelled:
                    event.run(*event.args)
        raise RuntimeError(f"{process.name} goes on and on")


class Process:
    """A program that runs on some machine.

    Args:
        kernel: The world's time.
        name: For the transcript.
        rate: Seconds of its clock in one of the world's.
    """

    def __init__(self, kernel: Kernel, name: str, *, rate: float = 1.0) -> None:
        self.kernel = kernel
        self.name = name
        self.rate = rate
        self.epoch = 0
        self.is_alive = False
        self.is_paused = False
        self.held: list[Event] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.loop: Any = Loop(self)  # `asyncio.AbstractEventLoop`, as far as it is used
        self.on_pause: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None
        self.on_death: Callable[[], None] = lambda: None

    @property
    def is_running(self) -> bool:
        """Whether it does something."""
        return self.is_alive and not self.is_paused

    def clock(self) -> float:
        """Return its monotonic clock."""
        return self.kernel.now * self.rate

    def start(self) -> None:
        """Begin to live."""
        self.is_alive = True

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine; what it raises breaks the history."""
        task: asyncio.Task[Any] = self.loop.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and task.exception():
            self.kernel.problem = task.exception()

    def after(self, delay_s: float, run: Callable[..., Any], *args: Any) -> Event:
        """Have *run* called after *delay_s* of its own clock."""
        return self.kernel.after(delay_s / self.rate, self, run, *args)

    def kill(self) -> None:
        """End it, as by SIGKILL: nothing of it has any effect from now on."""
        if not self.is_alive:
            return
        self.is_alive = self.is_paused = False
        self.kernel.give(self.held)
        self.held = []
        self.on_death()
        self.kernel.end(self)
        self.epoch += 1

    def pause(self) -> None:
        """Stop it between two of its steps."""
        if self.is_running:
            self.is_paused = True
            self.on_pause()

    def resume(self) -> None:
        """Let it go on, with all that came to it meanwhile."""
        if not self.is_paused:
            return
        self.is_paused = False
        self.kernel.give(self.held)
        self.held = []
        self.on_resume()


class Loop:
    """A process's event loop, as far as its code uses one; asyncio asks for no more than that."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._kernel = process.kernel
        self.executor_s: Callable[[], float] = lambda: 0.0

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Have it called now."""
        event = self._kernel.soon(self._process, callback, *args)
        event.is_step = True
        return event

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Have it called in *delay* of the process's clock."""
        return self._process.after(delay, callback, *args)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Have it called when the process's clock shows *when*."""
        return self._process.after(when - self.time(), callback, *args)

    def time(self) -> float:
        """Return the process's clock."""
        return self._process.clock()

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of this loop."""
        future: asyncio.Future[Any] = asyncio.Future(loop=self)  # type: ignore[arg-type]
        return future

    def create_task(self, coro: Any, **_named: Any) -> "asyncio.Task[Any]":
        """Return a task of this process; it dies with it."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self)  # type: ignore[arg-type]
        tasks = self._process.tasks
        if len(tasks) > 40:
            tasks[:] = [each for each in tasks if not each.done()]
        tasks.append(task)
        return task

    def run_in_executor(
        self, _executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Do what a thread would do, in one go, after the time that it takes."""
        future = self.create_future()

        def work() -> None:
            if future.done():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  it is the future's
                future.set_exception(error)

        self._process.after(self.executor_s(), work)
        return future

    def get_debug(self) -> bool:
        """Say no."""
        return False

    def is_running(self) -> bool:
        """Say yes."""
        return True

    def is_closed(self) -> bool:
        """Say no."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Have an exception that nobody took break the history."""
        self._kernel.problem = context.get("exception")
