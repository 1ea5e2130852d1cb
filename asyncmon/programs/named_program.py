"""What all programs of named steps have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable
from typing import Any, TypeVar

from asyncmon.errors import NotFoundError
from asyncmon.programs.stepped_session import INITIALIZE
from asyncmon.programs.steps import Step

F = TypeVar("F", bound=Callable[..., Any])


class NamedProgram:
    """The base of programs of named steps; see :class:`~asyncmon.runtime.protocols.Program`."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        self.finalized = False
        self._entries: Collection[str] = ()  # the names in the state

    def finalize(self) -> None:
        """Refuse further steps. A second call does nothing."""
        self.finalized = True

    def init_op(self) -> Any:
        """Return the fetch that sets the state to the declared one."""
        return INITIALIZE

    def local_init_op(self) -> None:
        """Return None: there is no state that is not saved."""

    def ready_op(self) -> None:
        """Return None: a session is always ready."""

    def ready_for_local_init_op(self) -> None:
        """Return None: a session is always ready."""

    def summary_op(self) -> None:
        """Return None: a summary hook names its fetches."""

    def has_global_step(self) -> bool:
        """Return True: steps are counted."""
        return True

    def canonical_feed(self, key: Any) -> Hashable:
        """Return a feed's name.

        Raises:
            TypeError: it is no name.
        """
        if not isinstance(key, str):
            raise TypeError(f"The keys of a feed_dict are names of the steps' parameters, got {key!r}.")
        return key

    def describe(self) -> dict[str, Any]:
        """Return the description of this program in checkpoints."""
        return {"type": type(self).__name__, "steps": list(self.steps)}

    def contents(self) -> str:
        """Return the steps and the entries of the state, for errors."""
        return f"the steps {list(self.steps)}, and the entries {list(self._entries)} of the state"

    def _check_addition(self, name: str) -> None:
        if self.finalized:
            raise RuntimeError(f"The program is finalized: the step {name!r} cannot be added any more.")
        if name in self.steps or name in self._entries:
            raise ValueError(f"The name {name!r} is taken already, by a step or an entry of the state.")

    @staticmethod
    def _check_target(target: str) -> None:
        if target:
            raise NotFoundError(
                f"No session factory registered for target {target!r}; expected '' for this process."
            )


class StepsProgram(NamedProgram, ABC):
    """A named program to which steps are added, each a function."""

    def _add_all(self, steps: Any, read_only: Collection[str]) -> None:
        """Add the steps of the constructor."""
        for name, fn in (steps or {}).items():
            self._add(name, fn, read_only=name in read_only)
        if unknown := sorted(set(read_only) - set(self.steps)):
            raise ValueError(f"read_only names no step: {unknown}. The steps are {list(self.steps)}.")

    def _added(self, fn: Callable[..., Any] | None, name: str | None, **options: Any) -> Any:
        """Add a function, or return a decorator that does."""

        def add(fn: F) -> F:
            self._add(name or fn.__name__, fn, **options)
            return fn

        return add if fn is None else add(fn)

    @abstractmethod
    def _add(self, name: str, fn: Callable[..., Any], *, read_only: bool) -> None:
        """Add a step. Subclasses have further options."""
