"""The outcome of a session: the error that it raises, and the last line of the log. No side effects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeGuard

from asyncmon.errors import EXITS, CancelledError
from asyncmon.runtime.stop.origin import BODY, Origin, is_end_of_data, origin_of
from asyncmon.runtime.stop.stop import Cause, RefusedRunError, RunState, Stop, StopEvent
from asyncmon.system.error_text import add_note, phrase


class Outcome(NamedTuple):
    """The outcome of a session."""

    stop: Stop
    """What ended it. The text is one phrase for the log and ``stop_reason``."""
    error: BaseException | None
    """The error that the session raises, or None for a successful end."""


def is_clean(error: BaseException | None, of_session: StopEvent, group: Origin = BODY) -> bool:
    """Return whether a body with this exception, or None, ended successfully.

    So it did with the end of the data, and with a run that was refused after the stop of a hook.

    Args:
        error: the exception.
        of_session: the stop of the session.
        group: the origin of a group of exceptions with this one in it.
    """
    if isinstance(error, BaseExceptionGroup):
        origin = origin_of(error)
        origin = group if origin is BODY else origin
        return all(is_clean(one, of_session, origin) for one in error.exceptions)
    if error is None or is_end_of_data(error, group):
        return True
    return isinstance(error, RefusedRunError) and error.of_session is of_session


def is_exit(error: BaseException | None) -> TypeGuard[KeyboardInterrupt | SystemExit]:
    """Return whether an exception ends the program."""
    return isinstance(error, EXITS)


def decide_outcome(
    body: BaseException | None,
    background: Sequence[BaseException],
    closing: Sequence[BaseException],
    of_session: StopEvent,
) -> Outcome:
    """Return the outcome of a session. The other errors are attached to its error as notes.

    Exits come before cancellations, and these before other errors. A cancelled part of the closing
    counts as a cancellation. Of the other errors, the first one of a background task comes before that
    of the body, as it explains it, and errors of the hooks' ``end`` come last.

    Args:
        body: the exception of the session's body.
        background: errors of background tasks that no call has raised yet, in order.
        closing: errors of the hooks' ``end``, in order, and exits out of other parts of the closing.
        of_session: the stop of the session.
    """
    first = next(iter(background), None)
    errors: list[tuple[str, BaseException | None]] = [
        ("The body of the session raised", None if is_clean(body, of_session) else body),
        ("A background task failed:", first),
        *(("At the end failed", error) for error in closing),
    ]
    if first is not None and (is_clean(body, of_session) or isinstance(body, Exception)):
        errors[0], errors[1] = errors[1], errors[0]
    present = [(what, error) for what, error in errors if error is not None]
    present.sort(key=lambda one: _rank(one[1]))
    if not present:
        return Outcome(of_session.stop or _end_of(body), None)
    primary = present[0][1]
    for what, other in present[1:]:
        if other is not primary:
            add_note(primary, f"{what} {phrase(other)}")
    return Outcome(stop_by(primary), primary)


def end_state(outcome: Outcome, is_over: Callable[[BaseException], bool] | Literal[False]) -> RunState:
    """Return the state of a run that has ended so. docs/observing.md has the table.

    Args:
        outcome: of the session.
        is_over: of a session that is preempted, whether an error only means that its time is over.
    """
    stop, error = outcome
    if stop.preempted or (is_over and (error is None or is_over(error))):
        return "preempted"
    if error is not None:
        return "cancelled" if _is_cancellation(error) else "failed"
    return "stopped" if (stop.of or stop.cause) is Cause.REQUEST else "completed"


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_cancellation, error.exceptions))
    if isinstance(error, SystemExit):
        return not error.code
    return not isinstance(error, Exception) or isinstance(error, CancelledError)


def with_failure(outcome: Outcome, what: str, error: BaseException) -> Outcome:
    """Return the outcome after a later failure of a hook, described by ``what``.

    Its error is raised if there is no other one, or if it is an exit and the other one is not.
    """
    before = outcome.error
    if before is None:
        return Outcome(Stop(Cause.HOOK, what, origin_of(error).name), error)
    if error is not before and is_exit(error) and not is_exit(before):
        add_note(error, f"Before that: {phrase(before)}")
        return Outcome(Stop(Cause.HOOK, what, origin_of(error).name), error)
    if error is not before:
        add_note(before, what)
    return outcome


def _rank(error: BaseException) -> int:
    if is_exit(error):
        return 0
    return 2 if isinstance(error, Exception) else 1


def _end_of(body: BaseException | None) -> Stop:
    if body is None:
        return Stop(Cause.BODY, "the body ended")
    stop = stop_by(body)
    return stop._replace(cause=Cause.DATA, text=f"end of data ({stop.text})")


def stop_by(error: BaseException) -> Stop:
    """Return the stop that an error is."""
    origin = origin_of(error)
    text = "cancelled" if isinstance(error, asyncio.CancelledError) else phrase(error)
    where = "" if origin.cause is Cause.BODY else f", in {origin.name}"  # else the traceback is enough
    return Stop(origin.cause, text.rstrip(".") + where if where else text, origin.name)
