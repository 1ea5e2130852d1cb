"""TF1's readers: ``tf.TFRecordReader``, ``tf.TextLineReader`` and kin.

A reader dequeues file names and returns the records of the files one by one::

    names = tf.train.string_input_producer(["a.tfrecord", "b.tfrecord"], num_epochs=1)
    key, serialized = tf.TFRecordReader().read(names)

The open file of a reader belongs to a session. A run that fails or is cancelled loses no record: the
next run gets its records or, if no other run has read from the file that it opened, the name returns to
the head of the queue. Worker threads read files some records ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asyncmon.errors import InvalidArgumentError, OpError
from asyncmon.graph import DeviceSpec, device
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import control_dependencies, create_op, create_operation
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.execution.run import Run
from asyncmon.graph.queues.core import QueueCore, Request
from asyncmon.graph.queues.ops import QueueSpec, awaited, gives, immediate, resource_name
from asyncmon.graph.queues.queues import FIFOQueue, QueueBase
from asyncmon.protobuf.tfrecord import read_chunks, read_records
from asyncmon.runtime import QueueRunner, add_queue_runner
from asyncmon.system.files import in_thread
from asyncmon.tf1.file_ops import file_errors
from asyncmon.tf1.python_io import TFRecordOptions

__all__ = [
    "FixedLengthRecordReader", "IdentityReader", "ReaderBase", "TFRecordReader", "TextLineReader",
    "WholeFileReader",
]  # fmt: skip

Record = tuple[bytes, bytes]
"""Key and value."""

Texts = tuple[Any, ...]
"""A record as string scalars of a run."""


class ReaderRead(NamedTuple):
    """The key (file and position) and the value of a record, string scalars."""

    key: Tensor
    value: Tensor


class ReaderReadUpTo(NamedTuple):
    """The keys and the values of records, string vectors."""

    keys: Tensor
    values: Tensor


class ReaderBase:
    """The base class of readers. TF1: ``tf.ReaderBase``.

    In a run, its operations raise ``OutOfRangeError`` at the end of a closed queue, ``NotFoundError``
    if there is no such file, ``DataLossError`` if it is damaged. A cancelled run waits for the current
    read of a file; closing the session closes the file.
    """

    def __init__(self, kind: str, name: str | None, *options: int | str) -> None:
        with control_dependencies(None):
            self.reader_ref: Tensor = create_op(f"{kind}ReaderV2", (), None, name or f"{kind}ReaderV2")
        self.name = self.reader_ref.op.name
        self._spec = ReaderSpec(kind, resource_name(self.reader_ref), options)
        self._relays: dict[QueueBase, QueueBase] = {}

    @property
    def supports_serialize(self) -> bool:
        """False: the position of a reader is not saved."""
        return False

    def read(self, queue: QueueBase, name: str | None = None) -> ReaderRead:
        """Return the next record. If no file is open, the run waits for a name.

        A queue of another task, by the devices, is read through a queue of the reader's task, which a
        queue runner fills one name ahead.
        """
        return ReaderRead(*self._op("ReaderReadV2", name, queue=self._spec_of(queue)))

    def read_up_to(self, queue: QueueBase, num_records: Any, name: str | None = None) -> ReaderReadUpTo:
        """Return up to ``num_records`` records, an integer or a tensor; fewer at the end of a file.

        See :meth:`read` for a queue of another task.
        """
        outputs = self._op("ReaderReadUpToV2", name, num_records, queue=self._spec_of(queue))
        return ReaderReadUpTo(*outputs)

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """Return the number of records read in this session, an int64 scalar."""
        return self._op("ReaderNumRecordsProducedV2", name)[0]

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """Return the number of files completed in this session, an int64 scalar."""
        return self._op("ReaderNumWorkUnitsCompletedV2", name)[0]

    def reset(self, name: str | None = None) -> Operation:
        """Return an operation that drops the rest of the open file and resets the counts."""
        attrs = {"reader": self._spec}
        return create_operation("ReaderResetV2", [self.reader_ref], attrs, name or "ReaderResetV2")

    def _op(self, kind: str, name: str | None, *inputs: Any, **attrs: Any) -> tuple[Tensor, ...]:
        attrs["reader"] = self._spec
        return create_operation(kind, [self.reader_ref, *inputs], attrs, name or kind).outputs

    def _spec_of(self, queue: Any) -> QueueSpec:
        """Return the queue of names that is on the reader's task.

        Raises:
            TypeError: not a queue of names.
        """
        if not isinstance(queue, QueueBase):
            raise TypeError(f"A reader takes the names of files from a queue, got {queue!r}.")
        if queue.dtypes != [dtypes.string]:
            raise TypeError(
                f"A reader needs a queue of names, with one string component, got {queue!r}."
            )
        own = self.reader_ref.op.device
        if _task(own) == _task(queue.queue_ref.op.device):
            return queue._spec
        if queue not in self._relays:
            with device(None), device(own):
                relay = FIFOQueue(1, [dtypes.string], [()], name=f"{self.name}_names")
            add_queue_runner(QueueRunner(relay, [relay.enqueue(queue.dequeue())]))
            self._relays[queue] = relay
        return self._relays[queue]._spec


def _task(device_name: str) -> tuple[str | None, int | None]:
    found = DeviceSpec.from_string(device_name)
    return found.job, found.task


class TFRecordReader(ReaderBase):
    """The records of TFRecord files; keys are ``file:byte``. TF1: same name.

    ``options`` set the compression.
    """

    def __init__(self, name: str | None = None, options: TFRecordOptions | None = None) -> None:
        super().__init__("TFRecord", name, TFRecordOptions.get_compression_type_string(options))


class TextLineReader(ReaderBase):
    r"""The lines of text files without their ends (``\n`` or ``\r\n``); keys are ``file:number``.

    TF1: same name. The first ``skip_header_lines`` of each file are skipped. Numbers begin with 1 and
    include the skipped lines.
    """

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        super().__init__("TextLine", name, int(skip_header_lines or 0))


class WholeFileReader(ReaderBase):
    """The contents of whole files; keys are their names. TF1: same name."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__("WholeFile", name)


class IdentityReader(ReaderBase):
    """The elements of the queue themselves, as keys and values. TF1: same name."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__("Identity", name)


class FixedLengthRecordReader(ReaderBase):
    """Records of ``record_bytes``; keys are ``file:number``. TF1: same name.

    The header and the footer of each file are skipped. ``hop_bytes`` is the distance between the starts
    of two records, by default their length. ``encoding`` is "ZLIB" or "GZIP" for compressed files;
    sizes are those of the decompressed data.

    Raises:
        ValueError: a negative size, a record length of 0, or an unknown encoding.
    """

    def __init__(
        self,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        hop_bytes: int | None = None,
        name: str | None = None,
        encoding: str | None = None,
    ) -> None:
        length, header, footer = int(record_bytes), int(header_bytes or 0), int(footer_bytes or 0)
        hop = int(hop_bytes or 0) or length
        compression = TFRecordOptions.get_compression_type_string(encoding)
        if length < 1 or min(header, footer, hop) < 0:
            raise ValueError(
                "record_bytes must be positive and header_bytes, footer_bytes, hop_bytes not negative, "
                f"got {record_bytes}, {header_bytes}, {footer_bytes}, {hop_bytes}."
            )
        super().__init__("FixedLengthRecord", name, length, header, footer, hop, compression)


@dataclass(frozen=True)
class ReaderSpec:
    """The attributes of the ops of one reader, from which each session creates its reader.

    Attributes:
        kind: a key of the table of formats.
        name: the name of the session's reader, see :func:`~asyncmon.graph.queues.ops.resource_name`.
        options: passed to the function that reads a file.
    """

    kind: str
    name: str
    options: tuple[int | str, ...] = ()

    def state(self, run: Run) -> _Reader:
        """Return the reader of the session that a run belongs to."""
        return run.resources.get(self.name) or run.resource(self.name, self._make)

    def _make(self) -> _Reader:
        if self.kind not in _FORMATS:  # a client's graph may have any
            raise InvalidArgumentError(f"Reader kind {self.kind!r} is not one of {list(_FORMATS)}.")
        records, one_each = _FORMATS[self.kind]

        def opened(path: str) -> Generator[Sequence[Record]]:
            with file_errors(path):
                yield from records(path, *self.options)

        return _Reader(opened, one_each)


@dataclass(slots=True, eq=False)
class _File:
    """An open file.

    Attributes:
        name: its element of the queue.
        source: the iterator of its records; None at its end.
        records: the records read ahead.
        error: the error that follows these records.
        owner: the run that opened it, until that commits or another run reads from the file.
        done: a run has taken its last record.
    """

    name: str
    source: Generator[Sequence[Record]] | None
    owner: Run | None
    records: deque[Texts]
    error: OpError | None = None
    done: bool = False

    def advance(self) -> None:
        """Read ahead in a worker thread, and store the records: the run may be cancelled."""
        assert self.source is not None, "a file is read to its end only once"
        try:
            self.records.extend([tuple(map(dtypes.as_objects, pair)) for pair in next(self.source)])
        except StopIteration:
            self.source = None
        except OpError as error:
            self.error = error

    def settle(self) -> None:
        """Keep the name dequeued: the run that opened the file has committed."""
        self.owner = None

    def close(self) -> None:
        """Close the file; if a thread is reading it, the garbage collector does."""
        if self.source is not None:
            try:
                self.source.close()
            except ValueError:
                return


class _Reader:
    """The state of a reader in a session, used in the thread of the event loop."""

    def __init__(self, open_file: Callable[[str], Generator[Sequence[Record]]], one_each: bool) -> None:
        self.produced = self.completed = 0
        self._open = open_file
        self._one_each = one_each
        self._busy = False  # a run is reading ahead or waiting for a name
        self._idle = asyncio.Event()
        self._file: _File | None = None
        self._returned: deque[Texts] = deque()

    def read_nowait(self, run: Run) -> Texts | None:
        """Return a record that was read ahead, or None if there is none."""
        file = self._file
        if self._busy or self._returned or self._one_each or file is None or not file.records:
            return None
        if file.owner is not run:
            file.owner = None
        record = file.records.popleft()
        run.on_abort(partial(self._return, run, [(file, record)]))
        self.produced += 1
        return record

    async def read(self, run: Run, queue: QueueSpec, count: int) -> list[Texts]:
        """Return up to ``count`` records, at least one. They return to the reader if the run fails."""
        taken: list[tuple[_File | None, Texts]] = []
        run.on_abort(partial(self._return, run, taken))
        while self._busy:
            await self._idle.wait()  # wakes all waiters; a lock would wake one after another
        self._busy = True
        self._idle.clear()
        try:
            while len(taken) < count:
                if self._returned:
                    taken.append((None, self._returned.popleft()))
                elif not await self._read_one(run, queue, taken):
                    break
        finally:
            self.produced += len(taken)
            self._busy = False
            self._idle.set()
        return [record for _file, record in taken]

    async def _read_one(self, run: Run, queue: QueueSpec, taken: list[Any]) -> bool:
        """Take a record, open a file or read ahead. Return False if the run must not wait for more."""
        file = self._file
        if file is None:
            if taken:
                return False
            file = await self._open_next(run, queue)
        elif file.owner is not run:
            file.owner = None
        if file.records:
            taken.append((file, file.records.popleft()))
            if not self._one_each:
                return True
        elif file.error is not None:
            raise type(file.error)(file.error.message)
        elif file.source is not None:
            await in_thread(file.advance)
            return True
        if self._file is file:  # else it was reset
            self._file, file.done = None, True
            self.completed += 1
        return not taken

    async def _open_next(self, run: Run, queue: QueueSpec) -> _File:
        core = queue.core(run)
        request = await core.take(run, 1)
        ((name,),) = request.elements
        name = name.item() if isinstance(name, np.ndarray) else name
        path = name.decode() if isinstance(name, bytes) else str(name)
        self._file = file = _File(path, self._open(path), run, deque())
        run.on_abort(partial(self._close_again, run, file, core, request))
        run.on_commit(file.settle)
        return file

    def _close_again(self, run: Run, file: _File, core: QueueCore, request: Request) -> None:
        if file.owner is not run:
            return
        core.restore(request)
        self.completed -= file.done
        if self._file is file:
            self._file = None
        file.close()

    def _return(self, run: Run, taken: list[tuple[_File | None, Texts]]) -> None:
        self.produced -= len(taken)
        kept = [record for file, record in taken if file is None or file.owner is not run]
        self._returned.extendleft(reversed(kept))

    def reset(self) -> None:
        """Drop the rest of the file that is open, and count from 0."""
        self.produced = self.completed = 0
        self._returned.clear()
        self.session_closed()

    def session_closed(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


# --- kernels -------------------------------------------------------------------------------------
def _state(run: Run, op: Operation) -> _Reader:
    reader: ReaderSpec = op.attrs["reader"]
    return reader.state(run)


async def _read(run: Run, op: Operation, _handle: Any) -> Any:
    state = _state(run, op)
    record = state.read_nowait(run)
    if record is None:
        (record,) = await state.read(run, op.attrs["queue"], 1)
    return record


async def _read_up_to(run: Run, op: Operation, _handle: Any, count: Any) -> tuple[Any, Any]:
    if count < 1:
        raise InvalidArgumentError(f"num_records must be positive, got {count}.")
    records = await _state(run, op).read(run, op.attrs["queue"], int(count))
    columns = np.empty((2, len(records)), object)
    for i, record in enumerate(records):
        columns[:, i] = [text[()] for text in record]
    return columns[0], columns[1]


_STRING, _STRINGS = Spec(dtypes.string, ()), Spec(dtypes.string, (None,))


def _read_up_to_rule(_handle: Spec, count: Spec, **attrs: Any) -> tuple[Spec, ...]:
    if not count.dtype.is_integer or count.shape not in (None, ()):
        raise ValueError("num_records must be an integer scalar.")
    return _STRINGS, _STRINGS


_COUNT = gives(Spec(dtypes.int64, ()))
awaited("ReaderReadV2", _read, gives(_STRING, _STRING))
awaited("ReaderReadUpToV2", _read_up_to, _read_up_to_rule)
for _name, _count in (
    ("ReaderNumRecordsProducedV2", attrgetter("produced")),
    ("ReaderNumWorkUnitsCompletedV2", attrgetter("completed")),
):
    _kernel = immediate(lambda run, op, _, of=_count: np.int64(of(_state(run, op))))
    awaited(_name, _kernel, _COUNT, changes=False)
awaited("ReaderResetV2", immediate(lambda run, op, _: run.on_commit(_state(run, op).reset)), gives())


# --- formats: generators of lists of records; an OpError follows the records before it -------------
def _tfrecords(path: str, compression: str) -> Generator[Sequence[Record]]:
    for records in read_records(path, compression):
        yield [(b"%s:%d" % (path.encode(), offset), record) for offset, record in records]


def _lines(path: str, skipped: int) -> Generator[Sequence[Record]]:
    rest, number = b"", 0
    for chunk in read_chunks(path):
        *lines, rest = (rest + chunk).split(b"\n")
        yield _numbered(path, skipped, number, lines)
        number += len(lines)
    if rest:
        yield _numbered(path, skipped, number, [rest])


def _numbered(path: str, skipped: int, before: int, lines: list[bytes]) -> list[Record]:
    first = max(skipped - before, 0)
    return [
        (b"%s:%d" % (path.encode(), number), line.removesuffix(b"\r"))
        for number, line in enumerate(lines[first:], before + first + 1)
    ]


def _fixed(
    path: str, length: int, header: int, footer: int, hop: int, compression: str
) -> Generator[Sequence[Record]]:
    rest, skipped, number = b"", header, 0
    for chunk in read_chunks(path, compression):
        rest += chunk
        skipped, rest = skipped - len(rest[:skipped]), rest[skipped:]
        last = len(rest) - footer - length
        starts = range(0, last + 1, hop)
        yield [
            (b"%s:%d" % (path.encode(), i), rest[start : start + length])
            for i, start in enumerate(starts, number)
        ]
        number += len(starts)
        taken = len(starts) * hop
        skipped, rest = max(taken - len(rest), 0), rest[taken:]


# The function of each kind of reader, and whether each file is one record.
_FORMATS: dict[str, tuple[Callable[..., Iterable[Sequence[Record]]], bool]] = {
    "TFRecord": (_tfrecords, False),
    "TextLine": (_lines, False),
    "WholeFile": (lambda path: [[(path.encode(), Path(path).read_bytes())]], True),
    "Identity": (lambda path: [[(path.encode(), path.encode())]], True),
    "FixedLengthRecord": (_fixed, False),
}

for _kind in _FORMATS:  # the output of the reader's node only connects its ops
    register(OpDef(f"{_kind}ReaderV2", lambda: np.array("reader", object), lambda: _STRING))
