"""Errors reported to a coordinator: the first one is primary, the others are attached to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from asyncmon.runtime.stop.origin import stop_iteration_of
from asyncmon.system.error_text import add_note, phrase, text_of
from asyncmon.system.forgotten_await import note_use_of_coroutine

logger = logging.getLogger(__name__)


class ErrorLog:
    """The errors of one coordinator. Thread-safe: each change is one append or store.

    Args:
        clean_types: errors of these types, and cancellations, are kept but not raised.

    Raises:
        TypeError: a member is not an exception type.
    """

    def __init__(self, clean_types: Iterable[type[BaseException]]) -> None:
        types: tuple[Any, ...] = () if isinstance(clean_types, type) else tuple(clean_types)
        wrong = [one for one in types if not (isinstance(one, type) and issubclass(one, BaseException))]
        if wrong or isinstance(clean_types, type):
            raise TypeError(
                "clean_stop_exception_types takes a collection of exception types, such as "
                f"(OutOfRangeError,), got {clean_types!r}."
            )
        self._clean_types: tuple[type[BaseException], ...] = (*types, asyncio.CancelledError)
        self.clear()

    def clear(self) -> None:
        """Forget all errors."""
        self.all: list[BaseException] = []
        """All errors, in order."""
        self.primary: BaseException | None = None
        """The first error that is not of a clean type."""

    def is_clean(self, error: BaseException) -> bool:
        """Return whether an error, or the ``StopIteration`` it stands for, is of a clean type."""
        if isinstance(error, BaseExceptionGroup) and not isinstance(error, self._clean_types):
            return all(map(self.is_clean, error.exceptions))
        return isinstance(error, self._clean_types) or isinstance(
            stop_iteration_of(error), self._clean_types
        )

    def add(self, error: BaseException, source: str | None) -> None:
        """Keep and log an error, once.

        Args:
            error: the first one becomes the primary error, later ones are attached to it as notes.
            source: its origin, for the log.
        """
        if any(error is known for known in self.all):
            return
        clean = self.is_clean(error)
        error = _raisable(error, source, clean=clean)
        self.all.append(error)
        # Taken from the list, whose order is the same for all threads.
        first = next((one for one in self.all if not self.is_clean(one)), None)
        self.primary = first
        note_use_of_coroutine(error)  # not earlier: the text of an error may run any code
        kind, text, where = type(error), text_of(error), f" (from {source})" if source else ""
        if clean or first is None or error is first:
            shown = None if clean or first is None else error
            logger.info("Error reported to Coordinator: %s, %s%s", kind, text, where, exc_info=shown)
        else:
            logger.error(
                "Error reported to Coordinator after the first: %s, %s%s",
                kind, text, where, exc_info=error,
            )  # fmt: skip
            add_note(first, f"Then, before the end: {describe(error, source)}")


def _raisable(error: BaseException, source: str | None, *, clean: bool) -> BaseException:
    """Return the error; for a ``StopIteration``, which coroutines cannot raise, a ``RuntimeError``."""
    if clean or not isinstance(error, StopIteration):
        return error
    raisable = RuntimeError(
        "The end of the data is OutOfRangeError for a coordinator, or what clean_stop_exception_types "
        f"names; {source or 'a caller'} raised StopIteration"
    )
    raisable.__cause__ = error
    return raisable


def as_exception(ex: Any) -> BaseException | None:
    """Return an exception, or the exception of a ``sys.exc_info()``.

    Raises:
        TypeError: ``ex`` is neither of these, nor None.
    """
    if isinstance(ex, tuple) and len(ex) == 3:
        ex = ex[1]
    if ex is None or isinstance(ex, BaseException):
        return ex
    raise TypeError(f"request_stop takes an exception, a sys.exc_info() or None, got {ex!r}.")


def describe(error: BaseException, source: str | None) -> str:
    """Return a phrase about an error and its source."""
    return phrase(error) + (f" in {source}" if source else "")
