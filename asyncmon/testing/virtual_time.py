"""An event loop whose clock jumps to the next timer when the loop is idle."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

import anyio

from asyncmon.system.error_text import where_it_waits

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH = 1_700_000_000.0
"""The initial ``wall_time()``, the same in every run: 2023-11-14 22:13:20 UTC."""

_POLL_SECS = 0.01  # real time between two checks for threads that end without waking the loop


class DeadlockError(RuntimeError):
    """No timer, no thread and no I/O is left that could wake a task.

    Also raised when virtual time was held for longer than the loop's ``patience`` without an event.
    The message lists each task and the line at which it waits.
    """


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop with virtual time: an hour of timers takes milliseconds.

    ``time()`` starts at 0. When no callback is ready, it jumps to the next timer. Time does not advance
    while real work is in flight: a call in a worker thread (``anyio.to_thread``, ``asyncio.to_thread``,
    ``run_in_executor``, ``aiofiles``), a non-daemon thread started after the loop was made, a
    subprocess, an open connection (not a listening socket), or a block of :meth:`hold`. Without timers
    and without work in flight the loop raises :class:`DeadlockError` instead of hanging.

    Args:
        epoch: the initial ``wall_time()``, in seconds since 1970.
        patience: the longest real time, in seconds, to wait for an event of work in flight.

    Example::

        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(asyncio.sleep(3600))
    """

    def __init__(self, epoch: float = EPOCH, patience: float = 10.0) -> None:
        self._nanoseconds = 0  # an integer, so that 0.1 + 0.2 is 0.3 and timers do not drift
        self._epoch = epoch
        self._holds = 0
        self._calls: set[asyncio.Future[Any]] = set()
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._earlier_threads = set(threading.enumerate())
        self._virtual_selector = _VirtualSelector(self, patience)
        super().__init__(self._virtual_selector)
        self._own_descriptors = frozenset(self._virtual_selector.get_map())  # the loop's wake-up pipe

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._nanoseconds / 1e9

    def wall_time(self) -> float:
        """Return virtual seconds since 1970. :func:`asyncmon.system.clock.wall` uses it."""
        return self._epoch + self.time()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold virtual time during the block, for work that the loop cannot detect."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def spend(self, seconds: float) -> None:
        """Advance time within the running callback, as if it computed. Timers run late."""
        self._nanoseconds += max(1, round(seconds * 1e9))

    async def wait_idle(self) -> None:
        """Wait until no callback is ready and nothing is in flight. Time does not advance."""
        waiter = self.create_future()
        self._idle_waiters.append(waiter)
        await waiter

    def in_flight(self) -> list[str]:
        """Return descriptions of the work that holds virtual time now."""
        found = ["a block of hold()"] * bool(self._holds)
        found += ["a call in an executor"] * len(self._calls)
        found += [
            f"thread {thread.name!r}" for thread in threading.enumerate() if self._is_busy(thread)
        ]
        found += [
            f"a connection or pipe (descriptor {key.fd})"
            for key in self._virtual_selector.get_map().values()
            if key.fd not in self._own_descriptors and not _is_listening(key.fd)
        ]
        return found

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Call a function in a thread, as asyncio does, and hold virtual time until it returns."""
        call = super().run_in_executor(executor, func, *args)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def _is_busy(self, thread: threading.Thread) -> bool:
        idle_workers = getattr(thread, "idle_workers", None)
        if idle_workers is not None:  # a worker of anyio, which belongs to one loop
            mine = getattr(thread, "loop", None) is self
            return mine and thread not in idle_workers and not getattr(thread, "stopping", False)
        if thread.name.startswith("asyncio-waitpid-"):  # Python 3.11 waits for a subprocess in it
            return True
        if is_pool_worker(thread) or type(thread).__module__.startswith("concurrent.futures."):
            return False  # the second: a process pool's manager
        return not thread.daemon and thread not in self._earlier_threads

    def _wake_idle_waiter(self) -> bool:
        while self._idle_waiters:
            waiter = self._idle_waiters.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False

    def _deadlock(self, reason: str) -> DeadlockError:
        lines = [f"  {task.get_name()!r}: {where_it_waits(task)}" for task in asyncio.all_tasks(self)]
        tasks = "\n".join(sorted(lines)) or "  (there is no task)"
        return DeadlockError(f"{reason} at virtual time {self.time():g} s. The tasks:\n{tasks}")


class _VirtualSelector(selectors.DefaultSelector):
    """A selector that polls, and advances the clock when there is nothing to wait for."""

    def __init__(self, loop: VirtualTimeLoop, patience: float) -> None:
        super().__init__()
        self._loop = loop
        self._patience = patience

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        loop = self._loop
        deadline = time.monotonic() + self._patience
        while True:
            # First in_flight(): work that ends before select() has written its wake-up by then.
            in_flight = loop.in_flight()
            events = super().select(_POLL_SECS if in_flight else 0)
            if events:
                return events
            if not in_flight:
                break
            if time.monotonic() > deadline:
                held = ", ".join(in_flight)
                raise loop._deadlock(
                    f"Time stood still for {self._patience:g} real s because of {held},"
                )
        if loop._wake_idle_waiter():
            return []
        if timeout is None:
            raise loop._deadlock("Nothing is scheduled and nothing is in flight")
        loop.spend(timeout)
        return []


async def wait_all_tasks_blocked() -> None:
    """Wait until every other task is blocked and no worker thread is busy.

    On a :class:`VirtualTimeLoop` this is exact and takes no time. On another loop it is
    :func:`anyio.wait_all_tasks_blocked`, which polls every 0.1 s.

    Example::

        waiting = asyncio.create_task(coord.wait_for_stop())
        await wait_all_tasks_blocked()  # it waits now
        coord.request_stop()
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualTimeLoop):
        await loop.wait_idle()
    else:
        await anyio.wait_all_tasks_blocked()


def run(
    main: Coroutine[Any, Any, T], *, loop_factory: Callable[[], VirtualTimeLoop] = VirtualTimeLoop
) -> T:
    """Run a coroutine in virtual time, like :func:`asyncio.run`.

    Example::

        def test_an_hour_passes():
            assert testing.run(sleep_an_hour()) is None
    """
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)


def is_pool_worker(thread: threading.Thread) -> bool:
    """Return whether a thread is a worker of concurrent.futures. The loop tracks its calls itself."""
    pools = sys.modules.get("concurrent.futures.thread")
    return pools is not None and thread in getattr(pools, "_threads_queues", ())


def _is_listening(descriptor: int) -> bool:
    try:
        connection = socket.socket(fileno=descriptor)  # no duplicate: that of a pipe would keep it open
    except OSError:  # a pipe, a process: no socket
        return False
    try:
        return bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:  # it is closed
        return False
    finally:
        connection.detach()
