"""TF1's input queues: ``tf.train.string_input_producer``, ``tf.train.batch`` and kin.

An input producer is a queue that a queue runner fills with the rows of a tensor, once per epoch. A
local variable counts the epochs. After the last one the queue is closed, and dequeues from the empty
queue raise ``OutOfRangeError``, which ends a monitored session. ``num_epochs`` None means no limit;
``shuffle`` puts the rows of each epoch into a random order.

A batching function makes a queue that queue runners fill with examples, and returns a batch that is
dequeued from it. The queue is closed when all of its runners have reached the end of their data. A
smaller last batch is returned with ``allow_smaller_final_batch`` only; then dequeues raise
``OutOfRangeError``.

``tensors`` is one example, a list or dict of tensors; with ``enqueue_many`` each row is one. Each of
``tensors_list`` is enqueued by its own runner, ``tensors`` by ``num_threads`` runners. With
``dynamic_pad`` examples are padded to the largest of their batch. The result is a list of tensors, a
tensor for a list of one, or a dict with the same keys. Tensors that do not fit each other, or of
unknown shape, raise ValueError or TypeError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.graph.ops.variable_ops import count_up_to
from asyncmon.runtime import QueueRunner, add_queue_runner
from asyncmon.summary import scalar
from asyncmon.tf1.file_ops import matching_files
from asyncmon.tf1.queues import PaddingFIFOQueue
from asyncmon.tf1.signatures import REQUIRED, function_of
from asyncmon.tf1.structures import map_structure

__all__ = [
    "batch", "batch_join", "input_producer", "limit_epochs", "match_filenames_once", "maybe_batch",
    "maybe_batch_join", "maybe_shuffle_batch", "maybe_shuffle_batch_join", "range_input_producer",
    "shuffle_batch", "shuffle_batch_join", "slice_input_producer", "string_input_producer",
]  # fmt: skip

_Example = Any  # a list or dict of tensors


def match_filenames_once(pattern: Any, name: str | None = None) -> g.Variable:
    """Return a local variable with the names of matching files. TF1: same name.

    The files are matched when the variable is initialised.
    """
    with g.name_scope(name, "matching_filenames", [pattern]) as scope:
        local = [g.GraphKeys.LOCAL_VARIABLES]
        files = matching_files(pattern)
        return g.Variable(files, trainable=False, validate_shape=False, name=scope, collections=local)


def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Any:
    """Return a tensor that can be computed ``num_epochs`` times; None means no limit. TF1: same name.

    Further runs raise OutOfRangeError. The local variable ``epochs`` is the counter. ValueError if
    ``num_epochs`` is not positive.
    """
    if num_epochs is None:
        return tensor
    if num_epochs <= 0:
        raise ValueError(f"num_epochs must be > 0 not {num_epochs}.")
    with g.name_scope(name, "limit_epochs", [tensor]) as scope:
        local = [g.GraphKeys.LOCAL_VARIABLES]
        epochs = g.Variable(0, name="epochs", trainable=False, dtype=g.int64, collections=local)
        with g.control_dependencies([count_up_to(epochs, num_epochs)]):
            return g.identity(tensor, name=scope)


# fmt: off
def input_producer(
    input_tensor: Any, element_shape: Any = None, num_epochs: int | None = None,
    shuffle: bool = True, seed: int | None = None, capacity: int = 32,
    shared_name: str | None = None, summary_name: str | None = None, name: str | None = None,
    cancel_op: Any = None,
) -> g.FIFOQueue:
    """Return a queue of the rows of a tensor. TF1: same name. See the module.

    ``element_shape`` is the shape of a row, for a tensor of unknown shape. ``summary_name`` is the name
    of a summary of the fraction of the queue that is full, None for no summary. ValueError if the shape
    of a row is unknown.
    """
    with g.name_scope(name, "input_producer", [input_tensor]) as scope:
        tensor = g.convert_to_tensor(input_tensor, name="input_tensor")
        row = g.TensorShape(tensor.shape)[1:].merge_with(element_shape)
        if not row.is_fully_defined():
            raise ValueError(
                "Either `input_tensor` must have a fully defined shape or `element_shape` must be "
                f"specified, got {tensor.shape} and {element_shape}."
            )
        if shuffle:
            tensor = g.random_shuffle(tensor, seed=seed)
        tensor = limit_epochs(tensor, num_epochs)
        queue = g.FIFOQueue(capacity, [tensor.dtype], [row], shared_name=shared_name, name=scope)
        add_queue_runner(QueueRunner(queue, [queue.enqueue_many([tensor])], cancel_op=cancel_op))
        if summary_name is not None:
            scalar(summary_name, g.multiply(g.cast(queue.size(), g.float32), 1.0 / capacity))
        return queue


def string_input_producer(
    string_tensor: Any, num_epochs: int | None = None, shuffle: bool = True, seed: int | None = None,
    capacity: int = 32, shared_name: str | None = None, name: str | None = None,
    cancel_op: Any = None,
) -> g.FIFOQueue:
    """Return a queue of the strings of a vector, such as file names. TF1: same name.

    Raises:
        ValueError: the vector is empty. In the run: InvalidArgumentError.
    """
    no_strings = "string_input_producer requires a non-null input tensor"
    if isinstance(string_tensor, list | tuple | np.ndarray) and not len(string_tensor):
        raise ValueError(no_strings)
    with g.name_scope(name, "input_producer", [string_tensor]) as scope:
        tensor = g.convert_to_tensor(string_tensor, g.string)
        with g.control_dependencies([g.Assert(g.greater(g.size(tensor), 0), [no_strings])]):
            tensor = g.identity(tensor)
        return input_producer(
            tensor, [], num_epochs, shuffle, seed, capacity, shared_name,
            f"fraction_of_{capacity}_full", scope, cancel_op,
        )


def range_input_producer(
    limit: Any, num_epochs: int | None = None, shuffle: bool = True, seed: int | None = None,
    capacity: int = 32, shared_name: str | None = None, name: str | None = None,
) -> g.FIFOQueue:
    """Return a queue of the integers from 0 below ``limit``, an int32 scalar. TF1: same name."""
    with g.name_scope(name, "input_producer", [limit]) as scope:
        return input_producer(
            g.range(limit), [], num_epochs, shuffle, seed, capacity, shared_name,
            f"fraction_of_{capacity}_full", scope,
        )


def slice_input_producer(
    tensor_list: Sequence[Any], num_epochs: int | None = None, shuffle: bool = True,
    seed: int | None = None, capacity: int = 32, shared_name: str | None = None,
    name: str | None = None,
) -> list[g.Tensor]:
    """Return one row of each tensor, at the same index, another one in each run. TF1: same name.

    ValueError if ``tensor_list`` is empty.
    """
    with g.name_scope(name, "input_producer", tensor_list):
        tensors = [g.convert_to_tensor(tensor) for tensor in tensor_list]
        if not tensors:
            raise ValueError(
                "Expected at least one tensor in slice_input_producer(), tensor_list is empty."
            )
        rows = g.shape(tensors[0])[0]
        queue = range_input_producer(rows, num_epochs, shuffle, seed, capacity, shared_name)
        index = queue.dequeue()
        return [g.gather(tensor, index) for tensor in tensors]
# fmt: on


# --- batches --------------------------------------------------------------------------------------
def _tensors(example: _Example, keys: list[str] | None) -> list[g.Tensor]:
    if isinstance(example, Mapping):
        if keys is None or sorted(example) != keys:
            raise ValueError("All dictionaries in tensors_list must have the same keys.")
        example = [example[key] for key in keys]
    elif keys is not None or not isinstance(example, list | tuple):
        raise TypeError(f"Give a list or a dict of tensors, got {example!r}.")
    if not example:
        raise ValueError("Expected at least one tensor in batch().")
    return [g.convert_to_tensor(tensor) for tensor in example]


def _shape(columns: Sequence[g.Tensor], enqueue_many: bool, pads: bool) -> g.TensorShape:
    merged, found = g.TensorShape(None), []
    for tensor in columns:
        if tensor.shape.ndims is None:
            raise ValueError(f"Cannot infer Tensor's rank: {tensor!r}. Give shapes=.")
        own = tensor.shape.with_rank_at_least(1)[1:] if enqueue_many else tensor.shape
        merged = merged.merge_with(own)
        found.append(own.as_list())
    if pads:  # a dimension that varies in one source varies in the queue
        return g.TensorShape(
            [None if None in sizes else sizes[0] for sizes in zip(*found, strict=True)]
        )
    return merged


def _batch(
    own: str, examples: Sequence[_Example], batch_size: Any, capacity: int, enqueue_many: bool,
    shapes: Any, allow_smaller_final_batch: bool, name: str | None, dynamic_pad: bool = False,
    num_threads: int = 1, min_after_dequeue: int | None = None, **options: Any,
) -> Any:  # fmt: skip
    minimum = min_after_dequeue
    kind: Any = g.FIFOQueue if minimum is None else g.RandomShuffleQueue
    kind = PaddingFIFOQueue if dynamic_pad else kind
    if not examples:
        raise ValueError("Expected at least one set of tensors.")
    if len({len(example) for example in examples if isinstance(example, list | tuple)}) > 1:
        raise ValueError(f"All lists of tensors must have one length, got {examples!r}.")
    if minimum is not None and capacity <= minimum:
        raise ValueError(f"capacity {capacity} must be bigger than min_after_dequeue {minimum}.")
    keys = sorted(examples[0]) if isinstance(examples[0], Mapping) else None
    with g.name_scope(name, own) as scope:
        rows = [_tensors(example, keys) for example in examples]
        first, *others = [[tensor.dtype for tensor in row] for row in rows]
        for found in others:
            if found != first:
                types = [[dtype.name for dtype in one] for one in (first, found)]
                raise TypeError(f"Expected types to be consistent: {types[0]} vs. {types[1]}.")
        if shapes is None:
            shapes = [_shape(columns, enqueue_many, dynamic_pad) for columns in zip(*rows, strict=True)]
        limits = [capacity] if minimum is None else [capacity, minimum]
        queue = kind(*limits, first, shapes, **options)
        ops = [queue.enqueue_many(row) if enqueue_many else queue.enqueue(row) for row in rows]
        add_queue_runner(QueueRunner(queue, ops * num_threads))
        full, room = queue.size(), capacity - (minimum or 0)
        tag = f"fraction_of_{room}_full"
        if minimum is not None:
            full, tag = g.maximum(0, full - minimum), f"fraction_over_{minimum}_of_{room}_full"
        scalar(tag, g.multiply(g.cast(full, g.float32), 1.0 / room))
        dequeue = queue.dequeue_up_to if allow_smaller_final_batch else queue.dequeue_many
        dequeued = dequeue(batch_size, name=scope)
        if keys is None:
            return dequeued
        return dict(zip(keys, dequeued if isinstance(dequeued, list) else [dequeued], strict=True))


def _batching(own: str, doc: str, *, shuffle: bool = False) -> Any:
    """Return a batching function, of several sources if its name ends with "join"."""
    source, threads = "tensors", {"num_threads": 1}
    if own.endswith("join"):
        source, threads = "tensors_list", {}
    chosen: dict[str, Any] = {**threads, "capacity": 32}
    pads = {"dynamic_pad": False}
    if shuffle:
        chosen = {"capacity": REQUIRED, "min_after_dequeue": REQUIRED, **threads, "seed": None}
        pads = {}

    def batched(**given: Any) -> Any:
        examples = given.pop(source)
        return _batch(own, [examples] if threads else examples, **given)

    arguments = {
        source: REQUIRED, "batch_size": REQUIRED, **chosen, "enqueue_many": False, "shapes": None,
        **pads, "allow_smaller_final_batch": False, "shared_name": None, "name": None,
    }  # fmt: skip
    return function_of(own, f"Return {doc}. TF1: same name. See the module.", arguments, batched)


batch = _batching("batch", "batches of examples in their order")
batch_join = _batching("batch_join", "batches of examples from several sources")
shuffle_batch = _batching("shuffle_batch", "batches of examples in random order", shuffle=True)
shuffle_batch_join = _batching(
    "shuffle_batch_join", "random batches of examples from several sources", shuffle=True
)


# --- batches of chosen examples -------------------------------------------------------------------
def _maybe(function: Any, at: int) -> Any:
    """Return the form of a batching function with the argument ``keep_input``, number ``at``."""
    arguments = [(p.name, p.default) for p in signature(function).parameters.values()]
    arguments.insert(at, ("keep_input", REQUIRED))
    own = f"maybe_{function.__name__}"

    def batched(keep_input: Any, enqueue_many: bool, name: str | None, **given: Any) -> Any:
        def chosen(tensor: Any) -> Any:
            x = g.convert_to_tensor(tensor)
            rows = x if enqueue_many else g.expand_dims(x, 0)
            of_rows = g.fill(g.shape(rows)[:1], keep) if keep.shape.ndims == 0 else keep
            return g.boolean_mask(rows, of_rows)

        with g.name_scope(name, own) as scope:
            keep = g.convert_to_tensor(keep_input)
            what = arguments[0][0]
            given[what] = map_structure(chosen, given[what])
            return function(**given, enqueue_many=True, name=scope)

    doc = (
        f"As :func:`{function.__name__}`, of examples with a true ``keep_input``. TF1: same name.\n\n"
        "    ``keep_input`` is a bool scalar, or with ``enqueue_many`` a vector with one for each row."
    )
    return function_of(own, doc, dict(arguments), batched)


maybe_batch = _maybe(batch, 1)
maybe_batch_join = _maybe(batch_join, 1)
maybe_shuffle_batch = _maybe(shuffle_batch, 4)
maybe_shuffle_batch_join = _maybe(shuffle_batch_join, 4)
