"""How a session recovers: from which errors, how often, after what pause."""

from __future__ import annotations

from dataclasses import dataclass

from asyncmon.errors import PREEMPTION

__all__ = ["Recovery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The policy of a monitored session for errors that a new session may mend.

    The first attempt follows at once; from the second failure in a row on there is a pause, which
    doubles each time up to a limit. A run that succeeds ends the row.

    The run that failed is repeated whole. Where it failed after its own step was saved, in a listener's
    ``after_save`` for example, that step is done twice.

    Attributes:
        errors: the types of error that are recovered from.
        max_attempts: how many failures in a row are followed by another attempt; None for no limit.
        first_delay_secs: the pause before the second attempt.
        max_delay_secs: the longest pause.
        create_timeout_secs: how long one creation of a session may take, or None. Longer counts as
            a failure.

    Example::

        MonitoredSession(creator, recovery=Recovery(max_attempts=5))
    """

    errors: tuple[type[Exception], ...] = PREEMPTION
    max_attempts: int | None = None
    first_delay_secs: float = 0.1
    max_delay_secs: float = 30.0
    create_timeout_secs: float | None = None

    def __post_init__(self) -> None:
        if self.max_attempts is not None and self.max_attempts < 0:
            raise ValueError(f"max_attempts must be 0 or more, or None, got {self.max_attempts!r}.")
        if self.first_delay_secs < 0 or self.max_delay_secs < 0:
            raise ValueError(
                "first_delay_secs and max_delay_secs must be 0 or more, got "
                f"{self.first_delay_secs!r} and {self.max_delay_secs!r}."
            )

    def delay(self, failures: int) -> float:
        """Return the pause in seconds after so many failures in a row."""
        if failures <= 1:
            return 0.0
        return min(self.max_delay_secs, self.first_delay_secs * 2.0 ** min(failures - 2, 60))

    def is_over(self, failures: int) -> bool:
        """Return whether the session gives up after so many failures in a row."""
        return self.max_attempts is not None and failures > self.max_attempts
