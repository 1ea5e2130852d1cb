"""Errors reported from beside the steps: the first one is raised, none is lost."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Reports", "as_exception", "current_task_name"]

logger = logging.getLogger(__name__)


class Reports:
    """What a coordinator was told of. Written by any thread: each change is a single append or store.

    Args:
        clean_types: errors of these types are kept but not raised.
    """

    def __init__(self, clean_types: Iterable[type[BaseException]]) -> None:
        self.clean_types: tuple[type[BaseException], ...] = tuple(clean_types)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.all: list[BaseException] = []
        """Every error, in order."""
        self.primary: BaseException | None = None
        """The first error that is not of a clean type."""

    def add(self, error: BaseException, source: str | None) -> None:
        """Keep and log an error; one that is known already is not kept twice.

        Args:
            error: the first one becomes the primary, later ones are attached to it as notes.
            source: whose error it is, for the log.
        """
        if any(error is known for known in self.all):
            return
        self.all.append(error)
        where = f" (from {source})" if source else ""
        if isinstance(error, self.clean_types):
            logger.info("Error reported to Coordinator: %s, %s%s", type(error), error, where)
        elif self.primary is None:
            self.primary = error
            logger.info(
                "Error reported to Coordinator: %s, %s%s", type(error), error, where, exc_info=error
            )
        else:
            logger.error(
                "Error reported to Coordinator after the first: %s, %s%s",
                type(error), error, where, exc_info=error,
            )  # fmt: skip
            self.primary.add_note(f"Then, before the end: {describe(error, source)}")


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
    return f"{type(error).__name__}: {error}" + (f" in {source}" if source else "")


def current_task_name() -> str | None:
    """Return how to call the running task in a message; None outside of tasks."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return f"task {task.get_name()!r}" if task is not None else None
