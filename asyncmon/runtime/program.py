"""Find the program of an object, and the current program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, cast

from asyncmon.checkpoint import Saver
from asyncmon.checkpoint.variable_selection import take_variables_from
from asyncmon.runtime.graph_program import graph_program, variables_under_construction
from asyncmon.runtime.protocols import Program, ProgramMembers, Session, SessionMembers, step_of
from asyncmon.system.members import members_of, warn_of_misspelled

_current: ContextVar[Program | None] = ContextVar("asyncmon_program", default=None)


def as_program(program: Any = None) -> Program:
    """Return the program of an object. A ``Graph`` is adapted; other objects must be programs.

    Args:
        program: None for the default graph.

    Raises:
        TypeError: the object cannot create a session.
    """
    adapted = graph_program(program)
    if adapted is not None:
        return adapted
    if not callable(getattr(program, "create_session", None)):  # the least that an argument needs
        raise TypeError(f"A program must be a Graph, a FunctionProgram or the like, got {program!r}.")
    warn_of_misspelled("program", program, Program, ProgramMembers)
    return cast("Program", program)


def program_of(session: Any) -> Program:
    """Return the program of a raw session; a session without ``graph`` is its own."""
    return as_program(getattr(session, "graph", session))  # a graph of None is the default graph


def global_step_fetch(session: Session) -> Any:
    """Return the fetch of a global step that other sessions also advance, or None."""
    return step_fetch(session) if members_of(SessionMembers, session).shares_state else None


def step_fetch(session: Session) -> Any:
    """Return the fetch of the global step of a session's program, or None."""
    fetch = members_of(ProgramMembers, as_program(session.graph)).global_step
    return None if fetch is None else fetch()


async def peek_with_step(session: Any, fetches: Any) -> tuple[int | None, Any]:
    """Return the results of a peek, and the global step at which they are; None without steps."""
    if step_of(session) is None:
        return None, await session.peek(fetches)
    fetch = step_fetch(session)
    step, values = await session.peek(["global_step" if fetch is None else fetch, fetches])
    return int(step), values


def current_program() -> Program:
    """Return the program of the session that is being opened, or else the default graph.

    The former holds while hooks' ``begin`` runs.
    """
    return _current.get() or as_program()


def default_saver(program: Program) -> Any:
    """Return the saver of a program that has one, or a ``Saver`` of all its state."""
    make = members_of(ProgramMembers, program).saver
    return Saver(allow_empty=True) if make is None else make()


@contextlib.contextmanager
def program_scope(program: Program) -> Iterator[None]:
    """Make a program the current one in the block, and its graph, if any, the default graph."""
    token = _current.set(program)
    as_default = members_of(ProgramMembers, program).as_default or contextlib.nullcontext
    try:
        with as_default():
            yield
    finally:
        _current.reset(token)


def _variables_under_construction() -> list[str] | None:
    """Return the names of a saver without ``var_list``; None, for all, if the program is no graph."""
    program = _current.get()
    is_other = program is not None and members_of(ProgramMembers, program).graph is None
    return None if is_other else variables_under_construction()


take_variables_from(_variables_under_construction)
