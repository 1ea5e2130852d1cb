"""The queue ops: awaited nodes over a :class:`~asyncmon.graph.queues.core.QueueCore` of the session."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.op import AwaitedOpDef, OpDef, Spec, register
from asyncmon.graph.core.shape import TensorShape, is_compatible
from asyncmon.graph.queues.core import QueueCore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncmon.graph.core.dtypes import DType
    from asyncmon.graph.core.node import Operation
    from asyncmon.graph.core.op import Shape
    from asyncmon.graph.execution.run_state import Run
    from asyncmon.graph.queues.order import Element, Shelf

__all__ = ["QueueSpec", "closing_error"]

closing_error: ContextVar[Exception | None] = ContextVar("asyncmon_closing_error", default=None)
"""The error that a run of a queue's ``fail`` op gives to those who wait for elements."""


@dataclass(frozen=True, eq=False)
class QueueSpec:
    """What the ops of one queue share; each session makes its own queue of it.

    ``shapes`` is None where components may have any shape; ``pads`` fills elements of a batch up to the
    largest one.
    """

    kind: str
    name: str
    dtypes: tuple[DType, ...]
    shapes: tuple[Shape, ...] | None
    capacity: int
    min_after_dequeue: int
    shelf: Callable[[], Shelf]
    pads: bool = False

    def __repr__(self) -> str:
        return f"{self.kind} {self.name!r}"

    def core(self, run: Run) -> QueueCore:
        """Return the queue of the session that a run belongs to."""
        return run.resource(self, self._make)

    def _make(self) -> QueueCore:
        return QueueCore(repr(self), self.shelf(), self.capacity, self.min_after_dequeue)

    def component_specs(self) -> tuple[Spec, ...]:
        """Return what one element is."""
        shapes = self.shapes or (None,) * len(self.dtypes)
        return tuple(Spec(dtype, shape) for dtype, shape in zip(self.dtypes, shapes, strict=True))

    def check(self, index: int, shape: tuple[int, ...]) -> None:
        """Refuse a component of a shape that does not fit."""
        expected = None if self.shapes is None else self.shapes[index]
        if expected is None or is_compatible(expected, shape):
            return
        raise InvalidArgumentError(
            f"Shape mismatch in tuple component {index}. Expected {list(expected)}, got {list(shape)}"
        )


# Kernels. An operation that need not wait does not, though it is ``async``.


async def _reserve(run: Run, op: Operation, _handle: Any) -> Any:
    core = op.attrs["queue"].core(run)
    room = await core.reserve(run, op.attrs["count"])
    run.on_abort(partial(core.release, room))
    return room if room.count else None


async def _enqueue(run: Run, op: Operation, _handle: Any, *inputs: Any) -> None:
    queue, room, element = _inputs(op, inputs)
    for index, component in enumerate(element):
        queue.check(index, np.shape(component))
    await _put(run, queue, room, [element])


async def _enqueue_many(run: Run, op: Operation, _handle: Any, *inputs: Any) -> None:
    queue, room, components = _inputs(op, inputs)
    await _put(run, queue, room, _rows(queue, components))


async def _put(run: Run, queue: QueueSpec, room: Any, elements: list[Element]) -> None:
    core = queue.core(run)
    if room is None:
        room = await core.put(run, elements)
        run.on_abort(partial(core.release, room))
    else:
        core.fill(room, elements)
    run.on_commit(partial(core.commit, room))


def _inputs(op: Operation, inputs: Sequence[Any]) -> tuple[QueueSpec, Any, Element]:
    """Return the queue, the room reserved before (or None), and copies of the components.

    Copies, for the arrays may be the user's, or a variable's.
    """
    queue: QueueSpec = op.attrs["queue"]
    count = len(queue.dtypes)
    components = [value.copy() if isinstance(value, np.ndarray) else value for value in inputs[-count:]]
    return queue, inputs[0] if len(inputs) > count else None, tuple(components)


def _rows(queue: QueueSpec, components: Element) -> list[Element]:
    count = len(components[0]) if np.ndim(components[0]) else -1
    for index, component in enumerate(components):
        if np.ndim(component) == 0 or len(component) != count:
            raise InvalidArgumentError(
                f"enqueue_many needs components with the same first dimension; component {index} has "
                f"shape {list(np.shape(component))}, component 0 has {list(np.shape(components[0]))}."
            )
        queue.check(index, np.shape(component)[1:])
    return list(zip(*components, strict=True))


async def _dequeue(run: Run, op: Operation, _handle: Any) -> Any:
    queue: QueueSpec = op.attrs["queue"]
    core = queue.core(run)
    taken = await core.take(run, 1)
    run.on_abort(partial(core.put_back, taken))
    (element,) = taken.elements
    return element if len(element) > 1 else element[0]


async def _dequeue_many(run: Run, op: Operation, _handle: Any, count: Any) -> Any:
    queue: QueueSpec = op.attrs["queue"]
    if count < 0:
        raise InvalidArgumentError(f"Cannot take {count} elements from {queue!r}.")
    core = queue.core(run)
    taken = await core.take(run, int(count), at_most=op.attrs["at_most"])
    run.on_abort(partial(core.put_back, taken))
    columns = [[element[i] for element in taken.elements] for i in range(len(queue.dtypes))]
    batch = tuple(
        _stacked(column, spec, queue.pads)
        for column, spec in zip(columns, queue.component_specs(), strict=True)
    )
    return batch if len(batch) > 1 else batch[0]


def _stacked(values: Sequence[Any], spec: Spec, pads: bool) -> Any:
    """Return a batch; with ``pads``, of the largest extent in each dimension, filled up."""
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    if spec.shape == () and dtype != np.object_:
        return np.array(values, dtype)
    shapes = [np.shape(value) for value in values]
    known = tuple(extent or 0 for extent in spec.shape or ())
    largest = tuple(map(max, zip(known, *shapes, strict=True))) if pads else known
    batch = np.full((len(values), *largest), "" if dtype == np.object_ else 0, dtype)
    for row, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        place: tuple[Any, ...] = (row, *map(slice, shape))
        batch[place] = value
    return batch


async def _close(run: Run, op: Operation, _handle: Any) -> None:
    core = op.attrs["queue"].core(run)
    error = closing_error.get() if op.attrs["fails"] else None
    run.on_commit(partial(core.close, cancel_pending_enqueues=op.attrs["cancel"], error=error))


async def _size(run: Run, op: Operation, _handle: Any) -> Any:
    return np.int32(op.attrs["queue"].core(run).size(run))


async def _is_closed(run: Run, op: Operation, _handle: Any) -> Any:
    return np.bool_(op.attrs["queue"].core(run).closed)


# Shape rules.


def _check_components(components: Sequence[Spec], queue: QueueSpec, leading: int) -> None:
    """Refuse what can be seen to be wrong before the run."""
    for component, expected in zip(components, queue.component_specs(), strict=True):
        shape = component.shape
        if leading and shape == ():
            raise ValueError("Shape () must have rank at least 1")
        inner = shape if shape is None else shape[leading:]
        if not is_compatible(expected.shape, inner):
            raise ValueError(
                f"Shapes {TensorShape(inner)} and {TensorShape(expected.shape)} are incompatible"
            )


def _enqueue_spec(_handle: Spec, *inputs: Spec, queue: QueueSpec) -> tuple[Spec, ...]:
    _check_components(inputs[-len(queue.dtypes) :], queue, 0)
    return ()


def _enqueue_many_spec(_handle: Spec, *inputs: Spec, queue: QueueSpec) -> tuple[Spec, ...]:
    _check_components(inputs[-len(queue.dtypes) :], queue, 1)
    return ()


def _dequeue_spec(_handle: Spec, *, queue: QueueSpec) -> tuple[Spec, ...]:
    return queue.component_specs()


def _dequeue_many_spec(
    _handle: Spec, count: Spec, *, queue: QueueSpec, at_most: bool
) -> tuple[Spec, ...]:
    if not count.dtype.is_integer or count.shape not in (None, ()):
        raise ValueError("The number of elements to dequeue must be an integer scalar.")
    if count.value is not None and count.value < 0:
        raise ValueError(f"Input 'n' must be >= 0, but is {count.value}.")
    specs = queue.component_specs()
    if any(spec.shape is None or (None in spec.shape and not queue.pads) for spec in specs):
        raise ValueError(
            f"{queue.kind}'s DequeueMany and DequeueUpTo require the components to have specified "
            f"shapes. Give shapes= to {queue!r}."
        )
    first = None if at_most or count.value is None else int(count.value)
    return tuple(Spec(spec.dtype, (first, *(spec.shape or ()))) for spec in specs)


def _no_output(*_inputs: Spec, **_attrs: Any) -> tuple[Spec, ...]:
    return ()


def _scalar(dtype: DType) -> Callable[..., Spec]:
    return lambda *_inputs, **_attrs: Spec(dtype, ())


def _register(name: str, kernel: Any, infer: Any, *, changes: bool = True) -> None:
    register(AwaitedOpDef(name, kernel, infer, nowait=True, changes=changes))


def _handle(**_attrs: Any) -> Any:
    return np.array("queue", object)  # nobody looks at it: it ties the ops of a queue together


for _kind in ("FIFOQueueV2", "RandomShuffleQueueV2", "PaddingFIFOQueueV2", "PriorityQueueV2"):
    register(OpDef(_kind, _handle, _scalar(dtypes.string)))
_register("QueueReserve", _reserve, _scalar(dtypes.variant))
_register("QueueEnqueueV2", _enqueue, _enqueue_spec)
_register("QueueEnqueueManyV2", _enqueue_many, _enqueue_many_spec)
_register("QueueDequeueV2", _dequeue, _dequeue_spec)
_register("QueueDequeueManyV2", _dequeue_many, _dequeue_many_spec)
_register("QueueCloseV2", _close, _no_output)
_register("QueueSizeV2", _size, _scalar(dtypes.int32), changes=False)
_register("QueueIsClosedV2", _is_closed, _scalar(dtypes.bool), changes=False)
