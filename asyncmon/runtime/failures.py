"""The errors of a hook that do not end training: counted, and logged without repetition."""

from __future__ import annotations

import logging

from asyncmon.system.error_text import phrase

logger = logging.getLogger(__name__)


class Failures:
    """The errors of a hook that were counted."""

    __slots__ = ("count", "in_a_row", "last")

    def __init__(self) -> None:
        self.count = 0
        self.in_a_row = 0
        """How many of the last ones had the same type and text."""
        self.last: str | None = None
        """The last one in words: its frames would keep the data of the hook and of its session."""

    def add(self, error: BaseException) -> None:
        """Count an error."""
        text = phrase(error)
        self.in_a_row = self.in_a_row + 1 if text == self.last else 1
        self.count += 1
        self.last = text

    def log(self, error: BaseException, message: str, *args: object) -> None:
        """Count an error and log it: with its traceback, or only its count if it repeats itself."""
        self.add(error)
        if self.in_a_row == 1:
            logger.error(message, *args, exc_info=error)
        elif self.in_a_row in (10, 100) or self.in_a_row % 1000 == 0:
            again = f"{message} %d times in a row, the same error: %s"
            logger.error(again, *args, self.in_a_row, phrase(error))
