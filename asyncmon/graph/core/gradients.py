"""Reverse-mode gradients: one walk from results back to inputs that applies the rule of each op."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from operator import attrgetter
from typing import Any

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import colocate_with, convert_to_tensor, create_op, name_scope
from asyncmon.graph.core.indexed_slices import IndexedSlices, to_dense
from asyncmon.graph.core.node import NodeGraph, Operation, Tensor
from asyncmon.graph.core.op import NOT_DIFFERENTIABLE, SAME, ZERO
from asyncmon.graph.core.shape import is_known
from asyncmon.graph.core.walk import ancestors

Gradient = Tensor | IndexedSlices


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: Any = None,
    unconnected_gradients: str = "none",
) -> list[Any]:
    """Return the derivative of the sum of ``ys`` with respect to each of ``xs``. TF1: ``tf.gradients``.

    Inside a branch or loop body, ``ys`` and ``xs`` may be tensors of outer graphs.

    Args:
        ys: a tensor, or a list of them.
        xs: tensors, which may be intermediate results, or variables.
        grad_ys: the derivatives of some final value with respect to ``ys``; None means ones.
        colocate_gradients_with_ops: place the gradient of an op on the device of the op.
        gate_gradients: without effect: the writes of a run always follow its reads.
        aggregation_method: without effect.
        stop_gradients: tensors that are held constant.
        unconnected_gradients: the result for an x that ``ys`` do not depend on: "none" or "zero".

    Returns:
        For each x a tensor of its shape, an :class:`IndexedSlices` if only rows of it were gathered, or
        None.

    Raises:
        LookupError: an op between ``xs`` and ``ys`` has no gradient.
        ValueError: lengths or shapes of ``ys`` and ``grad_ys`` differ, or an x is inside a branch or
            loop body that no y is in.
        TypeError: a y is complex, or a gradient has another dtype than its y.
    """
    unconnected = getattr(unconnected_gradients, "value", unconnected_gradients)
    if unconnected not in ("none", "zero"):
        raise ValueError(f"Unknown value for unconnected_gradients: {unconnected_gradients!r}")
    listed = [None] if ys is None else _listed(ys)
    results = [y if isinstance(y, Tensor) else convert_to_tensor(y) for y in listed]
    inputs = [_source(x) for x in _listed(xs)]
    stops = {_source(t) for t in _listed(stop_gradients)}
    seeds = _listed(grad_ys) if grad_ys is not None else [None] * len(results)
    if len(seeds) != len(results):
        raise ValueError(f"Passed {len(seeds)} grad_ys for {len(results)} ys")
    _check_inside(results, inputs)
    beside: Any = colocate_with if colocate_gradients_with_ops else nullcontext
    with name_scope(name, "gradients", results):
        flowing: dict[Tensor, list[Gradient]] = {}
        for i, (y, seed) in enumerate(zip(results, seeds, strict=True)):
            with beside(y.op):
                flowing.setdefault(y, []).append(_first_gradient(y, seed, f"grad_ys_{i}"))
        for op, sources in reversed(_between(results, inputs, stops)):
            with beside(op):
                grads = [None if out in stops else add_up(flowing.get(out, ())) for out in op.outputs]
                if all(grad is None for grad in grads):
                    continue
                back = _apply_rule(op, grads) if sources is op.inputs else grads
            for x, grad in zip(sources, back, strict=True):
                if grad is not None and x.dtype.is_floating:
                    flowing.setdefault(x, []).append(grad)
        found = []
        for x in inputs:
            with beside(x.op):
                found.append(add_up(flowing.get(x, ())))
        if unconnected == "none":
            return found
        return [
            create_op("ZerosLike", (x,)) if grad is None else grad
            for x, grad in zip(inputs, found, strict=True)
        ]


def add_up(grads: Sequence[Any]) -> Any:
    """Return the sum of gradients of one tensor: slices if all of them are; None for an empty list."""
    if len(grads) < 2:
        return grads[0] if grads else None
    if all(isinstance(grad, IndexedSlices) for grad in grads):
        values = create_op("ConcatV2", [grad.values for grad in grads], {"axis": 0})
        rows = [grad.indices for grad in grads]
        if len({x.dtype for x in rows}) > 1:
            rows = [create_op("Cast", (x,), {"dtype": dtypes.int64}) for x in rows]
        indices = create_op("ConcatV2", rows, {"axis": 0})
        return IndexedSlices(values, indices, grads[0].dense_shape)
    dense = [to_dense(grad) for grad in grads]
    return create_op("AddV2" if len(dense) == 2 else "AddN", dense, None, "AddN")


def _between(
    results: Sequence[Tensor], inputs: Sequence[Tensor], stops: set[Tensor]
) -> list[tuple[Operation, tuple[Tensor, ...]]]:
    """Return the ops between ``inputs`` and ``results`` in topological order.

    Each comes with the tensors that receive its gradients: its inputs or, for a captured tensor, the
    tensor of the outer graph.
    """
    across = len({tensor.graph for tensor in (*results, *inputs)}) > 1
    sources_of = _outer_or_inputs if across else attrgetter("inputs")
    ops = ancestors([y.op for y in results], lambda op: [x.op for x in sources_of(op)])
    if across:
        ops.sort(key=lambda op: len(_around(op.graph)))  # outer graphs first
    wanted, reached, between = set(inputs), set[Any](), []
    for op in ops:
        if op.op_def.gradient is ZERO:
            continue
        sources = sources_of(op)
        if any(x in wanted or (x.op in reached and x not in stops) for x in sources):
            reached.add(op)
            between.append((op, sources))
    return between


def _outer_or_inputs(op: Operation) -> tuple[Tensor, ...]:
    """Return the inputs of a node, or the tensor of an outer graph that it captures."""
    outer = op.graph.captures.get(op.outputs[0]) if op.outputs and not op.inputs else None
    return op.inputs if outer is None else (outer,)


def _around(graph: NodeGraph) -> list[NodeGraph]:
    """Return a graph and its outer graphs."""
    return [graph] if graph.outer is None else [graph, *_around(graph.outer)]


def _check_inside(results: Iterable[Tensor], inputs: Iterable[Tensor]) -> None:
    for x in inputs:
        if x.graph.outer is not None and not any(x.graph in _around(y.graph) for y in results):
            raise ValueError(
                f"{x!r} is inside a branch or loop body that none of the ys is in. Ask for "
                "gradients by it there, or by what goes in."
            )


def _apply_rule(op: Operation, grads: list[Gradient | None]) -> Sequence[Gradient | None]:
    rule = op.op_def.gradient
    if rule is NOT_DIFFERENTIABLE:
        raise LookupError(f"No gradient defined for operation {op.name!r} (op type: {op.type})")
    passed = grads if rule is SAME else [to_dense(g) for g in grads]  # other rules need tensors
    with name_scope(f"{op.name}_grad", None, op.outputs):
        flowing: Sequence[Gradient | None] = rule(op, *passed)
    if len(flowing) != len(op.inputs):
        raise ValueError(
            f"Num gradients {len(flowing)} generated for op {op!r} do not match num inputs "
            f"{len(op.inputs)}"
        )
    return flowing


def _first_gradient(y: Tensor, given: Any, name: str) -> Gradient:
    if y.dtype.is_complex:
        raise TypeError(f"Gradients of complex tensors are not defined (y.dtype = {y.dtype.name})")
    if not (y.dtype.is_floating or y.dtype.is_integer):
        raise TypeError(f"{y!r} must be numeric to have a gradient")
    if given is None:
        one, shape = y.dtype.numpy.type(1), y.spec.shape
        if shape == ():
            return convert_to_tensor(one, name=name)
        if is_known(shape):
            return create_op("Fill", (shape, one), None, name)
        return create_op("OnesLike", (y,), None, name)
    if isinstance(given, IndexedSlices):
        return given
    grad = convert_to_tensor(given, y.dtype if not hasattr(given, "dtype") else None)
    if grad.dtype is not y.dtype:
        raise TypeError(
            f"Gradient type {grad.dtype.name} generated for tensor {y!r} with type "
            f"{y.dtype.name} must match it"
        )
    if not y.shape.is_compatible_with(grad.shape):
        raise ValueError(f"Gradient {grad!r} does not have the shape {y.shape} of {y!r}")
    return grad


def _source(x: Any) -> Tensor:
    """Return the tensor that receives the gradients of x: for a variable, its ref."""
    element = x._as_graph_element() if hasattr(x, "_as_graph_element") else x
    return element if isinstance(element, Tensor) else convert_to_tensor(element)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
