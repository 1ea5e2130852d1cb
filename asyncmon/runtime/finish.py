"""The second half of a session's life, from the last run on: what every end does, in order."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from asyncmon.error_text import phrase, text_of
from asyncmon.runtime.endings import Ending, add_failure, is_clean, is_end_of_data, settle
from asyncmon.runtime.hook_check import hook_name
from asyncmon.runtime.recoverable import step_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from asyncmon.runtime.coordinated import Coordinated
    from asyncmon.runtime.coordinator import Coordinator
    from asyncmon.runtime.hook_set import HookSet
    from asyncmon.runtime.recoverable import Recoverable
    from asyncmon.runtime.stops import Stops
    from asyncmon.runtime.turn import Turn

__all__ = ["finish"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

LAST_WAIT_SECS = 5.0
"""How long an interrupted run may take to leave."""


async def finish(
    sessions: Recoverable,
    hooks: HookSet,
    turn: Turn,
    stops: Stops,
    grace: float,
    body: BaseException | None,
    caller: asyncio.Task[Any] | None,
) -> Ending:
    """Close everything, in order, whatever fails on the way, and say how it ended.

    Runs in a task of its own. A cancellation of that task cuts the current phase short, and only it.

    Args:
        sessions: the layers.
        hooks: their ``end`` is called when the body ended successfully, their ``cleanup`` always.
        turn: runs of other tasks finish first, or are interrupted after the grace period.
        stops: of the whole session.
        grace: seconds for runs and tasks to end by themselves.
        body: what the body raised.
        caller: the task that waits for this, which is so not waited for.
    """
    stops.end()
    sessions.end_pauses()
    try:
        try:
            ending, step = await _close(sessions, hooks, turn, stops, grace, body, caller)
        except GeneratorExit:
            raise  # nothing can be awaited any more
        except BaseException as error:  # whatever it is, the hooks have their cleanup
            logger.exception("The session could not be closed in order.")
            ending, step = Ending(phrase(error), error), None
        ending = await _clean_up(hooks, ending)
        logger.log(
            logging.INFO if ending.error is None else logging.WARNING,
            "Session ended%s: %s.",
            "" if step is None else f" at step {step}", ending.reason.rstrip("."),
        )  # fmt: skip
        return ending
    finally:
        turn.release()


async def _close(
    sessions: Recoverable,
    hooks: HookSet,
    turn: Turn,
    stops: Stops,
    grace: float,
    body: BaseException | None,
    caller: asyncio.Task[Any] | None,
) -> tuple[Ending, int | None]:
    """Do all that comes before the hooks' ``cleanup``. Return how it ended, and at which step."""
    clean = is_clean(body)
    at_end: list[BaseException] = []
    turned = _take_turn(sessions, hooks, turn, grace if clean else 0)
    await _phase("waiting for the run under way", turned, at_end)
    session = sessions.current
    step = None if session is None else step_of(session)
    if clean and session is not None:
        await _phase("the hooks' end", hooks.end(session.raw, at_end), at_end)
        step = step_of(session)
    if session is not None:
        session.coord.body_error = _as_savers_see_it(body, at_end, stops)
        _interrupt(session.coord, "this run was under way")
        await _phase("closing the session", session.close(grace, caller), at_end)
        session.coord.samples.close("The session ended before another run was complete.")
    sessions.current = None
    beside = [] if session is None else _beside(session, sessions.errors, body)
    reason = stops.whole.stop_reason or (None if session is None else _clean_stop_reason(session))
    return settle(body, beside, at_end, reason), step


async def _take_turn(sessions: Recoverable, hooks: HookSet, turn: Turn, grace: float) -> None:
    """Let the runs of other tasks finish; after the grace period end them."""
    try:
        async with asyncio.timeout(max(grace, 0)):
            await turn.wait()
    except TimeoutError:
        where = "" if hooks.running is None else f", in the hook {hook_name(hooks.running)}"
        logger.warning("A run did not finish before the session was closed%s.", where)
        if sessions.current is not None:
            _interrupt(sessions.current.coord, f"a run was under way{where}")
        sessions.interrupts.interrupt(RuntimeError("The session was closed during a recovery."))
        try:
            async with asyncio.timeout(LAST_WAIT_SECS):
                await turn.wait()
        except TimeoutError:
            logger.warning("A run%s ignores its interruption; it is left behind.", where)


def _interrupt(coord: Coordinator, what: str) -> None:
    coord.interrupts.interrupt(coord.closing(f"The session was closed while {what}."))


def _as_savers_see_it(
    body: BaseException | None, at_end: list[BaseException], stops: Stops
) -> BaseException | None:
    """Return what the session ends with, for hooks that save what is there when it is cancelled.

    What was given up or cut short counts as cancelled.
    """
    if stops.gave_up(body):
        return asyncio.CancelledError()
    return next((error for error in at_end if not isinstance(error, Exception)), body)


async def _phase(what: str, work: Coroutine[Any, Any, T], leaving: list[BaseException]) -> T | None:
    """Await a part of the end; whatever comes of it, the next part has its turn.

    Args:
        what: it is, for the log.
        work: to be awaited.
        leaving: is added an exit or an interrupt by keyboard, which has to wait.
    """
    try:
        return await work
    except asyncio.CancelledError:
        logger.warning("The session is closed in a hurry: %s was cut short.", what)
    except GeneratorExit:
        raise
    except Exception:
        logger.exception("%s failed.", what)
    except BaseException as error:
        logger.warning("%s raised %s; the session is closed before that goes on.", what, phrase(error))
        leaving.append(error)
    return None


def _beside(
    session: Coordinated, recovered: tuple[type[Exception], ...], body: BaseException | None
) -> list[BaseException]:
    """Return the errors of tasks that somebody has to be told of."""
    coord = session.coord
    if body is not None and body is coord.error:
        return []  # it leaves with the others attached to it
    left: list[BaseException] = []
    for error in coord.errors:
        if isinstance(error, recovered):
            logger.error(
                "An error occurred when attempting to close the session. This may be due to a "
                "preemption in a connected worker or parameter server. Error: %s",
                text_of(error),
            )
        elif not (
            is_end_of_data(error) or error is body or (session.delivered and error is coord.error)
        ):
            left.append(error)
    return left


def _clean_stop_reason(session: Coordinated) -> str | None:
    coord = session.coord
    if coord.stopped_by_request or is_end_of_data(coord.error):
        return coord.stop_reason
    return None


async def _clean_up(hooks: HookSet, ending: Ending) -> Ending:
    """Call the hooks' ``cleanup``. An error there leaves the session where nothing else does."""
    while (hook := hooks.next_to_clean_up()) is not None:
        failed: list[BaseException] = []
        work = hooks.clean_up(hook, ending.error)
        error = await _phase(f"{hook_name(hook)}.cleanup", work, failed)
        if error is not None:
            failed.append(error)
        for one in failed:
            ending = add_failure(ending, f"The cleanup of a hook failed: {phrase(one)}", one)
    return ending
