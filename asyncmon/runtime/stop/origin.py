"""Where an error comes from, which decides whether it is the end of the data."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from asyncmon.errors import OutOfRangeError
from asyncmon.runtime.stop.stop import Cause
from asyncmon.system.cancellation import current_task
from asyncmon.system.error_text import add_note

Kind = Literal[
    "data", "body", "step function", "step", "hook", "task", "call",
    "listener", "evaluation", "background", "timer", "clean-up",
]  # fmt: skip


class Ends(NamedTuple):
    """Which exceptions of an origin are the end of the data. Others are errors."""

    out_of_range: bool
    """``OutOfRangeError``, the field's own end of the data."""
    stop_iteration: bool
    """``StopIteration``, ``StopAsyncIteration``, and the ``RuntimeError`` that Python makes of one that
    leaves a coroutine or a generator (PEP 479)."""
    cause: Cause


ENDS: Mapping[Kind, Ends] = {
    "data": Ends(True, True, Cause.DATA),
    "body": Ends(True, True, Cause.BODY),
    "step function": Ends(True, True, Cause.BODY),
    "step": Ends(True, False, Cause.BODY),
    "hook": Ends(True, False, Cause.HOOK),
    "task": Ends(True, False, Cause.TASK),
    "call": Ends(False, False, Cause.TASK),
    "listener": Ends(False, False, Cause.HOOK),
    "evaluation": Ends(False, False, Cause.HOOK),
    "background": Ends(False, False, Cause.HOOK),
    "timer": Ends(False, False, Cause.HOOK),
    "clean-up": Ends(False, False, Cause.DATA),
}
"""The rule of success. docs/cancellation.md has this table, and a test compares the two."""

_MARK = "__asyncmon_origin__"


class Origin(NamedTuple):
    """The code that raised an error."""

    kind: Kind
    name: str
    """For people: a hook and its method, a task, a step."""

    @property
    def cause(self) -> Cause:
        """The cause of a stop by such an error."""
        return ENDS[self.kind].cause


BODY = Origin("body", "")


class NoEndError(RuntimeError):
    """Raised in place of a ``StopIteration`` that is not the end of the data, but a fault.

    Left as it is, it would end the next loop that it reaches, as if that was over.
    """


def mark(error: BaseException, kind: Kind, name: str) -> None:
    """Note the origin of an error, unless it has one already. The caller raises it again.

    Raises:
        NoEndError: in its place, for a ``StopIteration`` or ``StopAsyncIteration`` that is no end of
            the data there.
    """
    if _own(error) is not None:
        return
    end = stop_iteration_of(error)
    if end is None and kind == "step" and isinstance(error, OutOfRangeError):
        # A py_func makes it of a StopIteration, for queue runners: they run it to get data. A step does
        # not, so that the end of some iterator in its code is no end of the data.
        end = stop_iteration_of(error.__cause__)
    if end is not None and not ENDS[kind].stop_iteration:
        fault = NoEndError(
            f"{name} raised {type(end).__name__}, which ends the session only where the data raises "
            "it. Did next() or anext() come to the end of an iterator? To stop the session, call "
            "request_stop()."
        )
        setattr(fault, _MARK, Origin(kind, name))
        raise fault from error
    # Not setattr: the class of an exception may refuse attributes, as a frozen dataclass does.
    with contextlib.suppress(Exception):
        BaseException.__setattr__(error, _MARK, Origin(kind, name))
    if ENDS[kind].cause is Cause.HOOK:
        add_note(error, f"asyncmon: raised in {name}")


class marked:
    """Note the origin of the errors of a block, by :func:`mark`."""

    # No generator: contextlib would set the traceback of the error, which an error may refuse.

    __slots__ = ("_kind", "_name")

    def __init__(self, kind: Kind, name: str) -> None:
        self._kind: Kind = kind
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Exception):
            mark(error, self._kind, self._name)


def own_generator_exit(
    error: BaseException, name: str, task: asyncio.Task[Any] | None
) -> RuntimeError | None:
    """Return the error that the ``GeneratorExit`` of a hook or a task is, so that it skips nothing.

    None if it was thrown into the coroutine, which is the end of it.

    Args:
        error: any exception.
        name: of the code that has raised it.
        task: that runs this code.
    """
    # A coroutine is closed without a task, or by the task that drops its last reference.
    if not isinstance(error, GeneratorExit) or task is None or current_task() is not task:
        return None
    fault = RuntimeError(f"{name} raised GeneratorExit, which only a generator may.")
    fault.__cause__ = error
    return fault


def origin_of(error: BaseException | None) -> Origin:
    """Return the origin of an error: that of the body, if no other code is known to have raised it."""
    found = None if error is None else _own(error)
    if found is None and error is not None and isinstance(error, RuntimeError):
        cause = error.__cause__  # the one that Python replaced
        found = None if cause is None or stop_iteration_of(error) is None else _own(cause)
    if found is None and isinstance(error, BaseExceptionGroup):
        found = next((one for one in map(_own, error.exceptions) if one is not None), None)
    return BODY if found is None else found


def is_end_of_data(error: BaseException | None, group: Origin = BODY) -> bool:
    """Return whether an error is the end of the data, by :data:`ENDS`. A group is if all of it is.

    Args:
        error: any exception, or None.
        group: the origin of a group of exceptions with this one in it.
    """
    if error is None:
        return False
    origin = origin_of(error)
    origin = group if origin is BODY else origin
    if isinstance(error, BaseExceptionGroup):
        return all(is_end_of_data(one, origin) for one in error.exceptions)
    rule = ENDS[origin.kind]
    if isinstance(error, OutOfRangeError):
        return rule.out_of_range
    return rule.stop_iteration and stop_iteration_of(error) is not None


def _own(error: BaseException) -> Origin | None:
    try:
        found = object.__getattribute__(error, _MARK)
    except AttributeError:
        return None
    return found if isinstance(found, Origin) else None


def stop_iteration_of(error: BaseException | None) -> BaseException | None:
    """Return the ``StopIteration`` that an error is, or that Python made a ``RuntimeError`` of.

    None for other errors.
    """
    if isinstance(error, RuntimeError) and not isinstance(error, NoEndError):
        error = error.__cause__ or error
    return error if isinstance(error, StopIteration | StopAsyncIteration) else None
