"""The other side of the seam: what the runtime asks of a program, and which one is current."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from asyncmon.runtime.protocol import Session

__all__ = ["Program", "current_program", "program_scope"]


class Program(Protocol):
    """What can be run. A session is one running instance of it.

    The methods named like operations of a scaffold give fetches of this program for that role, or
    None where there is nothing to do.
    """

    @property
    def finalized(self) -> bool:
        """Whether nothing can be added any more."""

    def finalize(self) -> None:
        """Refuse additions from now on. A second call does nothing."""

    def create_session(self, target: str = "", config: Any = None) -> Session:
        """Return a raw session, not initialised."""

    def init_op(self) -> Any:
        """What initialises the state."""

    def local_init_op(self) -> Any:
        """What initialises state that is not saved."""

    def ready_op(self) -> Any:
        """What gives the names of state that is not initialised."""

    def ready_for_local_init_op(self) -> Any:
        """What gives the names of state that ``local_init_op`` needs and that is not initialised."""

    def summary_op(self) -> Any:
        """What gives all summaries, serialised."""

    def has_global_step(self) -> bool:
        """Whether sessions of this program count global steps."""

    def canonical_feed(self, key: Any) -> Hashable:
        """Return the same value for each way of naming the same thing to feed."""


_current: ContextVar[Program | None] = ContextVar("asyncmon_program", default=None)


def current_program() -> Program | None:
    """Return the program whose session is being prepared, while hooks' ``begin`` runs."""
    return _current.get()


@contextlib.contextmanager
def program_scope(program: Program | None) -> Iterator[None]:
    """Make a program the current one inside the block."""
    token = _current.set(program)
    try:
        yield
    finally:
        _current.reset(token)
