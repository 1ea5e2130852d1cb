"""A loop over the elements of stacked tensors, which stacks what each iteration returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncmon.graph.control.loop import check_carried, scan_op
from asyncmon.graph.control.subgraph import SubGraph, traced
from asyncmon.graph.core import nest
from asyncmon.graph.core.build import convert_to_tensor, name_scope
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.shape import merge_dim
from asyncmon.graph.ops.basic import identity, stop_gradient
from asyncmon.graph.ops.shape_ops import shape as shape_of


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

    This is what ``tf.map_fn``, ``tf.scan``, ``tf.foldl`` and ``tf.nn.dynamic_rnn`` are made of. Each
    iteration writes its output in place. A variable is read anew in each iteration.

    Args:
        body: takes and returns structures of tensors.
        first: the structure that is carried on, at first; may be empty.
        elements: a structure of tensors, whose elements are taken along the first axis.
        trips: how many elements are taken, an int32 scalar; by default all. As many must be there.
        reverse: from the last one to the first one. Outputs lie where their elements do.
        back_prop: false stops gradients.
        name: the scope of the new ops.

    Returns:
        What is carried on in the end, and the stacked outputs, in the structures that ``body`` returns.

    Raises:
        TypeError: a dtype of what is carried on changes.
        ValueError: there is nothing to loop over, or what is carried on changes its structure or shape.
        InvalidArgumentError: in the run: there are other than ``trips`` elements.
    """
    with name_scope(name, "scan"):
        begin = [convert_to_tensor(x) for x in nest.flatten(first)]
        stacks = [convert_to_tensor(x) for x in nest.flatten(elements)]
        n = None
        for x in stacks:
            if x.spec.shape == ():
                raise ValueError(f"elements must be 1+ dimensional Tensors, not scalars: {x!r}")
            n = merge_dim(n, x.spec.shape[0]) if x.spec.shape else n
        if trips is None and not stacks:
            raise ValueError("scan_loop() needs elements or trips.")
        trips = n if trips is None else trips
        trips = convert_to_tensor(shape_of(stacks[0])[0] if trips is None else trips)

        def build(*inside: Tensor) -> Any:
            carried = nest.pack_like(first, inside[: len(begin)])
            return body(carried, nest.pack_like(elements, inside[len(begin) :]))

        likes = [(x, x.spec.shape) for x in begin]
        likes += [(x, x.spec.shape and x.spec.shape[1:]) for x in stacks]
        graph, (after, made) = traced(build, likes)
        _check(first, after, graph)
        found = scan_op(trips, begin, stacks, graph, reverse=reverse)
        leave = identity if back_prop else stop_gradient
        ends = [leave(x, "Exit") for x in found]
    return nest.pack_like(after, ends[: len(begin)]), nest.pack_like(made, ends[len(begin) :])


def _check(first: Any, after: Any, graph: SubGraph) -> None:
    if not nest.same_structure(first, after):
        raise ValueError(f"The structure that is carried on, {first!r}, becomes {after!r}.")
    check_carried(graph.parameters, graph.targets[: len(nest.flatten(first))])
