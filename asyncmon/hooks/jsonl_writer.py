"""Write summaries as JSON lines."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np

from asyncmon.summary.events import SessionLog, Summary, Value
from asyncmon.summary.logged import Image, LoggedValue, extent
from asyncmon.summary.scalars import json_number
from asyncmon.summary.sink_thread import SinkThread
from asyncmon.summary.values import HParam
from asyncmon.system import clock, files
from asyncmon.system.diagnostics import free_space
from asyncmon.system.error_text import phrase
from asyncmon.system.files import FileCalls
from asyncmon.system.process_local import ProcessLocal

_MOST_PENDING = 100_000  # lines, while the disk fails
_BATCH = 1000  # lines that are written at once
_STATUS = {SessionLog.START: "start", SessionLog.STOP: "stop", SessionLog.CHECKPOINT: "checkpoint"}


class _File:
    """The end of a file, to which all writers of this process append: the target of their sinks.

    One at a time: another one could take half a line for that of a crash.
    """

    def __init__(self, path: str, calls: FileCalls) -> None:
        self._path, self._calls = Path(path), calls
        self._lines: list[str] = []  # of a failed write
        self._lock = threading.Lock()

    @property
    def unwritten(self) -> int:
        return len(self._lines)

    def write(self, records: list[str], sync: bool) -> None:
        with self._lock:
            self._lines += records
            if not self._lines:
                return
            data = "".join(f"{line}\n" for line in self._lines).encode()
            try:
                self._calls.append(self._path, data, sync)
            except OSError as error:
                raise OSError(
                    error.errno,
                    f"The lines cannot be written to {str(self._path)!r}: {error.strerror or error} "
                    f"({free_space(self._path)})",
                ) from error
            self._lines.clear()

    def close(self) -> None:
        """Do nothing: the file is not open."""

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._lines.clear()


_files: ProcessLocal[WeakValueDictionary[str, _File]] = ProcessLocal(WeakValueDictionary)


class JsonlWriter:
    """A summary writer for hooks, and a logger, that writes one JSON object per line.

    Scalars and texts are written by tag, histograms as count, minimum, maximum and mean; images and
    other kinds are omitted. NaN and infinities are the strings ``"NaN"``, ``"Infinity"`` and
    ``"-Infinity"``. Lines are appended to an existing file; steps that a recovery repeats are written
    twice.

    ``add_*`` methods do not block, and need no event loop. A thread writes the lines after
    ``flush_secs``; ``flush`` and ``close`` write them at once, and raise errors of the disk. Lines that
    cannot be written are kept and retried, the newest 100,000.

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
        place = os.path.realpath(path)  # a later chdir changes nothing
        file = _files.get().get(place)
        if file is None:
            file = _files.get()[place] = _File(place, files.system_calls.get())
        self._sink = SinkThread[str](
            f"{place!r}", file, secs=flush_secs, batch=_BATCH, most=_MOST_PENDING
        )
        self._started = False

    @property
    def dropped(self) -> int:
        """The number of lines that were dropped: the disk failed for too long."""
        return self._sink.dropped

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
        await self._sink.flush()

    async def close(self, error: BaseException | None = None) -> None:
        """Flush, after a line for an error. Lines may be added later."""
        if error is not None:
            self._add(None, {"event": "error", "error": phrase(error)})
        await self._sink.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _add(
        self, global_step: int | None, values: dict[str, Any], wall_time: float | None = None
    ) -> None:
        step = None if global_step is None else int(global_step)  # a run may return a numpy number
        line = {"step": step, "time": clock.wall() if wall_time is None else wall_time, **values}
        self._sink.put(json.dumps(line, allow_nan=False))


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
