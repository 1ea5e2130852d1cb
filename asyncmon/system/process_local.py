"""State that exists once in each process.

It is stored in the current context, whose default is shared by the whole process. A test that runs
several processes of a cluster in one event loop gives the context of each a dict of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_values: dict[Any, Any] = {}

process_values: ContextVar[dict[Any, Any]] = ContextVar("asyncmon_process_values", default=_values)
"""The values of this process, by :class:`ProcessLocal`."""


class ProcessLocal(Generic[T]):
    """A value of each process, made at its first use.

    Args:
        make: makes the value of a process.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    def get(self) -> T:
        """Return the value of this process."""
        values = process_values.get()
        if self not in values:
            values.setdefault(self, self._make())  # atomic, as threads may make one each
        found: T = values[self]
        return found

    def set(self, value: T) -> None:
        """Replace the value of this process."""
        process_values.get()[self] = value
