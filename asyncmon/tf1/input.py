"""TF1's input producers: ``tf.train.string_input_producer`` and kin.

A producer is a queue that a queue runner fills with the rows of a tensor, epoch after epoch. The epochs
are counted in a local variable; after the last one the queue is closed, and at its end dequeues raise
``OutOfRangeError``, which ends a monitored session. ``num_epochs`` None is for ever; ``shuffle`` gives
the rows of each epoch a random order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.graph.ops.variable_ops import count_up_to
from asyncmon.runtime import QueueRunner, add_queue_runner
from asyncmon.summary import scalar
from asyncmon.tf1.file_ops import matching_files


def match_filenames_once(pattern: Any, name: str | None = None) -> g.Variable:
    """Return a local variable with the names of the files that match now. TF1: same name.

    They are found when it is initialised: by the local initialisers of a session.
    """
    with g.name_scope(name, "matching_filenames", [pattern]) as scope:
        local = [g.GraphKeys.LOCAL_VARIABLES]
        files = matching_files(pattern)
        return g.Variable(files, trainable=False, validate_shape=False, name=scope, collections=local)


def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Any:
    """Return a tensor that can be computed ``num_epochs`` times, None for ever. TF1: same name.

    In the run: OutOfRangeError afterwards. The local variable ``epochs`` counts.

    Raises:
        ValueError: ``num_epochs`` is not positive.
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
    """Return a queue that is filled with the rows of a tensor. TF1: same name. See the module.

    ``element_shape`` is that of a row, where the tensor's is not known; ``summary_name`` the name of a
    summary of how full the queue is, None for no summary.

    Raises:
        ValueError: the shape of a row is not known.
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
    """Return a queue of the strings of a vector, the names of files, say. TF1: same name.

    Raises:
        ValueError: there are no strings. Where that is known in the run only: InvalidArgumentError.
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
    """Return one row of each tensor, the same one of all, another one in each run. TF1: same name.

    Raises:
        ValueError: there are no tensors.
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
