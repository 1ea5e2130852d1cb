"""The other side of the seam: what the runtime asks of a program, and which one is current."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, cast

from asyncmon.graph.core.build import get_default_graph
from asyncmon.graph.core.graph import Graph
from asyncmon.runtime.graph_program import GraphProgram

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from asyncmon.runtime.protocol import Session

__all__ = ["Program", "as_program", "current_program", "program_scope"]


class Program(Protocol):
    """What can be run. A session is one running instance of it.

    The methods named like operations of a scaffold give fetches of this program for that role, or
    None where there is nothing to do. A program may have more, which are used where they are there:
    ``saver()``, the one to use by default; ``as_default()``, a context manager for building;
    ``start_producers(session, coord)``, called for each created session before the hooks are told;
    ``describe()``, which goes into checkpoints; ``unfinalize()``, called when a monitored session has
    ended that found the program not finalized.
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


def as_program(program: Any = None) -> Program:
    """Return the program that an object stands for: a ``Graph`` is adapted, others are programs.

    Args:
        program: None for the default graph.

    Raises:
        TypeError: it can create no session.
    """
    program = get_default_graph() if program is None else program
    if isinstance(program, Graph):
        return GraphProgram(program)
    if not callable(getattr(program, "create_session", None)):
        raise TypeError(f"A program must be a Graph, a FunctionProgram or the like, got {program!r}.")
    return cast("Program", program)


def current_program() -> Program:
    """Return the program whose session is being prepared, while hooks' ``begin`` runs.

    Elsewhere it is the default graph.
    """
    return _current.get() or as_program()


@contextlib.contextmanager
def program_scope(program: Program) -> Iterator[None]:
    """Make a program the current one inside the block, and its graph, if it has one, the default."""
    token = _current.set(program)
    as_default = getattr(program, "as_default", contextlib.nullcontext)
    try:
        with as_default():
            yield
    finally:
        _current.reset(token)
