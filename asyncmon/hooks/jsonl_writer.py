"""Write summaries as JSON lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from asyncmon.summary.events import SessionLog, Summary, Value
from asyncmon.summary.logged import Image, LoggedValue, extent
from asyncmon.summary.scalars import json_number
from asyncmon.summary.values import HParam
from asyncmon.system import clock, files
from asyncmon.system.cancellation import shielded
from asyncmon.system.diagnostics import Diagnostics
from asyncmon.system.error_text import phrase
from asyncmon.system.process import ProcessLocal

logger = logging.getLogger(__name__)

_MOST_PENDING = 100_000  # lines, while the disk fails
_STATUS = {SessionLog.START: "start", SessionLog.STOP: "stop", SessionLog.CHECKPOINT: "checkpoint"}

# one writer at a time appends to a file: the others could take half a line for that of a crash
_writing: ProcessLocal[
    WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]]
] = ProcessLocal(WeakKeyDictionary)


class JsonlWriter:
    """A summary writer for hooks, and a logger, that writes one JSON object per line.

    Scalars and texts are written by tag, histograms as count, minimum, maximum and mean; images and
    other kinds are omitted. NaN and infinities are the strings ``"NaN"``, ``"Infinity"`` and
    ``"-Infinity"``. Lines are appended to an existing file; steps that a recovery repeats are written
    twice.

    ``add_*`` methods do not block. Lines are written in the background after ``flush_secs``, and by
    ``flush`` and ``close``, which raise errors of the disk. Lines that cannot be written are kept and
    retried, the newest 100,000. Lines added without a running event loop are pending until there is
    one.

    Args:
        path: the file. The first write makes it and its directory.
        flush_secs: the longest time, in seconds, before a line is written.

    Example::

        writer = JsonlWriter("runs/train.jsonl")
        hooks = [SummarySaverHook(save_steps=10, summary_writer=writer, summary_op={"loss": loss})]
        # {"step": 11, "time": 1700000000.0, "loss": 0.25}
    """

    blocking = False  # as a logger

    def __init__(self, path: str | os.PathLike[str], flush_secs: float = 2.0) -> None:
        self._path = os.path.abspath(path)  # whatever chdir follows
        self._flush_secs = flush_secs
        self._lines: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Lock
        self._started = False
        self.dropped = 0
        """The number of lines that were dropped: the disk failed for too long."""
        self._diagnostics = Diagnostics("The lines")

    def start(self, global_step: int | None = None) -> None:
        """Add the start of a session, once."""
        if not self._started:
            self._started = True
            self._add(global_step, {"event": "start"})

    def add_scalar(self, tag: str, value: float, global_step: int | None = None) -> None:
        """Add a scalar."""
        self._add(global_step, {tag: json_number(float(value))})

    def write(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        """Add logged values as one line, see :class:`~asyncmon.summary.Logger`."""
        plain = {tag: _plain_logged(value) for tag, value in values.items()}
        plain = {tag: value for tag, value in plain.items() if value is not None}
        if plain:
            self._add(step, plain, wall_time)

    def write_config(self, config: Mapping[str, HParam]) -> None:
        """Add hyperparameters as one line, ``{"event": "config", "config": {...}}``."""
        plain = {name: json_number(v) if isinstance(v, float) else v for name, v in config.items()}
        self._add(None, {"event": "config", "config": plain})

    def add_summary(self, summary: Summary | bytes, global_step: int | None = None) -> None:
        """Add a summary, or its serialized bytes, as one line."""
        if not isinstance(summary, Summary):
            summary = Summary.FromString(bytes(summary))
        values = {value.tag: _plain(value) for value in summary.value}
        values = {tag: plain for tag, plain in values.items() if plain is not None}
        if values:
            self._add(global_step, values)

    def add_session_log(self, session_log: SessionLog, global_step: int | None = None) -> None:
        """Add the start or the end of a session, or a checkpoint."""
        line = {"event": _STATUS.get(session_log.status, "unknown")}
        if session_log.checkpoint_path:
            line["path"] = session_log.checkpoint_path
        self._add(global_step, line)

    async def flush(self) -> None:
        """Write and sync all pending lines.

        Raises:
            OSError: the write failed; the lines are kept.
        """
        self._enter_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await shielded(self._write, True, name=f"JsonlWriter {self._path!r}")

    async def close(self, error: BaseException | None = None) -> None:
        """Flush, after a line for an error. No file stays open, so lines may be added later."""
        if error is not None:
            self._add(None, {"event": "error", "error": phrase(error)})
        await self.flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _add(
        self, global_step: int | None, values: dict[str, Any], wall_time: float | None = None
    ) -> None:
        step = None if global_step is None else int(global_step)  # a run may return a numpy number
        line = {"step": step, "time": clock.wall() if wall_time is None else wall_time, **values}
        self._lines.append(json.dumps(line, allow_nan=False))
        with contextlib.suppress(RuntimeError):
            loop = self._enter_loop()
            if self._timer is None:
                self._timer = loop.call_later(self._flush_secs, self._flush_later)

    def _enter_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the timer and the lock belong to an earlier loop
            self._loop, self._timer = loop, None
            locks = _writing.get().setdefault(loop, WeakValueDictionary())
            self._writing = locks.setdefault(os.path.realpath(self._path), asyncio.Lock())
        return loop

    def _flush_later(self) -> None:
        self._timer = None
        self._task = asyncio.create_task(self._write_or_log(), name=f"JsonlWriter {self._path!r}")

    async def _write_or_log(self) -> None:
        with self._diagnostics.tolerated(Path(self._path)):  # the lines are kept
            await self._write(sync=False)

    async def _write(self, sync: bool) -> None:
        async with self._writing:
            lines, self._lines = self._lines, []
            if lines:
                try:
                    await files.append_lines(self._path, lines, sync=sync)
                except BaseException:  # also a cancellation at the end of the loop
                    self._lines[:0] = lines
                    self._drop()
                    raise

    def _drop(self) -> None:
        if (more := len(self._lines) - _MOST_PENDING) > 0:
            del self._lines[:more]
            self.dropped += more
            if self.dropped == more:
                logger.warning("The oldest lines for %r are dropped: there are too many.", self._path)


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json_number(float(number)) for name, number in values.items()}


def _plain(value: Value) -> Any:
    match value.WhichOneof("value"):
        case "simple_value":
            return json_number(value.simple_value)
        case "histo":
            one = value.histo
            mean = one.sum / one.num if one.num else 0.0
            return _numbers({"num": one.num, "min": one.min, "max": one.max, "mean": mean})
        case "tensor" if value.tensor.string_val:
            texts = [text.decode(errors="replace") for text in value.tensor.string_val]
            return texts[0] if len(texts) == 1 else texts
    return None


def _plain_logged(value: LoggedValue) -> Any:
    if isinstance(value, np.ndarray):
        return _numbers({"num": value.size, **extent(value)})
    if isinstance(value, Image):
        return None
    return value if isinstance(value, str) else json_number(float(value))
