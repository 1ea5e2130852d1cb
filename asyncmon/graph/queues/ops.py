"""The queue ops: awaited ops on a :class:`~asyncmon.graph.queues.core.QueueCore` of the session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import AwaitedOpDef, OpDef, Spec, register
from asyncmon.graph.core.shape import TensorShape
from asyncmon.graph.execution.run import Run
from asyncmon.graph.queues.core import QueueCore
from asyncmon.graph.queues.order import Element, order_of

closing_error: ContextVar[Exception | None] = ContextVar("asyncmon_closing_error", default=None)
"""The error that a run of a queue's ``fail`` op gives to requests for elements."""


@dataclass(frozen=True)
class QueueSpec:
    """The data shared by the ops of one queue. Each session makes its own queue from it.

    ``pads`` fills the elements of a batch up to the largest one. Queues with one ``shared_name`` in one
    container are one queue of the session, and so are those with one ``name``, see
    :func:`resource_name`.
    """

    kind: str
    name: str
    components: tuple[Spec, ...]
    capacity: int
    min_after_dequeue: int
    pads: bool = False
    seed: int | None = None
    shared_name: str | None = None
    container: str = ""

    def __repr__(self) -> str:
        return f"{self.kind} {self.name!r}"

    def core(self, run: Run) -> QueueCore:
        """Return the queue of the session that a run belongs to.

        Raises:
            InvalidArgumentError: a different queue has the same ``shared_name``. Without a seed, the
                seed of that queue is accepted.
        """
        if not self.shared_name:
            return run.resources.get(self.name) or run.resource(self.name, self._make)
        core = run.resource(("queue", self.container, self.shared_name), self._make)
        for what in ("kind", "capacity", "min_after_dequeue", "component dtypes", "shapes", "seed"):
            found, asked = core.spec._part(what), self._part(what)
            if found != asked and not (what == "seed" and asked is None):
                raise InvalidArgumentError(
                    f"Shared queue {self.shared_name!r} has {what} {found}, but {self!r} has {asked}."
                )
        return core

    def _make(self) -> QueueCore:
        order = order_of(self.kind, self.seed)
        return QueueCore(repr(self), order, self.capacity, self.min_after_dequeue, self)

    def _part(self, what: str) -> Any:
        if what == "component dtypes":
            return [spec.dtype.name for spec in self.components]
        if what == "shapes":
            return [str(TensorShape(spec.shape)) for spec in self.components]
        return getattr(self, what)


def resource_name(handle: Tensor) -> str:
    """Return the name of a node's object in a session: that of the node, made unique in a branch."""
    graph = cast("Graph", handle.graph)
    return handle.op.name if graph is graph.root else graph.root.unique_name(handle.op.name)


# --- kernels -------------------------------------------------------------------------------------
def _core(run: Run, op: Operation) -> QueueCore:
    queue: QueueSpec = op.attrs["queue"]
    return queue.core(run)


async def _reserve(run: Run, op: Operation, _handle: Any) -> Any:
    core = _core(run, op)
    room = core.reserve(run, op.attrs["count"])
    if room.future is not None:
        await room
    run.on_abort(partial(core.release, room))
    return room if room.count else None


async def _enqueue(run: Run, op: Operation, _handle: Any, *inputs: Any) -> None:
    """Put an element, or rows of components; the first input may be room reserved before."""
    queue: QueueSpec = op.attrs["queue"]
    core, elements = queue.core(run), _elements(queue, op, inputs)
    room = inputs[0] if len(inputs) > len(queue.components) else None
    if room is None:
        room = core.put(run, elements)
        if room.future is not None:
            await room
        run.on_abort(partial(core.release, room))
    else:
        core.fill(room, elements)
    run.on_commit(partial(core.commit, room))


def _elements(queue: QueueSpec, op: Operation, inputs: Sequence[Any]) -> list[Element]:
    # copies, because the caller or a variable may own the arrays
    values = inputs[-len(queue.components) :]
    element = tuple([v.copy() if isinstance(v, np.ndarray) else v for v in values])
    if op.type == "QueueEnqueueManyV2":
        return list(zip(*map(_rows, element, queue.components), strict=True))
    return [element]


def _rows(values: Any, spec: Spec) -> Any:
    """Return the rows of a component; single strings are arrays, too."""
    is_text = spec.dtype is dtypes.string
    return [values[i, ...] for i in range(len(values))] if is_text else values


async def _dequeue(run: Run, op: Operation, _handle: Any, count: Any = 1) -> Any:
    """Return an element, or a batch of them."""
    queue: QueueSpec = op.attrs["queue"]
    core, most = queue.core(run), op.attrs.get("at_most", False)
    taken = core.take(run, _checked(op, count), at_most=most)
    if taken.future is not None:
        await taken
    run.on_abort(partial(core.restore, taken))
    if op.type == "QueueDequeueV2":
        (components,) = taken.elements
    else:
        components = tuple(
            _stacked([element[i] for element in taken.elements], spec, queue.pads)
            for i, spec in enumerate(queue.components)
        )
    return components if len(components) > 1 else components[0]


def _checked(op: Operation, count: Any) -> int:
    if count < 0:
        raise InvalidArgumentError(f"Cannot take {count} elements from {op.attrs['queue']!r}.")
    return int(count)


def _stacked(values: Sequence[Any], spec: Spec, pads: bool) -> Any:
    """Return a batch; with ``pads``, of the largest extent in each dimension, filled up."""
    dtype = np.dtype(spec.dtype.numpy)
    if spec.shape == () and dtype != np.object_:
        return np.array(values, dtype)
    shapes = [np.shape(value) for value in values]
    known = tuple(extent or 0 for extent in spec.shape or ())
    if known and values and dtype != np.object_ and shapes.count(shapes[0]) == len(shapes):
        return np.concatenate(values).reshape(len(values), *shapes[0])
    largest = tuple(map(max, zip(known, *shapes, strict=True))) if pads else known
    batch = np.full((len(values), *largest), b"" if dtype == np.object_ else 0, dtype)
    for row, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        place: tuple[Any, ...] = (row, *map(slice, shape))
        batch[place] = value[()] if isinstance(value, np.ndarray) else value
    return batch


async def _close(run: Run, op: Operation, _handle: Any) -> None:
    core = _core(run, op)
    if op.attrs["cancel"]:
        error = closing_error.get() if op.attrs["fails"] else None
        run.on_commit(partial(core.close, cancel_pending_enqueues=True, error=error))
        return
    place = await core.reserve_close(run)
    run.on_abort(partial(core.release_place, place))
    run.on_commit(partial(core.close, place))


# --- shape rules ----------------------------------------------------------------------------------
def _enqueue_rule(leading: int) -> Callable[..., tuple[Spec, ...]]:
    """Return the rule of an op that puts components with a number of leading dimensions."""

    def rule(_handle: Spec, *inputs: Spec, queue: QueueSpec) -> tuple[Spec, ...]:
        components = inputs[-len(queue.components) :]
        for component, expected in zip(components, queue.components, strict=True):
            shape = component.shape
            if leading and shape == ():
                raise ValueError("Shape () must have rank at least 1")
            inner = shape if shape is None else shape[leading:]
            TensorShape(inner).assert_is_compatible_with(expected.shape)
        rows = {component.shape[0] for component in components if leading and component.shape}
        if len(rows - {None}) > 1:
            raise ValueError("enqueue_many needs components with the same first dimension")
        return ()

    return rule


def _dequeue_many_rule(
    _handle: Spec, count: Spec, *, queue: QueueSpec, at_most: bool
) -> tuple[Spec, ...]:
    if not count.dtype.is_integer or count.shape not in (None, ()):
        raise ValueError("The number of elements to dequeue must be an integer scalar.")
    if count.value is not None and count.value < 0:
        raise ValueError(f"Input 'n' must be >= 0, but is {count.value}.")
    for spec in queue.components:
        if spec.shape is None or (None in spec.shape and not queue.pads):
            raise ValueError(
                f"{queue.kind}'s DequeueMany and DequeueUpTo require the components to have specified "
                f"shapes. Give shapes= to {queue!r}."
            )
    first = None if at_most or count.value is None else int(count.value)
    return tuple(Spec(spec.dtype, (first, *(spec.shape or ()))) for spec in queue.components)


def gives(*specs: Spec) -> Callable[..., Spec | tuple[Spec, ...]]:
    """Return the rule of an op whose outputs always have these specs."""
    return lambda *_inputs, **_attrs: specs[0] if len(specs) == 1 else specs


def awaited(name: str, kernel: Any, rule: Any, *, changes: bool = True) -> None:
    """Register an awaited op that does not depend on its task."""
    register(AwaitedOpDef(name, kernel, rule, nowait=True, changes=changes))


def immediate(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain function as the kernel of an awaited op."""

    async def kernel(*args: Any) -> Any:
        return function(*args)

    return kernel


for _kind in ("FIFOQueueV2", "RandomShuffleQueueV2", "PaddingFIFOQueueV2", "PriorityQueueV2"):
    # The value of a queue's own node only ties the queue's ops together.
    register(OpDef(_kind, lambda **attrs: np.array(b"queue", object), gives(Spec(dtypes.string, ()))))
awaited("QueueReserve", _reserve, gives(Spec(dtypes.variant, ())))
awaited("QueueEnqueueV2", _enqueue, _enqueue_rule(0))
awaited("QueueEnqueueManyV2", _enqueue, _enqueue_rule(1))
awaited("QueueDequeueV2", _dequeue, lambda handle, *, queue: queue.components)
awaited("QueueDequeueManyV2", _dequeue, _dequeue_many_rule)
awaited("QueueCloseV2", _close, gives())
_SIZE, _BOOL = gives(Spec(dtypes.int32, ())), gives(Spec(dtypes.bool, ()))
_size = immediate(lambda run, op, _: np.int32(_core(run, op).size(run)))
_is_closed = immediate(lambda run, op, _: np.bool_(_core(run, op).closed))
awaited("QueueSizeV2", _size, _SIZE, changes=False)
awaited("QueueIsClosedV2", _is_closed, _BOOL, changes=False)
