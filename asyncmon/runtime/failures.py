"""The errors of a hook that do not end training: counted, and logged without repetition."""

from __future__ import annotations

import logging

from asyncmon.system.error_text import forget_frames, phrase

logger = logging.getLogger(__name__)


class Failures:
    """The errors of a hook that were counted."""

    __slots__ = ("count", "in_a_row", "last")

    def __init__(self) -> None:
        self.count = 0
        self.in_a_row = 0
        """How many of the last ones had the same type and text."""
        self.last: BaseException | None = None

    def add(self, error: BaseException) -> None:
        """Count an error."""
        is_same = self.last is not None and phrase(self.last) == phrase(error)
        self.in_a_row = self.in_a_row + 1 if is_same else 1
        self.count += 1
        self.last = error

    def log(self, error: BaseException, message: str, *args: object) -> None:
        """Count an error and log it: with its traceback, or only its count if it repeats itself."""
        self.add(error)
        if self.in_a_row == 1:
            logger.error(message, *args, exc_info=error)
        elif self.in_a_row in (10, 100) or self.in_a_row % 1000 == 0:
            again = f"{message} %d times in a row, the same error: %s"
            logger.error(again, *args, self.in_a_row, phrase(error))
        forget_frames(error)  # it is kept for statistics
