"""The ordered close of a session: runs, hooks' ``end``, tasks, raw session, hooks' ``cleanup``."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from asyncmon.error_text import phrase
from asyncmon.runtime.call_scope import RUNS
from asyncmon.runtime.coordinated import log_failed_close
from asyncmon.runtime.hook import hook_name
from asyncmon.runtime.outcome import Outcome, decide_outcome, is_clean, is_end_of_data, with_failure
from asyncmon.runtime.protocols import step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from asyncmon.runtime.coordinated import Coordinated
    from asyncmon.runtime.hook_set import HookSet
    from asyncmon.runtime.run_lock import RunLock
    from asyncmon.runtime.stop_control import StopControl

logger = logging.getLogger(__name__)

T = TypeVar("T")

LAST_WAIT_SECS = 5.0
"""How long an interrupted run may take to end."""


async def close_session(
    current: Callable[[], Coordinated | None],
    hooks: HookSet,
    lock: RunLock,
    stops: StopControl,
    body: BaseException | None,
    caller: asyncio.Task[Any] | None,
) -> Outcome:
    """Close everything, in order, whatever fails meanwhile, and return how the session ended.

    Runs in a task of its own. A cancellation of that task cuts the current part short, and only it.

    Args:
        current: returns the session in use, None during a recovery.
        hooks: their ``end`` is called when the body ended successfully, their ``cleanup`` always.
        lock: runs of other tasks finish first, or are interrupted after the grace period.
        stops: of the session; has the grace period for runs and tasks.
        body: the exception of the body.
        caller: the task that waits for this, which is therefore not waited for.
    """
    stops.end()
    try:
        outcome, step = await _close(current, hooks, lock, stops, body, caller)
    except GeneratorExit:
        raise  # nothing can be awaited any more
    except BaseException as error:  # the hooks still have their cleanup
        logger.exception("The session could not be closed in order.")
        outcome, step = Outcome(phrase(error), error), None
    outcome = await _clean_up(hooks, outcome)
    logger.log(
        logging.INFO if outcome.error is None else logging.WARNING,
        "Session ended%s: %s.",
        "" if step is None else f" at step {step}", outcome.reason.rstrip("."),
    )  # fmt: skip
    return outcome


async def _close(
    current: Callable[[], Coordinated | None],
    hooks: HookSet,
    lock: RunLock,
    stops: StopControl,
    body: BaseException | None,
    caller: asyncio.Task[Any] | None,
) -> tuple[Outcome, int | None]:
    """Do everything but the hooks' ``cleanup``. Return the outcome and the last step."""
    clean = is_clean(body)
    is_cancelled = body is not None and (not isinstance(body, Exception) or body is stops.expired)
    errors: list[BaseException] = []
    no_run = stops.closed_error("The session is closed: no run begins any more.")
    stops.scopes.interrupt(no_run, "waiting")
    lock_taken = _take_lock(hooks, lock, stops, stops.grace if clean else 0)
    await _part("waiting for the run under way", lock_taken, errors)
    session = current()
    step = None if session is None else step_of(session.raw)
    if session is not None and clean:
        await _part("the hooks' end", hooks.end(session.raw, errors), errors)
        step = step_of(session.raw)
    elif session is not None and is_cancelled:
        secs = max(stops.grace, LAST_WAIT_SECS)
        await _part("the end of hooks", hooks.end_on_cancel(session.raw, secs, errors), errors)
    if session is not None:
        _interrupt_runs(stops, "this run was under way")
        await _part("closing the session", session.close(stops.grace, caller), errors)
        session.samples.close("The session ended before another run was complete.")
    background = [] if session is None else _unseen_errors(session, stops.preemption, body)
    reason = stops.event.reason or (None if session is None else _end_of_data_reason(session))
    return decide_outcome(body, background, errors, reason), step


async def _take_lock(hooks: HookSet, lock: RunLock, stops: StopControl, grace: float) -> None:
    """Wait for the runs of other tasks, and interrupt them after the grace period.

    The lock is never released: no run comes any more.
    """
    try:
        async with asyncio.timeout(max(grace, 0)):
            await lock.acquire()
    except TimeoutError:
        where = "" if hooks.running is None else f", in the hook {hook_name(hooks.running)}"
        logger.warning("A run did not finish before the session was closed%s.", where)
        _interrupt_runs(stops, f"a run was under way{where}")
        error = RuntimeError("The session was closed during a recovery.")
        stops.scopes.interrupt(error, "creation")
        try:
            async with asyncio.timeout(LAST_WAIT_SECS):
                await lock.acquire()
        except TimeoutError:
            logger.warning("A run%s ignores its interruption; it is left behind.", where)


def _interrupt_runs(stops: StopControl, what: str) -> None:
    error = stops.closed_error(f"The session was closed while {what}.")
    stops.scopes.interrupt(error, *RUNS)


async def _part(what: str, work: Coroutine[Any, Any, T], errors: list[BaseException]) -> T | None:
    """Await a part of the closing, so that the next part follows whatever it raises.

    An exit or a keyboard interrupt, which leaves at the end, is added to ``errors``.
    """
    try:
        return await work
    except asyncio.CancelledError:
        logger.warning("Grace period over: %s was cancelled.", what)
    except GeneratorExit:
        raise
    except Exception:
        logger.exception("%s failed.", what)
    except BaseException as error:
        logger.warning("%s raised %s; closing the session first.", what, phrase(error))
        errors.append(error)
    return None


def _unseen_errors(
    session: Coordinated, recovered: tuple[type[Exception], ...], body: BaseException | None
) -> list[BaseException]:
    """Return the errors of background tasks that no caller has seen."""
    coord = session.coord
    if body is not None and body is coord.error:
        return []  # the others are attached to it
    unseen: list[BaseException] = []
    for error in coord.errors:
        if isinstance(error, recovered):
            log_failed_close(error)
        elif not (
            is_end_of_data(error) or error is body or (session.delivered and error is coord.error)
        ):
            unseen.append(error)
    return unseen


def _end_of_data_reason(session: Coordinated) -> str | None:
    coord = session.coord
    return coord.stop_reason if is_end_of_data(coord.error) else None


async def _clean_up(hooks: HookSet, outcome: Outcome) -> Outcome:
    """Call the hooks' ``cleanup``. An error there leaves the session where no other one does."""
    while (hook := hooks.next_to_clean_up()) is not None:
        failed: list[BaseException] = []
        work = hooks.clean_up(hook, outcome.error)
        error = await _part(f"{hook_name(hook)}.cleanup", work, failed)
        if error is not None:
            failed.append(error)
        for one in failed:
            outcome = with_failure(outcome, f"The cleanup of a hook failed: {phrase(one)}", one)
    return outcome
