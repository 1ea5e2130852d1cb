"""TF1's batches of single examples: ``tf.train.batch``, ``tf.train.shuffle_batch`` and kin.

Each makes a queue that queue runners fill with examples, and returns a batch that is dequeued. The
queue is closed when all of its runners are at the end of their data; the last batch, where it is
smaller, is given with ``allow_smaller_final_batch`` only, and then dequeues raise ``OutOfRangeError``.

``tensors`` is a list or dict of tensors, one example; with ``enqueue_many`` each row is one. Each of
``tensors_list`` is enqueued by a runner of its own, ``tensors`` by ``num_threads`` of them. With
``dynamic_pad`` batches are padded to their largest example.

They return a list of tensors, a tensor for a list of one, or a dict with the same keys. They raise
ValueError or TypeError for tensors that do not fit each other, or whose shapes are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from asyncmon import graph as g
from asyncmon.runtime import QueueRunner, add_queue_runner
from asyncmon.summary import scalar

Example = Any  # a list or dict of tensors


def _tensors(example: Example, keys: list[str] | None) -> list[g.Tensor]:
    if isinstance(example, Mapping):
        if keys is None or sorted(example) != keys:
            raise ValueError("All dictionaries in tensors_list must have the same keys.")
        example = [example[key] for key in keys]
    elif keys is not None or not isinstance(example, list | tuple):
        raise TypeError(f"Give a list or a dict of tensors, got {example!r}.")
    if not example:
        raise ValueError("Expected at least one tensor in batch().")
    return [g.convert_to_tensor(tensor) for tensor in example]


def _shape(columns: Sequence[g.Tensor], enqueue_many: bool) -> g.TensorShape:
    merged = g.TensorShape(None)
    for tensor in columns:
        if tensor.shape.ndims is None:
            raise ValueError(f"Cannot infer Tensor's rank: {tensor!r}. Give shapes=.")
        own = tensor.shape.with_rank_at_least(1)[1:] if enqueue_many else tensor.shape
        merged = merged.merge_with(own)
    return merged


def _batch(
    kind: Any,
    examples: Sequence[Example],
    batch_size: Any,
    capacity: int,
    enqueue_many: bool,
    shapes: Any,
    smaller: bool,
    name: str | None,
    default_name: str,
    num_threads: int = 1,
    minimum: int | None = None,
    **options: Any,
) -> Any:
    """Return what is dequeued of a new queue of this kind; a minimum means that it shuffles."""
    if not examples:
        raise ValueError("Expected at least one set of tensors.")
    if len({len(example) for example in examples if isinstance(example, list | tuple)}) > 1:
        raise ValueError(f"All lists of tensors must have one length, got {examples!r}.")
    if minimum is not None and capacity <= minimum:
        raise ValueError(f"capacity {capacity} must be bigger than min_after_dequeue {minimum}.")
    keys = sorted(examples[0]) if isinstance(examples[0], Mapping) else None
    with g.name_scope(name, default_name) as scope:
        rows = [_tensors(example, keys) for example in examples]
        first, *others = [[tensor.dtype for tensor in row] for row in rows]
        for found in others:
            if found != first:
                types = [[dtype.name for dtype in one] for one in (first, found)]
                raise TypeError(f"Expected types to be consistent: {types[0]} vs. {types[1]}.")
        if shapes is None:
            shapes = [_shape(columns, enqueue_many) for columns in zip(*rows, strict=True)]
        limits = [capacity] if minimum is None else [capacity, minimum]
        queue = kind(*limits, first, shapes, **options)
        ops = [queue.enqueue_many(row) if enqueue_many else queue.enqueue(row) for row in rows]
        add_queue_runner(QueueRunner(queue, ops * num_threads))
        full, room = queue.size(), capacity - (minimum or 0)
        tag = f"fraction_of_{room}_full"
        if minimum is not None:
            full, tag = g.maximum(0, full - minimum), f"fraction_over_{minimum}_of_{room}_full"
        scalar(tag, g.multiply(g.cast(full, g.float32), 1.0 / room))
        dequeued = (queue.dequeue_up_to if smaller else queue.dequeue_many)(batch_size, name=scope)
        if keys is None:
            return dequeued
        return dict(zip(keys, dequeued if isinstance(dequeued, list) else [dequeued], strict=True))


# fmt: off
def batch(
    tensors: Example, batch_size: Any,
    num_threads: int = 1, capacity: int = 32, enqueue_many: bool = False, shapes: Any = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return batches of examples in their order. TF1: same name. See the module."""
    return _batch(
        g.PaddingFIFOQueue if dynamic_pad else g.FIFOQueue, [tensors], batch_size, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "batch", num_threads,
        shared_name=shared_name,
    )


def batch_join(
    tensors_list: Sequence[Example], batch_size: Any,
    capacity: int = 32, enqueue_many: bool = False, shapes: Any = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return batches of examples of several sources. TF1: same name. See the module."""
    return _batch(
        g.PaddingFIFOQueue if dynamic_pad else g.FIFOQueue, tensors_list, batch_size, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "batch_join",
        shared_name=shared_name,
    )


def shuffle_batch(
    tensors: Example, batch_size: Any, capacity: int, min_after_dequeue: int,
    num_threads: int = 1, seed: int | None = None, enqueue_many: bool = False, shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return batches of examples in random order. TF1: same name. See the module."""
    return _batch(
        g.RandomShuffleQueue, [tensors], batch_size, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "shuffle_batch", num_threads,
        min_after_dequeue, seed=seed, shared_name=shared_name,
    )


def shuffle_batch_join(
    tensors_list: Sequence[Example], batch_size: Any, capacity: int, min_after_dequeue: int,
    seed: int | None = None, enqueue_many: bool = False, shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:
    """Return random batches of examples of several sources. TF1: same name. See the module."""
    return _batch(
        g.RandomShuffleQueue, tensors_list, batch_size, capacity,
        enqueue_many, shapes, allow_smaller_final_batch, name, "shuffle_batch_join", 1,
        min_after_dequeue, seed=seed, shared_name=shared_name,
    )
# fmt: on
