"""Threads that a program started itself and registers with a coordinator."""

from __future__ import annotations

import threading
from typing import Any

from asyncmon.runtime.tasks import TaskSet
from asyncmon.system.daemon_executor import DaemonExecutor


class ForeignThreads:
    """The registered threads of a coordinator. They end by themselves: a thread cannot be cancelled."""

    def __init__(self) -> None:
        self._threads: dict[threading.Thread, Any] = {}  # with the task that waits for its end

    def register(self, thread: threading.Thread) -> None:
        """Remember a thread, started or not."""
        self._threads.setdefault(thread, None)

    def wait_in(self, tasks: TaskSet) -> None:
        """Wait for each thread that runs in a task of its own."""
        for thread, waiter in self._threads.items():
            if thread.is_alive() and (waiter is None or waiter.done()):
                self._threads[thread] = tasks.start(
                    _ended, (thread,), thread.name, cancel_on_stop=False, restart=0
                )

    def alive(self) -> list[str]:
        """Return the names of those that run still."""
        return sorted(thread.name for thread in self._threads if thread.is_alive())


async def _ended(thread: threading.Thread) -> None:
    """Wait until a thread has ended. Cancelled, it leaves the thread as it is."""
    await DaemonExecutor(f"joining {thread.name}").call(thread.join)
