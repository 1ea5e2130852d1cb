"""TF1: ``tf.contrib.slim.prefetch_queue``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncmon import graph as tf
from asyncmon.runtime import QueueRunner, add_queue_runner
from asyncmon.summary import scalar
from asyncmon.tf1.queues import PaddingFIFOQueue

__all__ = ["prefetch_queue"]


def prefetch_queue(
    tensors: Any,
    capacity: int = 8,
    num_threads: int = 1,
    dynamic_pad: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> tf.QueueBase:
    """Return a queue that queue runners fill with batches. TF1: same name.

    ``tensors`` is a list or dict of tensors, as ``dequeue`` returns it. ``num_threads`` runners fill
    the queue. With ``dynamic_pad`` shapes may have unknown dimensions.
    """
    names = sorted(tensors) if isinstance(tensors, Mapping) else None
    listed = [tf.convert_to_tensor(tensors[key]) for key in names or range(len(tensors))]
    kind = PaddingFIFOQueue if dynamic_pad else tf.FIFOQueue
    with tf.name_scope(name, "prefetch_queue", listed) as scope:
        types, shapes = [one.dtype for one in listed], [one.shape for one in listed]
        queue = kind(capacity, types, shapes, names, shared_name, scope)
        op = queue.enqueue(listed if names is None else dict(zip(names, listed, strict=True)))
        add_queue_runner(QueueRunner(queue, [op] * num_threads))
        size = tf.cast(queue.size(), tf.float32)
        scalar(f"fraction_of_{capacity}_full", tf.multiply(size, 1.0 / capacity))
        return queue
