"""How a session ended: which error leaves it, and what the last line of the log says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from asyncmon.error_text import add_note, phrase
from asyncmon.errors import END_OF_DATA
from asyncmon.runtime.reports import is_pep_479

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Ending", "add_failure", "is_clean", "is_end_of_data", "is_exit", "settle"]


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of a session."""

    reason: str
    """One phrase for people."""
    error: BaseException | None
    """What leaves the session, or None for a successful end."""


def is_end_of_data(error: BaseException | None) -> bool:
    """Return whether an exception says that the data is at its end.

    That is one of :data:`~asyncmon.errors.END_OF_DATA`; the ``RuntimeError`` that Python makes of a
    ``StopIteration`` that leaves a coroutine; or a group of nothing but these.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_end_of_data(one) for one in error.exceptions)
    return isinstance(error, END_OF_DATA) or is_pep_479(error)


def is_clean(error: BaseException | None) -> bool:
    """Return whether a body that left with this (or None) ended successfully."""
    return error is None or is_end_of_data(error)


def is_exit(error: BaseException | None) -> TypeGuard[KeyboardInterrupt | SystemExit]:
    """Return whether an exception is to end the program."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


def settle(
    body: BaseException | None,
    beside: Sequence[BaseException],
    at_end: Sequence[BaseException],
    stop_reason: str | None,
) -> Ending:
    """Decide which error leaves a session; the others are attached to it.

    An exit or an interrupt by keyboard leaves before everything else, then a cancellation: what was
    cut short at the end counts as one. Else the first error of the tasks beside the steps explains
    that of the body. Else it is the body's, and after a clean body the first one of the hooks'
    ``end``.

    Args:
        body: what the body of the session raised.
        beside: what tasks beside the steps reported and nobody has been told, the first one first.
        at_end: what the hooks' ``end`` raised, in order; and an exit out of another part of the end.
        stop_reason: why a stop was requested, if one was.
    """
    first = next(iter(beside), None)
    errors: list[tuple[str, BaseException | None]] = [
        ("The body of the session raised", None if is_clean(body) else body),
        ("Beside the steps failed", first),
        *(("At the end failed", error) for error in at_end),
    ]
    if first is not None and (is_clean(body) or isinstance(body, Exception)):
        errors[0], errors[1] = errors[1], errors[0]
    present = [(what, error) for what, error in errors if error is not None]
    present.sort(key=lambda one: _rank(one[1]))
    if not present:
        return Ending(_clean_reason(body, stop_reason), None)
    primary = present[0][1]
    for what, other in present[1:]:
        if other is not primary:
            add_note(primary, f"{what} {phrase(other)}")
    return Ending(_name(primary), primary)


def add_failure(ending: Ending, what: str, error: BaseException) -> Ending:
    """Return how the session ends if something fails after it was settled.

    Args:
        ending: as it was settled.
        what: failed, in one phrase.
        error: leaves the session where nothing else does, or only what counts less.
    """
    before = ending.error
    if before is None:
        return Ending(what, error)
    if error is not before and is_exit(error) and not is_exit(before):
        add_note(error, f"Before that: {phrase(before)}")
        return Ending(what, error)
    if error is not before:
        add_note(before, what)
    return ending


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
