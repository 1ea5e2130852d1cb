"""Readers: the records of the files whose names a queue has. TF1: ``tf.ReaderBase``.

What a reader has open belongs to a session. A run that fails or is cancelled loses nothing: its records
are read next, or, where no other run has read from the file that it opened, the name goes back to the
head of its queue. Files are read in worker threads, some records ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from asyncmon.errors import InvalidArgumentError, OpError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import control_dependencies, create_op, create_operation
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import WAITS, AwaitedOpDef, OpDef, Spec, register
from asyncmon.graph.execution.run import Run
from asyncmon.graph.queues.core import QueueCore, Request
from asyncmon.graph.queues.ops import QueueSpec, awaited, resource_name
from asyncmon.graph.queues.queues import QueueBase
from asyncmon.system.files import in_thread

Record = tuple[bytes, bytes]
"""Key and value."""

Texts = tuple[Any, ...]
"""The same as string scalars of a run."""


class ReaderRead(NamedTuple):
    """String scalars: where the record is, and what it holds."""

    key: Tensor
    value: Tensor


class ReaderReadUpTo(NamedTuple):
    """String vectors of one length: where the records are, and what they hold."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class ReaderSpec:
    """What the ops of one reader share: plain data. Each session makes its own reader of it.

    Attributes:
        kind: see :func:`register_reader`.
        name: of the session's reader, see :func:`~asyncmon.graph.queues.ops.resource_name`.
        options: passed to the function that reads a file.
    """

    kind: str
    name: str
    options: tuple[int | str, ...] = ()

    def state(self, run: Run) -> _Reader:
        """Return the reader of the session that a run belongs to.

        Raises:
            InvalidArgumentError: the kind is not registered.
        """
        return run.resources.get(self.name) or run.resource(self.name, self._make)

    def _make(self) -> _Reader:
        found = _formats.get(self.kind)
        if found is None:
            kind = f"Reader kind {self.kind!r}"
            raise InvalidArgumentError(f"{kind} is not registered. Import the module that defines it.")
        records, one_each = found
        return _Reader(lambda path: records(path, *self.options), one_each)


Records: TypeAlias = "Callable[..., Iterator[Sequence[Record]]]"
"""``records(path, *options)`` yields the records of a file, some at a time.

It runs in a worker thread, one step at a time. It raises OpError; what was yielded before is delivered
first.
"""

_formats: dict[str, tuple[Records, bool]] = {}


def register_reader(kind: str, records: Records, *, one_each: bool = False) -> None:
    """Add a kind of reader: ``"TFRecord"``.

    Args:
        kind: without ``Reader``.
        records: reads a file.
        one_each: a file is one record, and known to be at its end with that.
    """

    def rule() -> Spec:
        return _STRING

    rule.__module__ = records.__module__  # imported where a graph with such a reader is received
    _formats[kind] = records, one_each
    # The value of a reader's own node only ties its ops together.
    register(OpDef(f"{kind}ReaderV2", lambda: np.array("reader", object), rule))


class ReaderBase:
    """What all readers have in common. TF1: ``tf.ReaderBase``. Made by its subclasses.

    In a run, its operations raise ``OutOfRangeError`` at the end of a closed queue, ``NotFoundError``
    where there is no such file, ``DataLossError`` where one is damaged. A cancelled run waits for the
    read of a file that is under way; closing the session closes the file.
    """

    def __init__(self, kind: str, name: str | None, *options: int | str) -> None:
        with control_dependencies(None):
            self.reader_ref: Tensor = create_op(f"{kind}ReaderV2", (), None, name or f"{kind}ReaderV2")
        self.name = self.reader_ref.op.name
        self._spec = ReaderSpec(kind, resource_name(self.reader_ref), options)

    @property
    def supports_serialize(self) -> bool:
        """False: the position of a reader is not saved."""
        return False

    def read(self, queue: QueueBase, name: str | None = None) -> ReaderRead:
        """Return the next record. The run waits for a name where no file is open."""
        return ReaderRead(*self._op("ReaderReadV2", name, queue=_spec(queue)))

    def read_up_to(self, queue: QueueBase, num_records: Any, name: str | None = None) -> ReaderReadUpTo:
        """Return up to so many records, an integer or a tensor; fewer at the end of each file."""
        outputs = self._op("ReaderReadUpToV2", name, num_records, queue=_spec(queue))
        return ReaderReadUpTo(*outputs)

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """Return an int64 scalar: how many records were read in this session."""
        return self._op("ReaderNumRecordsProducedV2", name)[0]

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """Return an int64 scalar: of how many files the end was reached in this session."""
        return self._op("ReaderNumWorkUnitsCompletedV2", name)[0]

    def reset(self, name: str | None = None) -> Operation:
        """Return an operation that drops the rest of the open file and sets the counts to 0."""
        attrs = {"reader": self._spec}
        return create_operation("ReaderResetV2", [self.reader_ref], attrs, name or "ReaderResetV2")

    def _op(self, kind: str, name: str | None, *inputs: Any, **attrs: Any) -> tuple[Tensor, ...]:
        attrs["reader"] = self._spec
        return create_operation(kind, [self.reader_ref, *inputs], attrs, name or kind).outputs


def _spec(queue: Any) -> QueueSpec:
    if not isinstance(queue, QueueBase):
        raise TypeError(f"A reader takes the names of files from a queue, got {queue!r}.")
    spec = queue._spec
    if [component.dtype for component in spec.components] != [dtypes.string]:
        raise TypeError(f"A reader needs a queue of names, with one string component, got {queue!r}.")
    return spec


@dataclass(slots=True, eq=False)
class _File:
    """A file that is being read.

    Attributes:
        name: as it was in the queue.
        source: yields its records; None at its end.
        records: those read ahead.
        error: why no more of it can be read.
        owner: the run that opened it, as long as no other one has read from it; None afterwards.
        done: its end was reached by a run.
    """

    name: str
    source: Iterator[Sequence[Record]] | None
    owner: Run | None
    records: deque[Texts]
    error: OpError | None = None
    done: bool = False

    def advance(self) -> None:
        """Read ahead, in a worker thread. The result is kept here: the run may be cancelled."""
        assert self.source is not None, "a file is read to its end only once"
        try:
            self.records.extend([tuple(map(dtypes.as_objects, pair)) for pair in next(self.source)])
        except StopIteration:
            self.source = None
        except OpError as error:
            self.error = error

    def settle(self) -> None:
        """Keep the name: the run that opened it has committed."""
        self.owner = None

    def close(self) -> None:
        """Close the file; one that a thread reads at present is closed by the garbage collector."""
        if self.source is not None:
            try:
                self.source.close()  # type: ignore[attr-defined]  # a generator
            except ValueError:
                return


class _Reader:
    """The state of a reader in a session. On the loop's thread."""

    def __init__(self, open_file: Callable[[str], Iterator[Sequence[Record]]], one_each: bool) -> None:
        self.produced = self.completed = 0
        self._open = open_file
        self._one_each = one_each
        self._busy = False  # a run reads ahead, or waits for a name
        self._idle = asyncio.Event()
        self._file: _File | None = None
        self._returned: deque[Texts] = deque()

    def read_nowait(self, run: Run) -> Any:
        """Return a record that was read ahead, or WAITS."""
        file = self._file
        if self._busy or self._returned or self._one_each or file is None or not file.records:
            return WAITS
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
            await self._idle.wait()  # all that wait go on: a lock would pass from one to the next
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
        """Take a record, or get nearer to it. Return False where those that were taken must do."""
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


# --- kernels: what can be done without waiting, and else a coroutine ------------------------------
def _try_read(run: Run, op: Operation, _handle: Any) -> Any:
    return op.attrs["reader"].state(run).read_nowait(run)


async def _read(run: Run, op: Operation, _handle: Any) -> Any:
    (record,) = await op.attrs["reader"].state(run).read(run, op.attrs["queue"], 1)
    return record


async def _read_up_to(run: Run, op: Operation, _handle: Any, count: Any) -> tuple[Any, Any]:
    if count < 1:
        raise InvalidArgumentError(f"num_records must be positive, got {count}.")
    records = await op.attrs["reader"].state(run).read(run, op.attrs["queue"], int(count))
    columns = np.empty((2, len(records)), object)
    for i, record in enumerate(records):
        columns[:, i] = [text[()] for text in record]
    return columns[0], columns[1]


def _try_produced(run: Run, op: Operation, _handle: Any) -> Any:
    return np.int64(op.attrs["reader"].state(run).produced)


def _try_completed(run: Run, op: Operation, _handle: Any) -> Any:
    return np.int64(op.attrs["reader"].state(run).completed)


def _try_reset(run: Run, op: Operation, _handle: Any) -> None:
    run.on_commit(op.attrs["reader"].state(run).reset)


_STRING, _STRINGS = Spec(dtypes.string, ()), Spec(dtypes.string, (None,))


def _read_up_to_rule(_handle: Spec, count: Spec, **attrs: Any) -> tuple[Spec, ...]:
    if not count.dtype.is_integer or count.shape not in (None, ()):
        raise ValueError("num_records must be an integer scalar.")
    return _STRINGS, _STRINGS


def _count_rule(_handle: Spec, **attrs: Any) -> Spec:
    return Spec(dtypes.int64, ())


def _read_rule(_handle: Spec, **attrs: Any) -> tuple[Spec, ...]:
    return _STRING, _STRING


awaited("ReaderReadV2", _try_read, _read_rule, _read)
register(AwaitedOpDef("ReaderReadUpToV2", _read_up_to, _read_up_to_rule, nowait=True, changes=True))
awaited("ReaderNumRecordsProducedV2", _try_produced, _count_rule, changes=False)
awaited("ReaderNumWorkUnitsCompletedV2", _try_completed, _count_rule, changes=False)
awaited("ReaderResetV2", _try_reset, lambda _handle, **attrs: ())
