"""The policy for errors after which a run may succeed: a retry in place, or a new session."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from asyncmon.errors import PREEMPTION
from asyncmon.system import clock
from asyncmon.system.error_groups import is_only
from asyncmon.system.error_text import phrase

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The policy of a monitored session for errors after which a new session may work.

    The first attempt follows at once. From the second failure without progress on there is a pause,
    which doubles each time up to a limit. Progress is a step beyond the highest one that failed: an
    error that comes back at the same place is limited by ``max_attempts``, and raised as itself.

    With ``retries``, a failed step that has changed nothing is first repeated in place, without loss.
    Use it for services that fail now and then::

        MonitoredTrainingSession(program=program, recovery=Recovery(retries=3))

    A recovery restores the last checkpoint, and repeats the failed run as a whole. If it failed after
    its own step was saved, in a listener's ``after_save`` for example, that step is done twice. Data
    that the body feeds by hand is used at least once: after a loss of steps, the body decides what to
    feed again. With :meth:`MonitoredSession.iterate`, each element counts once in the surviving state.

    Attributes:
        errors: the types of errors to recover from.
        retries: how often a step is repeated in place after an error, before the session recovers: with
            the feeds and fetches of its hooks, whose ``before_run`` is not called again. For sessions
            whose failed steps change nothing: of graphs in this process, functions and JAX. 0: not.
        max_attempts: the most attempts without progress; None for no limit.
        first_delay_secs: the pause before the second attempt, and before the first retry. Pauses before
            retries are shortened by up to a half at random.
        max_delay_secs: the longest pause.
        create_timeout_secs: the timeout of one creation of a session, or None. Exceeding it counts as a
            failure.
        repeat_runs: False raises :class:`~asyncmon.errors.RecoveredError` from an interrupted run
            instead of repeating it, so that the body continues with the data that belongs to the
            restored state, in the exact order. Runs with ``hooks=False`` are repeated.

    Example::

        MonitoredSession(creator, recovery=Recovery(max_attempts=5))
    """

    errors: tuple[type[Exception], ...] = PREEMPTION
    retries: int = 0
    max_attempts: int | None = None
    first_delay_secs: float = 0.1
    max_delay_secs: float = 30.0
    create_timeout_secs: float | None = None
    repeat_runs: bool = True

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.retries), int) or self.retries < 0:
            raise ValueError(f"retries must be a whole number, 0 or more, got {self.retries!r}.")
        if self.max_attempts is not None and self.max_attempts < 0:
            raise ValueError(f"max_attempts must be 0 or more, or None, got {self.max_attempts!r}.")
        if self.first_delay_secs < 0 or self.max_delay_secs < 0:
            raise ValueError(
                "first_delay_secs and max_delay_secs must be 0 or more, got "
                f"{self.first_delay_secs!r} and {self.max_delay_secs!r}."
            )

    def delay(self, failures: int) -> float:
        """Return the pause in seconds after a number of failures without progress."""
        if failures <= 1:
            return 0.0
        return min(self.max_delay_secs, self.first_delay_secs * 2.0 ** min(failures - 2, 60))

    def is_over(self, failures: int) -> bool:
        """Return whether the session gives up after a number of failures without progress."""
        return self.max_attempts is not None and failures > self.max_attempts


class Retries:
    """Makes the runs of a session whose failed runs change nothing, with the retries of a policy.

    A stop ends a pause, and the error is raised.
    """

    def __init__(
        self, raw: Any, policy: Recovery, wait_for_stop: Callable[[float], Awaitable[bool]]
    ) -> None:
        self._raw = raw
        self._policy = policy
        self._wait_for_stop = wait_for_stop
        self._random = random.Random(clock.random_seed())

    async def run(self, *args: Any) -> Any:
        """Make a run; repeat it after an error that the policy names."""
        policy = self._policy
        for attempt in range(1, policy.retries + 1):
            try:
                return await self._raw.run(*args)
            except Exception as error:
                if not is_only(error, policy.errors):
                    raise
                pause = policy.delay(attempt + 1) * self._random.uniform(0.5, 1.0)
                logger.warning(
                    "The run of %.100r failed and is repeated in place in %.2g s, attempt %d of %d: %s",
                    args[0], pause, attempt, policy.retries, phrase(error),
                )  # fmt: skip
                if await self._wait_for_stop(pause):
                    raise
        return await self._raw.run(*args)
