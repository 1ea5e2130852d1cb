"""An await that can be given up, where the awaited code ignores its cancellation."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from types import CoroutineType, coroutine
from typing import Any


class Leavable:
    """Awaits by :func:`leavable`, and may leave the awaited code behind."""

    __slots__ = ("is_left",)

    def __init__(self) -> None:
        self.is_left = False
        """Set to let the next cancellation of the task leave the awaited code behind."""


_NOT_STARTED: Any = object()


@coroutine
def leavable(
    owner: Leavable, awaitable: Awaitable[Any], waits_for: Any = _NOT_STARTED
) -> Generator[Any, Any, Any]:
    """Return ``await awaitable``, unless ``owner.is_left`` is set before a cancellation.

    A coroutine that catches each ``CancelledError`` cannot be ended from outside, and its caller waits
    with it. This stands between the two, and raises the cancellation in the caller alone. The coroutine
    stays where it is for ever; nothing of it runs any more.

    Args:
        owner: see above.
        awaitable: a coroutine may have been started.
        waits_for: what a started one has yielded.
    """
    inner: Any = awaitable
    if awaitable.__class__ is CoroutineType:
        proceed = inner.send
    else:
        inner = awaitable.__await__()
        proceed = lambda _: next(inner)  # noqa: E731 -- an iterator need not have send
    # What `yield from` does, but for the exceptions that come when the owner leaves.
    try:
        if waits_for is _NOT_STARTED:
            waits_for = proceed(None)
        while True:
            try:
                yield waits_for
            except BaseException as error:
                if owner.is_left:
                    _keep_for_ever(inner)
                    raise
                waits_for = inner.throw(error)
            else:
                waits_for = proceed(None)
    except StopIteration as end:
        return end.value


def next_awaited(coro: Any) -> Any:
    """Return what a suspended coroutine awaits, looking through :func:`leavable`."""
    awaited = getattr(coro, "cr_await", None)
    frame = getattr(awaited, "gi_frame", None)
    if frame is not None and frame.f_code is leavable.__code__:
        return frame.f_locals["awaitable"]
    return awaited


def _keep_for_ever(coro: Any) -> None:
    # Its collection would throw GeneratorExit into it. A list of this module would be cleared at the
    # exit of the interpreter, and the code would run when the names of its modules are gone.
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))
