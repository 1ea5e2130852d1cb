"""Helpers of the hooks: checks, left-out methods, logged errors, samples, and names in graphs."""

from __future__ import annotations

import contextlib
import logging
import operator
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any

from asyncmon.checkpoint.saveable_session import FetchMembers
from asyncmon.graph import Graph
from asyncmon.runtime import Coordinator, SessionRunHook, current_program
from asyncmon.runtime.coordinator import CreatedSession
from asyncmon.runtime.hook import HookMembers, hook_name
from asyncmon.runtime.protocols import ProgramMembers
from asyncmon.summary.shared_writer import SharedWriter
from asyncmon.system import clock
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


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


def positive(name: str, value: float) -> float:
    """Return an argument that is a positive number.

    Raises:
        ValueError: it is not.
    """
    if not value > 0:
        raise ValueError(f"invalid {name}={value!r}: it must be positive.")
    return value


def leave_out(hook: SessionRunHook, owner: type[SessionRunHook], *methods: str) -> None:
    """Make methods of this object as those of the base class, which are never called.

    Methods that a subclass of ``owner`` overrides stay.
    """
    for method in methods:
        if getattr(type(hook), method) is getattr(owner, method):
            setattr(hook, method, getattr(SessionRunHook, method).__get__(hook))


@contextlib.contextmanager
def log_errors(hook: SessionRunHook, what: str) -> Iterator[None]:
    """Log an error of the block and go on behind it, where ``hook.on_error`` is ``"log"``.

    For one round of a background task: an error that leaves the task ends it.

    Args:
        hook: has the policy.
        what: the work of the block, for the log.
    """
    try:
        yield
    except Exception as error:
        if hook.on_error != "log":
            raise
        hook._logged_errors = hook._logged_errors[0] + 1, error
        logger.exception("%s: %s failed; on_error='log'.", hook_name(hook), what)


def created_session(coord: Coordinator) -> CreatedSession:
    """Return the parts of the session that a hook's coordinator belongs to."""
    assert coord._session is not None, "hooks have the coordinator of a created session"
    return coord._session


def output_directories(hooks: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Return the local directories of the hooks' event files, then those of their checkpoints."""
    events: list[str] = []
    checkpoints: list[str] = []
    for hook in hooks:
        members = members_of(HookMembers, hook)
        output = members._output
        if isinstance(output, SharedWriter) and output.directory is not None:
            (events if members.save_now is None else checkpoints).append(output.directory)
    return events, checkpoints


def veto_saving(coord: Coordinator, reason: str) -> None:
    """Keep saver hooks from saving the state of this session any more. A recovery makes a new one.

    For guards, in ``after_run``: savers wait until all hooks have seen a step. They do not wait for
    steps that are run with ``hooks=False``, which guards do not see.
    """
    created_session(coord).boundary.veto(reason)


async def next_sample(coord: Coordinator, fetches: Any) -> tuple[Any, int | None]:
    """Return the values of ``fetches`` in the next run that succeeds, and its global step.

    A run that fails raises its error in its caller, which may go on; here it must not end the session.
    """
    while True:
        try:
            return await created_session(coord).samples.request(fetches)
        except Exception as error:
            logger.debug("Sampling the run after one that failed: %r", error)


async def samples_every(
    coord: Coordinator, secs: float, fetches: Any
) -> AsyncGenerator[tuple[Any, int | None]]:
    """Yield a :func:`next_sample` of the first run, then every ``secs`` until a stop, without drift.

    A sample that was pending for a whole period, without a run or in a long one, begins a new phase:
    two samples are never closer than the period because of a late one.
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


def current_graph() -> Graph | None:
    """Return the graph whose session is being prepared; None for another kind of program."""
    graph: Graph | None = members_of(ProgramMembers, current_program()).graph
    return graph


def named_tensor(fetch: Any) -> Any:
    """Return the tensor of a name, and other fetches as they are.

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
        if members_of(FetchMembers, fetch).graph is not graph:
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
