"""Helpers of the hooks: argument checks, left-out methods, logged errors, samples, names in graphs."""

from __future__ import annotations

import contextlib
import logging
import operator
from typing import TYPE_CHECKING, Any

from asyncmon import clock
from asyncmon.graph import get_global_step
from asyncmon.runtime.hook import SessionRunHook, hook_name
from asyncmon.runtime.program import current_program

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from asyncmon.graph import Graph
    from asyncmon.runtime.coordinator import Coordinator
    from asyncmon.runtime.protocols import Session

logger = logging.getLogger(__name__)


def leave_out(hook: SessionRunHook, owner: type[SessionRunHook], *moments: str) -> None:
    """Make this object do nothing at some moments, so that nothing is called there in vain.

    What a subclass of ``owner`` overrides stays.
    """
    for moment in moments:
        if getattr(type(hook), moment) is getattr(owner, moment):
            setattr(hook, moment, getattr(SessionRunHook, moment).__get__(hook))


def let_idle(hook: SessionRunHook, owner: type[SessionRunHook]) -> None:
    """Let a hook be called only in runs that reach its ``idle_until_step``.

    A subclass of ``owner`` that overrides what is called around runs is called in each.
    """
    moments = "before_run", "after_run"
    if all(getattr(type(hook), moment) is getattr(owner, moment) for moment in moments):
        hook.idle_until_step = 0


def idle_until(hook: SessionRunHook, step: float) -> None:
    """Say which step a hook is to be called at next, if it idles at all."""
    if hook.idle_until_step is not None:
        hook.idle_until_step = step


@contextlib.contextmanager
def forgiven(hook: SessionRunHook, what: str) -> Iterator[None]:
    """Log an error of the block and go on behind it, where ``hook.on_error`` is ``"log"``.

    For what a hook does in a task, time after time: an error that left the task would end it for good.

    Args:
        hook: whose policy counts.
        what: what is done, for the log.
    """
    try:
        yield
    except Exception:
        if hook.on_error != "log":
            raise
        logger.exception("%s: %s failed; on_error='log'.", hook_name(hook), what)


def require_global_step(hook: SessionRunHook) -> None:
    """Refuse, in ``begin``, a program that counts no steps.

    Raises:
        RuntimeError: the current program has no global step.
    """
    if not current_program().has_global_step():
        raise _no_global_step(hook)


def global_step_of(hook: SessionRunHook, session: Session) -> int:
    """Return the committed global step of a session.

    Raises:
        RuntimeError: it has none.
    """
    step = session.global_step
    if step is None:
        raise _no_global_step(hook)
    return step


def veto_saving(coord: Coordinator, reason: str) -> None:
    """Keep saver hooks from saving the state of this session any more. A recovery makes a new one.

    For guards, in ``after_run``: savers wait until all hooks have seen a step. They do not wait for
    steps that are run with ``hooks=False``, which guards do not see.
    """
    assert coord._session is not None, "hooks have the coordinator of a created session"
    coord._session.boundary.veto(reason)


async def next_sample(coord: Coordinator, fetches: Any) -> tuple[Any, int | None]:
    """Return what the next run that succeeds computes for ``fetches``, and its global step.

    A run that fails raises its error in its caller, which may go on; here it must not end the session.
    """
    while True:
        try:
            assert coord._session is not None, "hooks have the coordinator of a created session"
            return await coord._session.sample(fetches)
        except Exception as error:
            logger.debug("Asking the next run instead of one that failed: %r", error)


async def samples_every(
    coord: Coordinator, secs: float, fetches: Any
) -> AsyncGenerator[tuple[Any, int | None]]:
    """Yield what :func:`next_sample` returns: of the first run, then every ``secs`` until a stop.

    The moments do not drift. Only values that were waited for a whole period, for want of a run or in a
    long one, begin a new row of moments: nothing is reported twice within a moment.
    """
    yield await next_sample(coord, fetches)
    came_late = True
    while came_late:
        came_late = False
        async for _ in coord.every(secs):
            asked = clock.monotonic()
            sample = await next_sample(coord, fetches)
            came_late = clock.monotonic() - asked >= secs
            yield sample
            if came_late:
                break


def whole_number(name: str, value: Any, *, least: int | None = None) -> int:
    """Return an argument as an int.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is less than ``least``.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}.") from None
    if least is not None and number < least:
        raise ValueError(f"invalid {name}={value!r}: it must be {least} or more.")
    return number


def _no_global_step(hook: SessionRunHook) -> RuntimeError:
    return RuntimeError(f"Global step should be created to use {type(hook).__name__}.")


def current_graph() -> Graph | None:
    """Return the graph whose session is being prepared; None for another kind of program."""
    graph: Graph | None = getattr(current_program(), "graph", None)
    return graph


def global_step_name() -> str:
    """Return what the global step is called in summaries."""
    graph = current_graph()
    step = None if graph is None else get_global_step(graph)
    return "global_step" if step is None else str(step.op.name)


def named_tensor(fetch: Any) -> Any:
    """Return the tensor that a name stands for, and other fetches as they are.

    A name without an index is that of an operation with one output. In other programs than graphs
    names stay names.

    Raises:
        KeyError: the graph has nothing of that name.
        ValueError: the operation has several outputs, or the fetch is of another graph.
    """
    graph = current_graph()
    if graph is None:
        return fetch
    if not isinstance(fetch, str):
        if getattr(fetch, "graph", None) is not graph:
            raise ValueError(
                f"Passed {fetch!r} should have graph attribute that is equal to current graph "
                f"{graph!r}."
            )
        return fetch
    if ":" in fetch:
        return graph.as_graph_element(fetch)
    tensor = graph.as_graph_element(f"{fetch}:0")
    if len(tensor.op.outputs) > 1:
        raise ValueError(
            f"Name {fetch} is ambiguous, as this `Operation` has multiple outputs (at least 2)."
        )
    return tensor
