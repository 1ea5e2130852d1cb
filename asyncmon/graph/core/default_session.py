"""The default session of ``Tensor.eval`` and ``Operation.run``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_default: ContextVar[Any] = ContextVar("asyncmon_default_session", default=None)

interactive: list[Any] = []
"""The open interactive sessions, the newest last; the default session if no other one is set."""


def get_default_session() -> Any:
    """Return the default session, or None. TF1: same name.

    The innermost ``async with Session()`` or ``with session.as_default()`` of this task, which tasks
    started inside inherit; else the newest open interactive session. As in TF1, a monitored session
    is never the default.
    """
    session = _default.get()
    return interactive[-1] if session is None and interactive else session


def set_default_session(session: Any) -> Any:
    """Set the default session of this context and return the previous one."""
    before = _default.get()
    _default.set(session)
    return before


@contextmanager
def default_session(session: Any) -> Iterator[Any]:
    """Set the default session inside ``with``."""
    before = set_default_session(session)
    try:
        yield session
    finally:
        set_default_session(before)


def session_for(graph: Any, session: Any, what: str, method: str) -> Any:
    """Return the given session or else the default session; ValueError if none runs ``graph``.

    Errors name the intention, ``"evaluate tensor"``, and the called method.
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
