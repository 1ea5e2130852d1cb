"""Texts about exceptions, which never raise, and about the line at which a task waits.

``str()`` of an exception may fail, and an exception that is a frozen dataclass accepts no notes.
Neither may prevent a session from closing, or hide the error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import CodeType, FrameType, TracebackType
from typing import Any

from asyncmon.system.leavable import next_awaited

logger = logging.getLogger(__name__)

_MOST_TEXT = 10_000
_LIBRARIES = ("asyncmon", "asyncio", "anyio")


class _OwnFiles(dict[str, bool]):
    _package = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

    def __missing__(self, file: str) -> bool:
        found = self[file] = file.startswith(self._package)
        return found


own_files: Mapping[str, bool] = _OwnFiles()
"""Whether the ``co_filename`` of code is a file of this package. Kept for the nodes of graphs."""


def add_note(error: BaseException, note: str) -> None:
    """Attach a note to an exception, or log it if that fails. Never raises."""
    try:
        error.add_note(note)
    except Exception:
        logger.warning("Cannot attach a note to %s: %s", phrase(error), note)


def encodable(text: str) -> str:
    """Return a text that files and databases take: ``?`` for each half of a surrogate pair."""
    # os.fsdecode() makes them of names that are no UTF-8, and JSON may hold them.
    return text if text.isascii() else text.encode(errors="replace").decode()


def text_of(error: BaseException) -> str:
    """Return ``str(error)``, which UTF-8 can encode, or a placeholder if that fails."""
    try:
        return encodable(str(error))
    except Exception as failure:
        return f"<its __str__ raised {type(failure).__name__}>"


def phrase(error: BaseException) -> str:
    """Return the type and the text of an exception, up to 10,000 characters of it."""
    text = text_of(error)
    if len(text) > _MOST_TEXT:  # it may have all of its data in it
        text = f"{text[:_MOST_TEXT]}... ({len(text):,} characters)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def some(names: Iterable[str]) -> str:
    """Return the first ones of names, and the number of the others."""
    names = list(names)
    return f"{names[:8]}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def forget_frames(error: BaseException | None) -> None:
    """Drop the tracebacks of an error that was handled, of its causes and of the errors of a group."""
    # A reference to the error would keep the frames, with the data that callers were reading.
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
            forget_frames(one)
        forget_frames(error.__cause__)
        error = error.__context__


def where_it_waits(task: asyncio.Task[Any]) -> str:
    """Return the innermost line at which a task is suspended, and the user's line that called it."""
    frames = task.get_stack()[-1:]
    inner: Any = task.get_coro()
    while inner is not None:  # the innermost awaitable is a future, without a frame
        frame = getattr(inner, "cr_frame", None)
        if frame is not None:
            frames.append(frame)
        inner = next_awaited(inner)
    if not frames:
        return "it has no Python frame"
    last = frames[-1]
    users = [frame for frame in frames if not _is_library(frame)]
    called_from = f", called from {_place(users[-1])}" if users and users[-1] is not last else ""
    return f"it waits in {_place(last)}{called_from}"


def where_threads_are(idents: Collection[int]) -> str:
    """Return the lines at which threads are, and in the functions that this package has called."""
    frames, places = sys._current_frames(), []
    for ident in idents:
        inner = frame = frames.get(ident)
        called = None
        while frame is not None and not _is_library(frame):
            called, frame = frame, frame.f_back
        if inner is not None:
            called_from = f", called from {_place(called)}" if called not in (None, inner) else ""
            places.append(f"a thread, which cannot be interrupted, is in {_place(inner)}{called_from}")
    return "; ".join(places)


def calling_line() -> tuple[str, int]:
    """Return the file and the number of the innermost line of the user's code that is executing."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not _is_library(frame):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "<unknown>", 0


def user_lines(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames and line numbers of a traceback that belong to the user's code."""
    while trace is not None:
        if not _is_library(trace.tb_frame):
            yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _is_library(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES


def line_at(code: CodeType, offset: int) -> tuple[str, int]:
    """Return the file and the number of the line of an instruction of code."""
    lines = [line for start, end, line in code.co_lines() if start <= offset < end]
    return code.co_filename, (lines[0] if lines else None) or code.co_firstlineno


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
