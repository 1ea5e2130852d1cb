"""The scalars of log directories: which runs there are, and their points in order."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from asyncmon.protobuf import WireError, read_varint, signed
from asyncmon.protobuf.tf_types import DTYPES
from asyncmon.summary.event_queue import scalar_fields
from asyncmon.summary.events import Event, SessionLog, Value
from asyncmon.summary.reader import summary_iterator

_WALL_TIME, _STEP = 1 << 3 | 1, 2 << 3  # how these fields of an event begin
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_MOST_TAGS = 10_000


class Scalar(NamedTuple):
    """A value of a tag at a step; ``wall_time`` is in seconds since 1970."""

    wall_time: float
    step: int
    tag: str
    value: float


class ScalarRecords:
    """Decodes records of single numbers, of known tags, ten times as fast as :class:`Event` does.

    Of such a record all but the time, the step and the number is fixed by the tag.
    """

    def __init__(self) -> None:
        self._tags: dict[bytes, str] = {}

    def learn(self, tag: str) -> None:
        """Decode the records of a tag from now on."""
        if len(self._tags) < _MOST_TAGS:
            self._tags[scalar_fields(tag, 0.0)[:-4]] = tag

    def decode(self, record: bytes) -> Scalar | None:
        """Return the number that a record holds; None for any record that may hold something else."""
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


def find_event_files(logdir: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return the event files of each run below a directory, in the order they were begun. Blocking.

    A run is a folder with event files, named by its path below ``logdir``, which itself is ``"."``.
    Links to folders are not followed.
    """
    runs = {}
    for folder, inner, names in os.walk(logdir):
        inner.sort()
        found = sorted(name for name in names if ".tfevents." in name or name.endswith(".tfevents"))
        if found:
            runs[os.path.relpath(folder, logdir)] = [os.path.join(folder, name) for name in found]
    return runs


def scalars_of(event: Event) -> Iterator[Scalar]:
    """Yield the scalars of one event, also those that TensorFlow 2 writes, as tensors."""
    for value in event.summary.value:
        number = scalar_of(value)
        if number is not None:
            yield Scalar(event.wall_time, event.step, value.tag, number)


def restarted_at(event: Event) -> int | None:
    """Return the step with which a run began anew, for an event that says so.

    Points of that step and later ones that were written before are of steps that were lost.
    """
    return event.step if event.session_log.status == SessionLog.START else None


def read_scalars(event_files: Iterable[str]) -> dict[str, Sequence[Scalar]]:
    """Return the points of each tag of one run, as TensorBoard shows them. Blocking.

    After a restart from a checkpoint, points of lost steps are left out.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: a record is damaged.
    """
    points: dict[str, list[Scalar]] = {}
    for path in event_files:
        for event in summary_iterator(path):
            step = restarted_at(event)
            if step is not None:
                for tag, old in points.items():
                    points[tag] = [point for point in old if point.step < step]
            for point in scalars_of(event):
                points.setdefault(point.tag, []).append(point)
    return {tag: found for tag, found in points.items() if found}


def scalar_of(value: Value) -> float | None:
    """Return a scalar, also one that TensorFlow 2 wrote as a tensor; None for other kinds."""
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
