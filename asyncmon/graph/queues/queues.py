"""Queues in a graph. TF1: ``tf.FIFOQueue`` and kin.

The elements of a queue belong to a session, and its ops are awaited. A run takes its elements *before*
the run lock, so producers run while a step waits for data. Elements taken by a run that fails or is
cancelled return to the head of the queue. Elements put by a run enter the queue at its commit, all or
none; see :meth:`QueueBase.enqueue_many` for the exception.

Example::

    queue = FIFOQueue(32, [float32], shapes=[[784]])
    enqueue, images = queue.enqueue(image), queue.dequeue_many(64)
    ...
    await sess.run(enqueue)      # waits while the queue is full
    await sess.run(train_op)     # waits until there are 64 elements; OutOfRangeError at the end
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asyncmon.graph.core.build import (
    colocate_with,
    control_dependencies,
    convert_to_tensor,
    create_op,
    create_operation,
)
from asyncmon.graph.core.dtypes import as_dtype
from asyncmon.graph.core.graph import building, current_container
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import RandomOpDef, Spec
from asyncmon.graph.core.shape import TensorShape, as_shape
from asyncmon.graph.core.walk import ancestors
from asyncmon.graph.execution.analysis import Access
from asyncmon.graph.queues.ops import QueueSpec, resource_name


class QueueBase:
    """The base class of queues. TF1: ``tf.QueueBase``.

    ``queue_ref`` is the tensor that stands for the queue; ``dtypes``, ``shapes`` and ``names`` (or
    None) are lists, of the components.
    """

    def __init__(
        self,
        kind: str,
        capacity: int,
        dtypes: Any,
        shapes: Any,
        names: Sequence[str] | None,
        name: str,
        min_after_dequeue: int = 0,
        pads: bool = False,
        seed: int | None = None,
        shared_name: str | None = None,
    ) -> None:
        components = _components(dtypes, shapes)
        if names is not None and len(names) != len(components):
            raise ValueError(
                "List of names must have the same length as the list of dtypes, "
                f"received len(names)={len(names)},len(dtypes)={len(components)}"
            )
        capacity, minimum = int(capacity), int(min_after_dequeue)
        attrs = {"capacity": capacity, "min_after_dequeue": minimum}
        with control_dependencies(None):
            self.queue_ref: Tensor = create_op(f"{kind}V2", (), attrs, name)
        self.name = self.queue_ref.op.name
        self._base = self.name.rsplit("/", 1)[-1]  # of its operations, within their scope
        self.dtypes = [spec.dtype for spec in components]
        self.shapes = [TensorShape(spec.shape) for spec in components]
        self.names = None if names is None else list(names)
        self._spec = QueueSpec(
            kind,
            resource_name(self.queue_ref),
            components,
            capacity,
            minimum,
            pads,
            seed,
            shared_name,
            current_container(),
        )

    def __repr__(self) -> str:
        return f"<{self._spec!r}>"

    # -- putting

    def enqueue(self, vals: Any, name: str | None = None) -> Operation:
        """Return an operation that puts one element. It waits while the queue is full.

        It is a tensor, a list or tuple of one for each component, or a dict where the queue has names.
        In the run: CancelledError if the queue is closed.
        """
        return self._enqueue("QueueEnqueueV2", self._tensors(vals), 1, name or f"{self._base}_enqueue")

    def enqueue_many(self, vals: Any, name: str | None = None) -> Operation:
        """Return an operation that puts each row of the components as one element.

        All or none, unless they are more than the queue can hold beside ``min_after_dequeue``: such a
        run puts them as room becomes free, not at its commit. If they depend on variables or random
        numbers, it commits when there is room for one, and the others follow.
        """
        tensors = self._tensors(vals)
        shape = tensors[0].spec.shape
        rows = shape[0] if shape else None
        return self._enqueue("QueueEnqueueManyV2", tensors, rows, name or f"{self._base}_EnqueueMany")

    def _enqueue(self, kind: str, tensors: list[Tensor], count: int | None, name: str) -> Operation:
        if _depends_on_state(tensors):
            # Wait for room before the run lock, so that other runs are not blocked. If the elements are
            # too many, or their number is unknown, wait for room for one.
            fits = count is not None and (self._spec.capacity < 0 or count <= self._spec.capacity)
            with control_dependencies(None):
                reserve = self._op("QueueReserve", f"{name}_Reserve", count=count if fits else 1)
            tensors = [*reserve.outputs, *tensors]
        return self._op(kind, name, *tensors)

    def _op(self, kind: str, name: str, *inputs: Any, **attrs: Any) -> Operation:
        attrs["queue"] = self._spec
        with colocate_with(self.queue_ref):
            return create_operation(kind, [self.queue_ref, *inputs], attrs, name)

    def _tensors(self, vals: Any) -> list[Tensor]:
        if isinstance(vals, Mapping):
            if self.names is None:
                raise ValueError("Queue must have names to enqueue a dictionary")
            if sorted(vals) != sorted(self.names):
                raise ValueError(
                    "Keys in dictionary to enqueue do not match names of Queue.  "
                    f"Dictionary: {sorted(vals)},Queue: {sorted(self.names)}"
                )
            vals = [vals[key] for key in self.names]
        elif self.names is not None:
            raise ValueError("You must enqueue a dictionary in a Queue with names")
        elif not isinstance(vals, list | tuple):
            vals = [vals]
        specs = self._spec.components
        if len(vals) != len(specs):
            raise ValueError(f"{self!r} takes {len(specs)} components, got {len(vals)}.")
        return [convert_to_tensor(value, s.dtype) for value, s in zip(vals, specs, strict=True)]

    # -- taking

    def dequeue(self, name: str | None = None) -> Any:
        """Return the components of one element. The run waits while the queue is empty.

        They are a tensor, or a list of one for each component, or a dict where the queue has names. In
        the run: OutOfRangeError where the queue is closed and empty.
        """
        return self._dequeue("QueueDequeueV2", name or f"{self._base}_Dequeue")

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """Return batches of ``n`` elements, an integer or a tensor. The run waits for all of them.

        In the run: OutOfRangeError where the queue is closed and has fewer; they stay.
        """
        return self._dequeue(
            "QueueDequeueManyV2", name or f"{self._base}_DequeueMany", n, at_most=False
        )

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """Like :meth:`dequeue_many`; a closed queue returns its remaining elements, if any."""
        return self._dequeue("QueueDequeueManyV2", name or f"{self._base}_DequeueUpTo", n, at_most=True)

    def _dequeue(self, kind: str, name: str, *inputs: Any, **attrs: Any) -> Any:
        tensors = self._op(kind, name, *inputs, **attrs).outputs
        if self.names is not None:
            return dict(zip(self.names, tensors, strict=True))
        return tensors[0] if len(tensors) == 1 else list(tensors)

    # -- closing

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """Return an operation that refuses further elements. A second close does nothing.

        Present elements can still be taken. The run waits until pending enqueues have completed;
        until then the queue is open, and later enqueues wait behind the close. With
        ``cancel_pending_enqueues`` the run does not wait, and they fail with ``CancelledError``.
        """
        name = name or f"{self._base}_Close"
        return self._op("QueueCloseV2", name, cancel=cancel_pending_enqueues, fails=False)

    def fail(self, name: str | None = None) -> Operation:
        """Return an operation that closes the queue for an error and cancels pending enqueues.

        Dequeues take the remaining elements, then raise the error that
        :data:`~asyncmon.graph.queues.ops.closing_error` had in the run.
        """
        return self._op("QueueCloseV2", name or f"{self._base}_Fail", cancel=True, fails=True)

    def is_closed(self, name: str | None = None) -> Tensor:
        """Return a bool scalar: whether the queue is closed."""
        return self._op("QueueIsClosedV2", name or f"{self._base}_Is_Closed").outputs[0]

    def size(self, name: str | None = None) -> Tensor:
        """Return an int32 scalar: the number of elements."""
        return self._op("QueueSizeV2", name or f"{self._base}_Size").outputs[0]


class FIFOQueue(QueueBase):
    """Elements leave in the order of arrival. TF1: ``tf.FIFOQueue``.

    Args:
        capacity: the maximum number of elements; negative for no limit.
        dtypes: of the components.
        shapes: of the components, needed to dequeue several at once; or that of the only one.
        names: of the components: elements are then dicts.
        shared_name: queues of this name are one queue in each session. In the run:
            InvalidArgumentError where they differ in kind, capacity, dtypes or shapes.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any = None,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
        name: str = "fifo_queue",
    ) -> None:
        super().__init__("FIFOQueue", capacity, dtypes, shapes, names, name, shared_name=shared_name)


class RandomShuffleQueue(QueueBase):
    """Elements leave in random order. TF1: ``tf.RandomShuffleQueue``.

    ``min_after_dequeue`` elements, fewer than ``capacity``, must stay until the queue is closed. Other
    arguments as for :class:`FIFOQueue`.
    """

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Any,
        shapes: Any = None,
        names: Sequence[str] | None = None,
        seed: int | None = None,
        shared_name: str | None = None,
        name: str = "random_shuffle_queue",
    ) -> None:
        if 0 <= capacity <= min_after_dequeue:
            raise ValueError(f"min_after_dequeue {min_after_dequeue} must be < capacity {capacity}")
        super().__init__(
            "RandomShuffleQueue", capacity, dtypes, shapes, names, name, min_after_dequeue,
            seed=seed, shared_name=shared_name,
        )  # fmt: skip


def _components(dtypes: Any, shapes: Any) -> tuple[Spec, ...]:
    types = tuple(map(as_dtype, dtypes if isinstance(dtypes, list | tuple) else [dtypes]))
    if not types:
        raise ValueError("A queue needs at least one dtype.")
    shapes = [None] * len(types) if shapes is None else listed(shapes)
    if len(shapes) != len(types):
        raise ValueError(
            "Queue shapes must have the same length as dtypes, "
            f"received len(shapes)={len(shapes)}, len(dtypes)={len(types)}"
        )
    return tuple(Spec(dtype, as_shape(shape)) for dtype, shape in zip(types, shapes, strict=True))


def listed(shapes: Any) -> list[Any]:
    """Return the shapes of the components. A single shape is that of the only one."""
    single = isinstance(shapes, TensorShape) or all(isinstance(extent, int) for extent in shapes)
    return [shapes] if single else list(shapes)


def _depends_on_state(tensors: Iterable[Tensor]) -> bool:
    """Return whether a node on these tensors, built now, reads variables or draws random numbers."""
    context = building.get()
    control = () if context is None else context.control
    return any(
        isinstance(op.op_def, RandomOpDef) or Access.of(op) is not None
        for op in ancestors([*(tensor.op for tensor in tensors), *control])
    )
