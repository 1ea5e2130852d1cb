"""The outcome of a session: the error that it raises, and the last line of the log. No side effects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

from asyncmon.errors import END_OF_DATA, EXITS
from asyncmon.runtime.error_log import is_pep_479
from asyncmon.system.error_text import add_note, phrase


class Outcome(NamedTuple):
    """The outcome of a session."""

    reason: str
    """One phrase for the log and ``stop_reason``."""
    error: BaseException | None
    """The error that the session raises, or None for a successful end."""


def is_end_of_data(error: BaseException | None) -> bool:
    """Return whether an exception means the end of the data.

    That is one of :data:`~asyncmon.errors.END_OF_DATA`, the ``RuntimeError`` that a ``StopIteration``
    becomes in a coroutine, or a group of such errors only.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_end_of_data(one) for one in error.exceptions)
    return isinstance(error, END_OF_DATA) or is_pep_479(error)


def is_clean(error: BaseException | None) -> bool:
    """Return whether a body with this exception, or None, ended successfully."""
    return error is None or is_end_of_data(error)


def is_exit(error: BaseException | None) -> TypeGuard[KeyboardInterrupt | SystemExit]:
    """Return whether an exception ends the program."""
    return isinstance(error, EXITS)


def decide_outcome(
    body: BaseException | None,
    background: Sequence[BaseException],
    closing: Sequence[BaseException],
    stop_reason: str | None,
) -> Outcome:
    """Return the outcome of a session. The other errors are attached to its error as notes.

    Exits come before cancellations, and these before other errors. A cancelled part of the closing
    counts as a cancellation. Of the other errors, the first one of a background task comes before that
    of the body, as it explains it, and errors of the hooks' ``end`` come last.

    Args:
        body: the exception of the session's body.
        background: errors of background tasks that no call has raised yet, in order.
        closing: errors of the hooks' ``end``, in order, and exits out of other parts of the closing.
        stop_reason: the reason of a requested stop, or None.
    """
    first = next(iter(background), None)
    errors: list[tuple[str, BaseException | None]] = [
        ("The body of the session raised", None if is_clean(body) else body),
        ("A background task failed:", first),
        *(("At the end failed", error) for error in closing),
    ]
    if first is not None and (is_clean(body) or isinstance(body, Exception)):
        errors[0], errors[1] = errors[1], errors[0]
    present = [(what, error) for what, error in errors if error is not None]
    present.sort(key=lambda one: _rank(one[1]))
    if not present:
        return Outcome(_clean_reason(body, stop_reason), None)
    primary = present[0][1]
    for what, other in present[1:]:
        if other is not primary:
            add_note(primary, f"{what} {phrase(other)}")
    return Outcome(_name(primary), primary)


def with_failure(outcome: Outcome, what: str, error: BaseException) -> Outcome:
    """Return the outcome after a later failure, described by ``what``.

    Its error is raised if there is no other one, or if it is an exit and the other one is not.
    """
    before = outcome.error
    if before is None:
        return Outcome(what, error)
    if error is not before and is_exit(error) and not is_exit(before):
        add_note(error, f"Before that: {phrase(before)}")
        return Outcome(what, error)
    if error is not before:
        add_note(before, what)
    return outcome


def _rank(error: BaseException) -> int:
    if is_exit(error):
        return 0
    return 2 if isinstance(error, Exception) else 1


def _clean_reason(body: BaseException | None, stop_reason: str | None) -> str:
    if stop_reason is not None:
        return stop_reason
    return "the body ended" if body is None else f"end of data ({_name(body)})"


def _name(error: BaseException) -> str:
    return "cancelled" if isinstance(error, asyncio.CancelledError) else phrase(error)
