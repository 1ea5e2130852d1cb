"""The number of torch's threads, one for the process, while sessions that give a number are open."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import torch

logger = logging.getLogger(__name__)


class _Seen(threading.local):
    restored: int | None = None


class ThreadBudget:
    """The number of threads of one torch operation in this process.

    The first open session that gives a number sets it, and it stays until the last such session is
    closed, which restores the number before.
    """

    def __init__(self) -> None:
        self._count = self._before = 0
        self._users = 0
        self._restored = 0  # how often the number before was restored
        self._seen = _Seen()

    def take(self, count: int) -> Callable[[], None]:
        """Set the number, unless another session has. Return a function that gives it back, once."""
        if not self._users:
            self._count, self._before = count, torch.get_num_threads()
            # It holds for this thread, that of the event loop, and for threads that start later. A
            # thread of another session that computes already keeps its own.
            torch.set_num_threads(count)
        elif count != self._count:
            logger.warning(
                "intra_op_parallelism_threads=%d has no effect: the threads of torch are shared by the "
                "process, and an open session has set %d. Give all sessions of a service one number.",
                count,
                self._count,
            )
        self._users += 1
        is_given_back = False

        def give_back() -> None:
            nonlocal is_given_back
            if is_given_back:
                return
            is_given_back = True
            self._users -= 1
            if not self._users:
                torch.set_num_threads(self._before)
                self._restored += 1

        return give_back

    def follow(self) -> None:
        """Restore the number of a worker thread that has started before the last restore."""
        seen, restored = self._seen, self._restored
        if seen.restored != restored:
            if seen.restored is not None:
                torch.set_num_threads(self._count if self._users else self._before)
            seen.restored = restored


thread_budget = ThreadBudget()
