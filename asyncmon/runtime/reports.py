"""Errors reported from beside the steps: the first one is raised, none is lost."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from asyncmon.error_text import add_note, phrase, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Reports", "as_exception", "current_task_name", "describe", "is_pep_479"]

logger = logging.getLogger(__name__)


class Reports:
    """What a coordinator was told of. Written by any thread: each change is a single append or store.

    Args:
        clean_types: errors of these types are kept but not raised, nor is a cancellation.

    Raises:
        TypeError: there is something else than types of exceptions.
    """

    def __init__(self, clean_types: Iterable[type[BaseException]]) -> None:
        alone = isinstance(clean_types, type)
        types = () if alone else tuple(clean_types)
        if alone or not all(map(_is_exception_type, types)):
            raise TypeError(
                "clean_stop_exception_types takes a collection of exception types, such as "
                f"(OutOfRangeError,), got {clean_types!r}."
            )
        self._clean_types: tuple[type[BaseException], ...] = (*types, asyncio.CancelledError)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.all: list[BaseException] = []
        """Every error, in order."""
        self.primary: BaseException | None = None
        """The first error that is not of a clean type."""

    def is_clean(self, error: BaseException) -> bool:
        """Return whether an error is of a clean type, a ``StopIteration`` in its disguise too."""
        return isinstance(error, self._clean_types) or (
            is_pep_479(error) and isinstance(error.__cause__, self._clean_types)
        )

    def add(self, error: BaseException, source: str | None) -> None:
        """Keep and log an error; one that is known already is not kept twice.

        Args:
            error: the first one becomes the primary, later ones are attached to it as notes.
            source: whose error it is, for the log.
        """
        if any(error is known for known in self.all):
            return
        error = _raisable(error, source, clean=self.is_clean(error))
        self.all.append(error)
        # Asked of the list, where it has its place whatever other threads append at this moment.
        first = next((one for one in self.all if not self.is_clean(one)), None)
        self.primary = first
        where = f" (from {source})" if source else ""
        if first is None or self.is_clean(error):
            logger.info("Error reported to Coordinator: %s, %s%s", type(error), text_of(error), where)
        elif error is first:
            logger.info(
                "Error reported to Coordinator: %s, %s%s",
                type(error),
                text_of(error),
                where,
                exc_info=error,
            )
        else:
            logger.error(
                "Error reported to Coordinator after the first: %s, %s%s",
                type(error), text_of(error), where, exc_info=error,
            )  # fmt: skip
            add_note(first, f"Then, before the end: {describe(error, source)}")


def is_pep_479(error: BaseException | None) -> bool:
    """Return whether this is the ``RuntimeError`` that a ``StopIteration`` becomes in a coroutine."""
    cause = error.__cause__ if isinstance(error, RuntimeError) else None
    return (
        error is not None
        and isinstance(cause, StopIteration | StopAsyncIteration)
        and text_of(error).endswith(f" raised {type(cause).__name__}")
    )


def _raisable(error: BaseException, source: str | None, *, clean: bool) -> BaseException:
    """Return what stands for a ``StopIteration``, which no coroutine can raise; others as they are."""
    if clean or not isinstance(error, StopIteration):
        return error
    disguised = RuntimeError(
        "The end of the data is OutOfRangeError for a coordinator, or what clean_stop_exception_types "
        f"names; {source or 'somebody'} raised StopIteration"
    )
    disguised.__cause__ = error
    return disguised


def _is_exception_type(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, BaseException)


def as_exception(ex: Any) -> BaseException | None:
    """Return the exception of an exception or a ``sys.exc_info()``.

    Raises:
        TypeError: it is neither, nor None.
    """
    if isinstance(ex, tuple) and len(ex) == 3:
        ex = ex[1]
    if ex is None or isinstance(ex, BaseException):
        return ex
    raise TypeError(f"request_stop takes an exception, a sys.exc_info() or None, got {ex!r}.")


def describe(error: BaseException, source: str | None) -> str:
    """Return one phrase about an error."""
    return phrase(error) + (f" in {source}" if source else "")


def current_task_name() -> str | None:
    """Return how to call the running task in a message; None outside of tasks."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return f"task {task.get_name()!r}" if task is not None else None
