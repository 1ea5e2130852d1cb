"""Find calls without ``await``: loops that spin for ever, and operations on a coroutine."""

from __future__ import annotations

import inspect
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from asyncmon.system.cancellation import running_loop
from asyncmon.system.error_text import add_note, calling_line, text_of, user_lines
from asyncmon.system.functions import is_coroutine_function, settled

logger = logging.getLogger(__name__)

_MANY = 64
_HELD_SECS = 0.25
_WATCHED = 8
# Matches the texts of Python and of this package about a coroutine that is used as a value.
_ON_COROUTINE = re.compile(r"'coroutine'|(not|feed a) coroutine|coroutine\.__|<coroutine object")


class ForgottenAwait:
    """Count the calls of ``should_stop`` while the event loop is blocked."""

    # An awaited step lets the event loop run each millisecond. A loop that calls often for a quarter of
    # a second therefore awaits nothing. Coroutines that it drops then are reported.

    __slots__ = ("_asked", "_since", "_warned", "_watch", "_watched")

    def __init__(self) -> None:
        self._warned = False
        self._asked = self._watched = 0
        self._since: float | None = None
        self._watch: _Watch | None = None

    def asked(self) -> None:
        """Count a call. Safe in any thread.

        Raises:
            RuntimeError: a coroutine was made in the loop and not awaited. The error names both.
        """
        self._asked += 1
        if self._asked > _MANY:
            self._look()

    def _reset(self) -> None:
        # The event loop runs.
        self._asked = self._watched = 0
        self._since = None
        self._end_watch()

    def _end_watch(self, *, named: bool = False) -> None:
        watch, self._watch = self._watch, None  # first, for a warning may be an error
        if watch is not None:
            watch.end(named=named)

    def _look(self) -> None:
        now, loop = time.perf_counter(), running_loop()
        if loop is None:
            if self._watch is None:  # it belongs to the loop's thread
                self._asked = 0
            return
        if self._since is None:
            self._since = now
            loop.call_soon(self._reset)
        elif self._watch is None:
            if now - self._since > _HELD_SECS and not self._warned:
                self._watch = _Watch()
        elif dropped := self._watch.dropped():
            asked, secs = self._asked, now - self._since
            self._end_watch(named=True)
            raise RuntimeError(
                f"{dropped} was called and never awaited: write `await`. should_stop() was asked "
                f"{asked} times in {secs:.2g} s without it, and no stop can arrive during that time."
            )
        elif (watched := self._watched) > _WATCHED:
            self._warned = True
            logger.warning(
                "should_stop() was asked %d times in %.2g s by a loop that awaits nothing (%s:%d). "
                "Meanwhile the event loop does not run: no other task, no signal, no stop. This is "
                "said once.",
                self._asked, now - self._since, *calling_line(),
            )  # fmt: skip
            self._end_watch()
        else:
            self._watched = watched + 1


def note_use_of_coroutine(error: BaseException) -> None:
    """Add the line of the user's code to an error of an operation on a coroutine, once.

    The coroutine is closed where a variable of that line's function holds it.
    """
    for one in getattr(error, "exceptions", ()):
        note_use_of_coroutine(one)
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    failed = next((x for x in reversed(chain) if _ON_COROUTINE.search(text_of(x))), None)
    traces = list(user_lines(failed.__traceback__)) if failed is not None else []
    if not traces:
        return
    frame, line = traces[-1]
    for value in frame.f_locals.values():
        if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
            value.close()  # the note reports it; Python's warning would be a second report
    code = frame.f_code
    note = (
        f"{code.co_qualname}() at {code.co_filename}:{line} uses a coroutine as a value. Write `await` "
        "before the call that returned it, in an `async def` function."
    )
    if note not in getattr(error, "__notes__", ()):
        add_note(error, note)


async def called_once(fn: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function, plain or async, that is called at most once a session.

    Raises:
        RuntimeError: it is plain and called a coroutine function without ``await``. The error names
            the line.
    """
    if is_coroutine_function(fn):
        return await fn(*args)
    watch, dropped = _Watch(), ""
    try:
        result = fn(*args)
        dropped = watch.dropped()
    finally:
        watch.end(named=bool(dropped))
    if dropped:
        raise RuntimeError(
            f"{dropped} was called and never awaited: write `await`, in an `async def` function."
        )
    return await settled(result)


class _Watch:
    """Record Python's warnings about coroutines that were not awaited, with their origins."""

    def __init__(self) -> None:
        self._depth = sys.get_coroutine_origin_tracking_depth()
        sys.set_coroutine_origin_tracking_depth(max(self._depth, 1))
        self._catcher = warnings.catch_warnings(record=True)
        self._caught = self._catcher.__enter__()
        warnings.simplefilter("always")

    def dropped(self) -> str:
        """Return the call of a dropped coroutine and its place, or "" if there is none yet."""
        for warning in self._caught:
            coroutine = warning.source
            if inspect.iscoroutine(coroutine) and coroutine.cr_origin:
                file, line, _ = coroutine.cr_origin[0]
                return f"{coroutine.__qualname__.lstrip('_')}() at {file}:{line}"
        return ""

    def end(self, *, named: bool) -> None:
        """Restore the warnings, and issue the recorded ones unless an error names their calls."""
        sys.set_coroutine_origin_tracking_depth(self._depth)
        self._catcher.__exit__(None, None, None)
        for warning in self._caught:
            if named and inspect.iscoroutine(warning.source):
                continue
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno,
                source=warning.source,
            )  # fmt: skip
