"""Repeat a body for each element of stacked tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncmon import graph as tf
from asyncmon.graph.control.loop import check_carried
from asyncmon.graph.control.subgraph import subgraph_op, traced
from asyncmon.graph.core import nest
from asyncmon.graph.core.shape import merge_dim


def scan_loop(
    body: Callable[[Any, Any], tuple[Any, Any]],
    first: Any,
    elements: Any,
    trips: Any = None,
    *,
    reverse: bool = False,
    back_prop: bool = True,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Call ``body(carried, element) -> (carried, output)`` for each element; stack the outputs.

    ``tf.map_fn``, ``tf.scan``, ``tf.foldl`` and ``tf.nn.dynamic_rnn`` are built on this. Each iteration
    writes its output in place, and reads the current values of variables.

    Args:
        body: takes and returns structures of tensors.
        first: the initial carried structure; may be empty.
        elements: a structure of tensors to iterate over along their first axis.
        trips: the number of elements, an int32 scalar; by default that of ``elements``.
        reverse: iterate from the last element to the first. Outputs keep the order of the elements.
        back_prop: false stops gradients.

    Returns:
        The final carried structure and the stacked outputs, in the structures that ``body`` returns.

    Raises:
        TypeError: a carried dtype changes.
        ValueError: neither elements nor ``trips`` are given, or a carried structure or shape changes.
        InvalidArgumentError: in the run: the number of elements is not ``trips``.
    """
    with tf.name_scope(name, "scan"):
        begin = [tf.convert_to_tensor(x) for x in nest.flatten(first)]
        stacks = [tf.convert_to_tensor(x) for x in nest.flatten(elements)]
        n = None
        for x in stacks:
            if x.spec.shape == ():
                raise ValueError(f"elements must be 1+ dimensional Tensors, not scalars: {x!r}")
            n = merge_dim(n, x.spec.shape[0]) if x.spec.shape else n
        if trips is None and not stacks:
            raise ValueError("scan_loop() needs elements or trips.")
        trips = n if trips is None else trips
        trips = tf.convert_to_tensor(tf.shape(stacks[0])[0] if trips is None else trips)

        def build(*inside: tf.Tensor) -> Any:
            carried = nest.pack_like(first, inside[: len(begin)])
            return body(carried, nest.pack_like(elements, inside[len(begin) :]))

        likes = [(x, x.spec.shape) for x in begin]
        likes += [(x, x.spec.shape and x.spec.shape[1:]) for x in stacks]
        graph, (after, made) = traced(build, likes)
        if not nest.same_structure(first, after):
            raise ValueError(f"The carried structure {first!r} becomes {after!r} after one iteration.")
        check_carried(graph.parameters, graph.targets[: len(begin)])
        outputs = tuple(graph.targets[len(begin) :])
        del graph.targets[len(begin) :]
        attrs = {"count": len(begin), "elements": len(stacks), "stacks": outputs, "reverse": reverse}
        found = subgraph_op("Scan", [trips, *begin, *stacks], (graph,), **attrs, returned=len(outputs))
        leave = tf.identity if back_prop else tf.stop_gradient
        ends = [leave(x, "Exit") for x in found]
    return nest.pack_like(after, ends[: len(begin)]), nest.pack_like(made, ends[len(begin) :])
