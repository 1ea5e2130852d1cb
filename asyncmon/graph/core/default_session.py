"""The session that ``eval`` and ``run`` of nodes use where none is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_default: ContextVar[Any] = ContextVar("asyncmon_default_session", default=None)

interactive: list[Any] = []
"""The interactive sessions that are open, the newest last: the default where no other one is set."""


def get_default_session() -> Any:
    """Return the default session, or None. TF1: same name.

    It is the innermost one of this task's ``async with Session()`` and ``with session.as_default()``,
    which tasks started inside have too; else the newest open ``InteractiveSession``. A monitored
    session is no default, as in TF1.
    """
    session = _default.get()
    return interactive[-1] if session is None and interactive else session


def set_default_session(session: Any) -> Any:
    """Make a session the default one of this context, and return the one before, to be set again."""
    before = _default.get()
    _default.set(session)
    return before


@contextmanager
def default_session(session: Any) -> Iterator[Any]:
    """Make a session the default one inside ``with``."""
    before = set_default_session(session)
    try:
        yield session
    finally:
        set_default_session(before)


def session_for(graph: Any, session: Any, what: str, method: str) -> Any:
    """Return the given session or else the default one, for something of a graph.

    ``what`` is to be done to it, ``"evaluate tensor"``, and ``method`` the one that was called.

    Raises:
        ValueError: there is none, or it runs another graph.
    """
    chosen = get_default_session() if session is None else session
    if chosen is None:
        raise ValueError(
            f"Cannot {what} using `{method}()`: No default session is registered. Use "
            f"`with sess.as_default()` or pass an explicit session to `{method}(session=sess)`"
        )
    of_session = getattr(chosen, "graph", None)
    if of_session is not None and of_session is not graph:
        kind, hint = "given", ""
        if session is None:
            kind, hint = "default", f" Pass an explicit session to `{method}(session=sess)`."
        raise ValueError(
            f"Cannot use the {kind} session to {what}: the {what.split()[-1]}'s graph is different "
            f"from the session's graph.{hint}"
        )
    return chosen
