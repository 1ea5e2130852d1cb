"""TF1's batches of single examples: ``tf.train.batch``, ``tf.train.shuffle_batch`` and kin.

Each makes a queue that queue runners fill with examples, and returns a batch that is dequeued. The
queue is closed when all of its runners are at the end of their data; the last batch, where it is
smaller, is given with ``allow_smaller_final_batch`` only, and then dequeues raise ``OutOfRangeError``.

All have these arguments, besides their own:

    tensors: a list or dict of tensors, one example; with ``enqueue_many`` each row is one.
    tensors_list: several of them (``_join``), each enqueued by a runner of its own.
    batch_size: an integer or a tensor.
    num_threads: how many runners enqueue ``tensors``.
    capacity: of the queue.
    min_after_dequeue: how many examples stay in a shuffling queue, so that they are mixed.
    keep_input: (``maybe_``) a bool scalar, or with ``enqueue_many`` a vector, that says whether an
        example is enqueued.
    seed: of the order of a shuffling queue.
    enqueue_many: whether the tensors hold many examples.
    shapes: of an example's tensors; those of ``tensors`` by default.
    dynamic_pad: whether dimensions may vary: batches are padded to their largest example.
    allow_smaller_final_batch: whether the last batch may be smaller; the batch size is not static then.
    shared_name: see :class:`asyncmon.graph.FIFOQueue`.
    name: of the operations.

They return a list of tensors, a tensor for a list of one, or a dict with the same keys. They raise
ValueError or TypeError for tensors that do not fit each other, or whose shapes are not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asyncmon.graph import (
    FIFOQueue,
    PaddingFIFOQueue,
    RandomShuffleQueue,
    TensorShape,
    as_dtype,
    boolean_mask,
    cast,
    convert_to_tensor,
    expand_dims,
    fill,
    float32,
    maximum,
    multiply,
    name_scope,
    shape,
)
from asyncmon.runtime import QueueRunner, add_queue_runner
from asyncmon.summary import scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncmon.graph import QueueBase, Tensor

Example = Any  # a list or dict of tensors


class _Inputs:
    """The examples of a batch: a list of tensors for each runner, of the same dtypes and shapes."""

    def __init__(self, examples: Sequence[Example], enqueue_many: bool, shapes: Any) -> None:
        first = examples[0]
        self.keys = sorted(first) if isinstance(first, Mapping) else None
        self.runners = [self._tensors(example) for example in examples]
        self.dtypes = [tensor.dtype for tensor in self.runners[0]]
        for tensors in self.runners[1:]:
            found = [tensor.dtype for tensor in tensors]
            if found != self.dtypes:
                raise TypeError(
                    f"Expected types to be consistent: {[d.name for d in self.dtypes]} vs. "
                    f"{[d.name for d in found]}."
                )
        self.shapes = self._inferred(enqueue_many) if shapes is None else shapes

    def _tensors(self, example: Example) -> list[Tensor]:
        if isinstance(example, Mapping):
            if self.keys is None or sorted(example) != self.keys:
                raise ValueError("All dictionaries in tensors_list must have the same keys.")
            example = [example[key] for key in self.keys]
        elif self.keys is not None or not isinstance(example, list | tuple):
            raise TypeError(f"Give a list or a dict of tensors, got {example!r}.")
        if not example:
            raise ValueError("Expected at least one tensor in batch().")
        return [convert_to_tensor(tensor) for tensor in example]

    def _inferred(self, enqueue_many: bool) -> list[TensorShape]:
        found = []
        for columns in zip(*self.runners, strict=True):
            merged = TensorShape(None)
            for tensor in columns:
                if tensor.shape.ndims is None:
                    raise ValueError(f"Cannot infer Tensor's rank: {tensor!r}. Give shapes=.")
                own = tensor.shape.with_rank_at_least(1)[1:] if enqueue_many else tensor.shape
                merged = merged.merge_with(own)
            found.append(merged)
        return found

    def like_inputs(self, dequeued: Any) -> Any:
        if self.keys is None:
            return dequeued
        listed = dequeued if isinstance(dequeued, list) else [dequeued]
        return dict(zip(self.keys, listed, strict=True))


def _batch(
    make: Callable[[_Inputs], QueueBase],
    examples: Sequence[Example],
    keep_input: Any,
    batch_size: Any,
    num_threads: int,
    minimum: int,
    capacity: int,
    enqueue_many: bool,
    shapes: Any,
    smaller: bool,
    name: str | None,
    default_name: str,
) -> Any:
    if not examples:
        raise ValueError("Expected at least one set of tensors.")
    if len({len(example) for example in examples if isinstance(example, list | tuple)}) > 1:
        raise ValueError(f"All lists of tensors must have one length, got {examples!r}.")
    with name_scope(name, default_name) as scope:
        inputs = _Inputs(examples, enqueue_many, shapes)
        queue = make(inputs)
        ops = []
        for tensors in inputs.runners:
            op = _enqueue(queue, tensors, enqueue_many, keep_input)
            ops += [op] * (num_threads if len(inputs.runners) == 1 else 1)
        add_queue_runner(QueueRunner(queue, ops))
        if minimum < 0:
            full, tag = queue.size(), f"fraction_of_{capacity}_full"
        else:
            full = maximum(0, queue.size() - minimum)
            tag = f"fraction_over_{minimum}_of_{capacity - minimum}_full"
        scalar(tag, multiply(cast(full, float32), 1.0 / (capacity - max(minimum, 0))))
        dequeue = queue.dequeue_up_to if smaller else queue.dequeue_many
        return inputs.like_inputs(dequeue(batch_size, name=scope))


def _enqueue(queue: QueueBase, tensors: list[Tensor], enqueue_many: bool, keep_input: Any) -> Any:
    if keep_input is True:
        return queue.enqueue_many(tensors) if enqueue_many else queue.enqueue(tensors)
    keep = convert_to_tensor(keep_input, as_dtype("bool"))
    if keep.shape.ndims is None:
        raise ValueError("`keep_input` dimensions must be known at graph construction.")
    if keep.shape.ndims and not enqueue_many:
        raise ValueError("`keep_input` cannot be a vector when `enqueue_many=False`.")
    if keep.shape.ndims == 0:
        rows = shape(tensors[0])[:1] if enqueue_many else [1]
        keep = fill(rows, keep)
    if not enqueue_many:
        tensors = [expand_dims(tensor, 0) for tensor in tensors]
    return queue.enqueue_many([boolean_mask(tensor, keep) for tensor in tensors])


def _fifo(capacity: int, dynamic_pad: bool, shared_name: str | None) -> Callable[[_Inputs], QueueBase]:
    kind = PaddingFIFOQueue if dynamic_pad else FIFOQueue
    return lambda inputs: kind(capacity, inputs.dtypes, inputs.shapes, shared_name=shared_name)


def _shuffling(
    capacity: int, minimum: int, seed: int | None, shared_name: str | None
) -> Callable[[_Inputs], QueueBase]:
    if capacity <= minimum:
        raise ValueError(f"capacity {capacity} must be bigger than min_after_dequeue {minimum}.")
    return lambda inputs: RandomShuffleQueue(
        capacity, minimum, inputs.dtypes, inputs.shapes, seed=seed, shared_name=shared_name
    )


# fmt: off
def batch(
    tensors: Example, batch_size: Any,
    num_threads: int = 1, capacity: int = 32, enqueue_many: bool = False, shapes: Any = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return batches of examples in their order. TF1: same name. See the module."""
    return _batch(
        _fifo(capacity, dynamic_pad, shared_name),
        [tensors], True, batch_size, num_threads, -1, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "batch",
    )


def maybe_batch(
    tensors: Example, keep_input: Any, batch_size: Any,
    num_threads: int = 1, capacity: int = 32, enqueue_many: bool = False, shapes: Any = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return batches of the examples that are kept. TF1: same name. See the module."""
    return _batch(
        _fifo(capacity, dynamic_pad, shared_name),
        [tensors], keep_input, batch_size, num_threads, -1, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "batch",
    )


def batch_join(
    tensors_list: Sequence[Example], batch_size: Any,
    capacity: int = 32, enqueue_many: bool = False, shapes: Any = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return batches of examples of several sources. TF1: same name. See the module."""
    return _batch(
        _fifo(capacity, dynamic_pad, shared_name),
        tensors_list, True, batch_size, 1, -1, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "batch_join",
    )


def maybe_batch_join(
    tensors_list: Sequence[Example], keep_input: Any, batch_size: Any,
    capacity: int = 32, enqueue_many: bool = False, shapes: Any = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return batches of what several sources keep. TF1: same name. See the module."""
    return _batch(
        _fifo(capacity, dynamic_pad, shared_name),
        tensors_list, keep_input, batch_size, 1, -1, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "batch_join",
    )


def shuffle_batch(
    tensors: Example, batch_size: Any, capacity: int, min_after_dequeue: int,
    num_threads: int = 1, seed: int | None = None, enqueue_many: bool = False, shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return batches of examples in random order. TF1: same name. See the module."""
    return _batch(
        _shuffling(capacity, min_after_dequeue, seed, shared_name),
        [tensors], True, batch_size, num_threads, min_after_dequeue, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "shuffle_batch",
    )


def maybe_shuffle_batch(
    tensors: Example, batch_size: Any, capacity: int, min_after_dequeue: int,
    keep_input: Any,
    num_threads: int = 1, seed: int | None = None, enqueue_many: bool = False, shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return random batches of the examples that are kept. TF1: same name. See the module."""
    return _batch(
        _shuffling(capacity, min_after_dequeue, seed, shared_name),
        [tensors], keep_input, batch_size, num_threads, min_after_dequeue, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "shuffle_batch",
    )


def shuffle_batch_join(
    tensors_list: Sequence[Example], batch_size: Any, capacity: int, min_after_dequeue: int,
    seed: int | None = None, enqueue_many: bool = False, shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return random batches of examples of several sources. TF1: same name. See the module."""
    return _batch(
        _shuffling(capacity, min_after_dequeue, seed, shared_name),
        tensors_list, True, batch_size, 1, min_after_dequeue, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "shuffle_batch_join",
    )


def maybe_shuffle_batch_join(
    tensors_list: Sequence[Example], batch_size: Any, capacity: int, min_after_dequeue: int,
    keep_input: Any,
    seed: int | None = None, enqueue_many: bool = False, shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return random batches of what several sources keep. TF1: same name. See the module."""
    return _batch(
        _shuffling(capacity, min_after_dequeue, seed, shared_name),
        tensors_list, keep_input, batch_size, 1, min_after_dequeue, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "shuffle_batch_join",
    )
# fmt: on
