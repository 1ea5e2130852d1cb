"""The life of a monitored session; each misuse has its sentence."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from asyncmon.runtime.stop_event import StopEvent

__all__ = ["AsyncOnly", "Phase", "SessionClosing"]


class Phase(Enum):
    """Where a session is in its life; the value is what is said to whoever comes at the wrong time."""

    NEW = "The session is not open yet: write `async with session:` or `await session.start()` first."
    OPENING = "The session is still being opened by another task."
    OPEN = "The session is open already."
    CLOSING = "The session is closed: it is just being closed."
    CLOSED = "The session is closed and cannot be used again; make a new one."


class SessionClosing(RuntimeError):
    """What a call gets that comes, or is under way, when its session ends.

    A worker that uses the session of its own coordinator cannot know of the end before: to it this is
    the end, and no failure.

    Args:
        message: the sentence.
        stop: of that coordinator.
    """

    def __init__(self, message: str, stop: StopEvent) -> None:
        super().__init__(message)
        self.stop = stop


class AsyncOnly:
    """Has a sentence for who forgot the ``async`` of ``async with``."""

    def __enter__(self) -> NoReturn:
        raise TypeError(f"A {type(self).__name__} is awaited: write `async with`, not `with`.")

    def __exit__(self, *_exc_info: object) -> None:
        """Never reached; ``with`` looks for it first."""
