"""Find the runs of a log directory and read their scalars."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from asyncmon.errors import OpError
from asyncmon.protobuf import WireError, read_varint, signed
from asyncmon.protobuf.tf_types import DTYPES
from asyncmon.summary.entries import scalar_fields
from asyncmon.summary.events import Event, SessionLog, Value
from asyncmon.summary.reader import EventTail, is_event_file
from asyncmon.system.folders import folders

_WALL_TIME, _STEP = 1 << 3 | 1, 2 << 3  # the keys of these fields of an event
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_MOST_TAGS = 10_000


class Scalar(NamedTuple):
    """A value of a tag at a step; ``wall_time`` is in seconds since 1970."""

    wall_time: float
    step: int
    tag: str
    value: float


class ScalarRecords:
    """Decodes records of one scalar with a known tag, ten times as fast as :class:`Event` does.

    Apart from time, step and number, the bytes of such a record depend on the tag alone.
    """

    def __init__(self) -> None:
        self._tags: dict[bytes, str] = {}

    def learn(self, tag: str) -> None:
        """Add a tag to the known ones."""
        if len(self._tags) < _MOST_TAGS:
            self._tags[scalar_fields(tag, 0.0)[:-4]] = tag

    def decode(self, record: bytes) -> Scalar | None:
        """Return the scalar of a record; None if it may have other content."""
        if len(record) < 16 or record[0] != _WALL_TIME:
            return None
        try:
            step, at = read_varint(record, 10) if record[9] == _STEP else (0, 9)
        except WireError:
            return None
        tag = self._tags.get(record[at:-4])
        if tag is None:
            return None
        (wall_time,), (value,) = _DOUBLE.unpack_from(record, 1), _FLOAT.unpack(record[-4:])
        return Scalar(wall_time, signed(step), tag, value)


def find_event_files(
    logdir: str | os.PathLike[str], on_error: Callable[[OSError], None] | None = None
) -> dict[str, list[str]]:
    """Return the event files of each run below a directory, ordered by their start. Blocking.

    A run is a folder with event files. Its name is the path relative to ``logdir``, ``"."`` for
    ``logdir`` itself. Links are not followed, and hidden folders are skipped.

    Args:
        logdir: the directory.
        on_error: called with the error of each folder that cannot be listed, and if there are over
            20,000 folders: the others are not read.
    """
    runs = {}
    for folder, entries in folders(os.fspath(logdir), on_error):
        events = [entry for entry in entries if is_event_file(entry.name)]
        if found := [entry.path for entry in events if entry.is_file()]:  # no pipe, which would block
            runs[os.path.relpath(folder, logdir)] = found
    return dict(sorted(runs.items()))


def scalars_of(event: Event) -> Iterator[Scalar]:
    """Yield the scalars of an event, including those of TensorFlow 2, which are tensors."""
    for value in event.summary.value:
        number = scalar_of(value)
        if number is not None:
            yield Scalar(event.wall_time, event.step, value.tag, number)


def restarted_at(event: Event) -> int | None:
    """Return the first step after a restart if the event is a ``START``, else None."""
    # Earlier points of that step and later ones belong to lost steps.
    return event.step if event.session_log.status == SessionLog.START else None


def read_scalars(
    event_files: Iterable[str], on_damage: Callable[[Exception], None] | None = None
) -> dict[str, Sequence[Scalar]]:
    """Return the points of each tag of one run, as TensorBoard displays them. Blocking.

    Points of steps that were lost by a restart from a checkpoint are left out.

    Args:
        event_files: of the run, in the order of their start.
        on_damage: called with the error of each file that cannot be read to its end. Points before the
            damage count, and the other files are read.

    Raises:
        NotFoundError: there is no such file, without ``on_damage``.
        DataLossError: a record is damaged, without ``on_damage``.
    """
    points: dict[str, list[Scalar]] = {}
    for path in event_files:
        for event in _events(path, on_damage):
            step = restarted_at(event)
            if step is not None:
                for tag, old in points.items():
                    points[tag] = [point for point in old if point.step < step]
            for point in scalars_of(event):
                points.setdefault(point.tag, []).append(point)
    return {tag: found for tag, found in points.items() if found}


def _events(path: str, on_damage: Callable[[Exception], None] | None) -> Iterator[Event]:
    tail = EventTail(path)
    try:
        while not tail.at_end:
            yield from tail.events(tail.read())
            tail.check()
    except (OpError, OSError) as error:
        if on_damage is None:
            raise
        on_damage(error)


def json_number(value: float) -> float | str:
    """Return a number for JSON: NaN and infinities as strings, as in protobuf's JSON."""
    return value if math.isfinite(value) else json.dumps(value)


def scalar_of(value: Value) -> float | None:
    """Return the number of a scalar, possibly a tensor of TensorFlow 2; None for other kinds."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return value.simple_value
    if kind != "tensor" or value.metadata.plugin_data.plugin_name != "scalars":
        return None
    tensor = value.tensor
    numbers = [*tensor.float_val, *tensor.double_val]
    if not numbers and tensor.dtype == DTYPES["float32"] and len(tensor.tensor_content) == 4:
        numbers = list(struct.unpack("<f", tensor.tensor_content))
    return numbers[0] if len(numbers) == 1 else None
