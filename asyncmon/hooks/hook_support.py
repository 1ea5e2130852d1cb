"""Helpers of the hooks: argument checks, disabled methods, error logs, samples, and names in graphs."""

from __future__ import annotations

import contextlib
import logging
import operator
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from asyncmon.checkpoint.saveable_session import FetchMembers
from asyncmon.graph import Graph
from asyncmon.runtime import Coordinator, SessionRunHook, current_program
from asyncmon.runtime.failures import Failures
from asyncmon.runtime.hook import hook_name
from asyncmon.runtime.protocols import ProgramMembers
from asyncmon.runtime.session_coordinator import SessionCoordinator
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.system import clock
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


def whole_number(name: str, value: Any, *, least: int | None = None) -> int:
    """Return an argument as an int. Raises TypeError, or ValueError if it is less than ``least``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}.") from None
    if least is not None and number < least:
        raise ValueError(f"invalid {name}={value!r}: it must be {least} or more.")
    return number


def positive(name: str, value: float) -> float:
    """Return an argument that must be positive. Raises ValueError."""
    if not value > 0:
        raise ValueError(f"invalid {name}={value!r}: it must be positive.")
    return value


def leave_out(hook: SessionRunHook, owner: type[SessionRunHook], *methods: str) -> None:
    """Disable methods of a hook: restore those of the base class, which are never called.

    A method that a subclass of ``owner`` overrides stays enabled.
    """
    for method in methods:
        if getattr(type(hook), method) is getattr(owner, method):
            setattr(hook, method, getattr(SessionRunHook, method).__get__(hook))


@contextlib.contextmanager
def log_errors(hook: SessionRunHook, what: str) -> Iterator[None]:
    """Log and suppress an error of the block if ``hook.on_error`` is ``"log"``.

    For one iteration of a background task, which an error would end. ``what`` describes it in the log.
    The same error again and again is logged once, and then counted.
    """
    try:
        yield
    except Exception as error:
        if hook.on_error != "log":
            raise
        if hook._logged is None:
            hook._logged = Failures()
        hook._logged.log(error, "%s: %s failed; on_error='log'.", hook_name(hook), what)


def created_session(coord: Coordinator) -> SessionCoordinator:
    """Return a hook's coordinator as that of its created session."""
    assert isinstance(coord, SessionCoordinator), "hooks have the coordinator of a created session"
    return coord


def request_stop(coord: Coordinator, hook: Any, reason: str) -> None:
    """Request a stop that comes from a hook, as ``run_context.request_stop`` does in a run."""
    created_session(coord).request(Stop(Cause.HOOK, reason, hook_name(hook)))


def veto_saving(coord: Coordinator, reason: str) -> None:
    """Prevent further saves of this session's state. The session after a recovery can be saved.

    For ``after_run`` of guards: savers wait until all hooks were called for a step. They do not wait
    for steps with ``hooks=False``, for which guards are not called.
    """
    created_session(coord).boundary.veto(reason)


async def next_sample(coord: Coordinator, fetches: Any) -> tuple[Any, int | None]:
    """Return the values of ``fetches`` in the next successful run, and its global step."""
    # A failed run raises in its caller, which may continue; the error must not end the session here.
    while True:
        try:
            return await created_session(coord).samples.request(fetches)
        except Exception as error:
            logger.debug("Sampling the run after one that failed: %r", error)


async def samples_every(
    coord: Coordinator, secs: float, fetches: Any
) -> AsyncGenerator[tuple[Any, int | None]]:
    """Yield a sample of the first run, then one every ``secs`` until a stop, without drift."""
    yield await next_sample(coord, fetches)
    came_late = True
    while came_late:
        came_late = False
        async for _ in coord.every(secs):
            requested = clock.monotonic()
            sample = await next_sample(coord, fetches)
            # It then begins a new phase: two samples are never closer than the period.
            came_late = clock.monotonic() - requested >= secs
            yield sample
            if came_late:
                break


def current_graph() -> Graph | None:
    """Return the current graph; None for another kind of program."""
    graph: Graph | None = members_of(ProgramMembers, current_program()).graph
    return graph


def named_tensor(fetch: Any) -> Any:
    """Return the tensor of a name; return other fetches, and names of other programs, unchanged.

    A name without an index refers to an operation with one output. Raises KeyError for an unknown name,
    ValueError for an ambiguous one or a fetch of another graph.
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
