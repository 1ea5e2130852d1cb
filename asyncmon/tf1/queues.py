"""TF1: ``tf.PaddingFIFOQueue``, ``tf.PriorityQueue``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncmon.graph import QueueBase, int64
from asyncmon.graph.core.shape import as_shape
from asyncmon.graph.queues.queues import listed

__all__ = ["PaddingFIFOQueue", "PriorityQueue"]


class PaddingFIFOQueue(QueueBase):
    """A FIFO queue whose batches are filled up to the largest element. TF1: ``tf.PaddingFIFOQueue``.

    ``shapes`` has None where a dimension varies. Numbers are padded with 0, strings with b"". Arguments
    as for :class:`FIFOQueue`.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
        name: str = "padding_fifo_queue",
    ) -> None:
        if shapes is None or any(as_shape(shape) is None for shape in shapes):
            raise ValueError("When providing partial shapes, a list of shapes must be provided.")
        super().__init__(
            "PaddingFIFOQueue", capacity, dtypes, shapes, names, name,
            pads=True, shared_name=shared_name,
        )  # fmt: skip


class PriorityQueue(QueueBase):
    """The element with the smallest first component leaves first. TF1: ``tf.PriorityQueue``.

    That is the priority, an int64 scalar; ``types``, ``shapes`` and ``names`` are of the components
    that follow. Other arguments as for :class:`FIFOQueue`.
    """

    def __init__(
        self,
        capacity: int,
        types: Any,
        shapes: Any = None,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
        name: str = "priority_queue",
    ) -> None:
        types = list(types) if isinstance(types, list | tuple) else [types]
        known = [None] * len(types) if shapes is None else listed(shapes)
        all_names = None if names is None else ["priority", *names]
        super().__init__(
            "PriorityQueue", capacity, [int64, *types], [(), *known], all_names, name,
            shared_name=shared_name,
        )  # fmt: skip
