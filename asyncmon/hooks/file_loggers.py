"""Loggers that write files: TensorBoard's event files, and CSV."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asyncmon.summary.logged import Image, LoggedValue, plain_numbers
from asyncmon.summary.shared_writer import SharedWriter
from asyncmon.summary.values import HParam
from asyncmon.system import files


class TensorBoardLogger:
    """Write logged values to the event file of a directory, for TensorBoard and the monitor.

    The file is the one that all writers of the directory share. Arrays are histograms, hyperparameters
    those of TensorBoard's HParams page.

    Args:
        output_dir: the directory.

    Example::

        hooks = [LoggersHook([TensorBoardLogger("runs/1")])]
    """

    blocking = False

    def __init__(self, output_dir: str | os.PathLike[str]) -> None:
        self.output = SharedWriter(output_dir, None)
        self._config: dict[str, HParam] = {}

    def start(self, global_step: int | None) -> None:
        """Record the start of a session. Hooks may do so, too."""
        self.output.start(global_step)

    def write(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        """Add values to the queue of the event file, with the present time."""
        writer = self.output.file_writer
        if writer is None:
            return
        with self.output.tolerated():
            for tag, value in values.items():
                if isinstance(value, float):
                    writer.add_scalar(tag, value, step)
                elif isinstance(value, str):
                    writer.add_text(tag, value, step)
                elif isinstance(value, Image):
                    writer.add_image(tag, value.pixels, step)
                else:
                    writer.add_histogram(tag, value, step)

    def write_summary(self, step: int | None, wall_time: float, summary: Any) -> None:
        """Add a summary to the queue of the event file, likewise."""
        self.output.add_summary(summary, step)

    def write_config(self, config: Mapping[str, HParam]) -> None:
        """Add all hyperparameters so far."""
        self._config.update(config)
        if self.output.file_writer is not None:
            with self.output.tolerated():
                self.output.file_writer.add_hparams(self._config)

    def flush(self) -> None:
        """Do nothing: a task writes the queue every two seconds."""

    async def close(self, error: BaseException | None = None) -> None:
        """Write pending events; the last writer of the directory closes the file."""
        await self.output.close()


class CsvLogger:
    """Append logged values to a CSV file: ``step,wall_time,tag,value``, one value a row.

    Texts are values like numbers; an array is ``tag/min``, ``tag/max`` and ``tag/mean``; images are
    omitted. Hyperparameters are in a file beside it, ``values.config.csv`` for ``values.csv``, with a
    row of name and value each. A restarted session appends; steps that it repeats are there twice.

    Args:
        path: the file. The first value makes it and its directory.

    Example::

        session = MonitoredTrainingSession(checkpoint_dir="runs/1", loggers=[CsvLogger("1.csv")])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(os.path.abspath(path))  # a later chdir changes nothing

    def write(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        """Append rows. Blocking."""
        texts = {tag: value for tag, value in values.items() if isinstance(value, str)}
        rows = (plain_numbers(values) | texts).items()
        columns = ("step", "wall_time", "tag", "value")
        _append(self._path, columns, [(step, wall_time, tag, value) for tag, value in rows])

    def write_config(self, config: Mapping[str, HParam]) -> None:
        """Append rows to the file of hyperparameters. Blocking."""
        _append(
            self._path.with_suffix(f".config{self._path.suffix}"), ("name", "value"), config.items()
        )

    def flush(self) -> None:
        """Do nothing: rows are in the file."""

    def close(self, error: BaseException | None = None) -> None:
        """Do nothing: the file is not open."""


def _append(path: Path, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    calls, text = files.system_calls.get(), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not calls.exists(path):
        writer.writerow(columns)
    writer.writerows(rows)
    calls.append(path, text.getvalue().encode(), False)
