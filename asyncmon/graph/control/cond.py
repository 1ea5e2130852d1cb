"""``cond``: run one of two branches. TF1: ``tf.cond``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from asyncmon.graph.control.subgraph import (
    Repeated,
    SubGraph,
    replayed_gradients,
    subgraph_op,
    traced,
    unwrapped,
)
from asyncmon.graph.core import nest
from asyncmon.graph.core.build import (
    control_dependencies,
    convert_to_tensor,
    get_default_graph,
    name_scope,
)
from asyncmon.graph.core.indexed_slices import IndexedSlices
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ControlOpDef, Spec, register
from asyncmon.graph.core.rules import common
from asyncmon.graph.core.shape import TensorShape
from asyncmon.graph.execution.facts import split_inputs
from asyncmon.graph.execution.plan import Plan
from asyncmon.graph.execution.records import Live
from asyncmon.graph.execution.run import Run
from asyncmon.graph.ops.basic import identity
from asyncmon.graph.ops.create import zeros, zeros_like
from asyncmon.graph.ops.shape_ops import shape as shape_of


def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Callable[[], Any] | None = None,
    fn2: Callable[[], Any] | None = None,
) -> Any:
    """Return the results of one of two branches, chosen by a tensor. TF1: ``tf.cond``.

    Only the nodes of the chosen branch that the fetches need run. Tensors and operations of the outer
    graph that a branch uses run before, whichever branch is chosen. A variable assigned in a branch
    keeps its value if the other one is chosen.

    Args:
        pred: a bool scalar tensor.
        true_fn: builds a tensor, an operation, or a nested structure of them. An
            :class:`IndexedSlices` stays one if both functions return one there.
        false_fn: builds the same structure, with the same dtypes.
        strict: keep a list of one result a list; by default it is unpacked in both branches.
        fn1: an older name of ``true_fn``.
        fn2: an older name of ``false_fn``.

    Raises:
        TypeError: ``pred`` is a Python bool, a function is missing, not callable or given twice, or one
            returns a list and the other one a tuple.
        ValueError: the structures or dtypes differ, or a function returns nothing.
    """
    if (fn1 is not None and true_fn is not None) or (fn2 is not None and false_fn is not None):
        raise TypeError("cond(): true_fn and fn1, or false_fn and fn2, may not be set simultaneously.")
    true_fn = fn1 if true_fn is None else true_fn
    false_fn = fn2 if false_fn is None else false_fn
    if isinstance(pred, bool):
        raise TypeError("pred must not be a Python bool")
    if not callable(true_fn):
        raise TypeError(f"true_fn must be callable, got {true_fn!r}.")
    if not callable(false_fn):
        raise TypeError(f"false_fn must be callable, got {false_fn!r}.")
    with name_scope(name, "cond", [pred]):
        (first, value), (second, other) = (_branch(build, strict) for build in (true_fn, false_fn))
        if _kinds(value) != _kinds(other) and nest.same_structure(value, other):
            raise TypeError(
                "Incompatible return types of true_fn and false_fn: one has a list where the other one "
                f"has a tuple: {value!r} and {other!r}."
            )
        if not nest.same_structure(value, other):
            raise ValueError(
                f"true_fn and false_fn must return the same structure, got {value!r} and {other!r}."
            )
        pairs = zip(nest.flatten(value), nest.flatten(other), strict=True)
        sliced = [_has_rows(a) and _has_rows(b) for a, b in pairs]
        for branch, found in ((first, value), (second, other)):
            traced(partial(_parts, nest.flatten(found), sliced), graph=branch)
        types = [[target.dtype.name for target in branch.targets] for branch in (first, second)]
        if types[0] != types[1]:
            raise ValueError(
                "Outputs of true_fn and false_fn must have the same type: "
                f"{', '.join(types[0])} and {', '.join(types[1])}."
            )
        outputs = iter(subgraph_op("If", [convert_to_tensor(pred)], (first, second)))
        merged = (identity(output, "Merge") for output in outputs)
        leaves = [
            IndexedSlices(next(merged), next(merged), next(merged)) if rows else next(merged)
            for rows in sliced
        ]
        result = nest.pack_like(value, leaves)
    return unwrapped(result, keep=strict)


def _branch(build: Callable[[], Any], strict: bool) -> tuple[SubGraph, Any]:
    """Return the subgraph of a branch, without targets yet, and the result of its function."""
    found: list[Any] = []

    def checked() -> tuple[()]:
        value = unwrapped(build(), keep=strict)
        if value is None or not nest.flatten(value):
            raise ValueError(
                f"{build!r} must return something, not {value!r}: a tensor or an operation."
            )
        found.append(value)
        return ()

    return traced(checked)[0], found[0]


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, IndexedSlices) and leaf.dense_shape is not None


def _parts(leaves: list[Any], sliced: list[bool]) -> list[Any]:
    pairs = zip(leaves, sliced, strict=True)
    return [[x.values, x.indices, x.dense_shape] if rows else x for x, rows in pairs]


def _kinds(structure: Any) -> list[bool]:
    """Return for each list and tuple of a structure, in order, whether it is a tuple."""
    if isinstance(structure, Mapping):
        return [kind for key in sorted(structure) for kind in _kinds(structure[key])]
    if isinstance(structure, list | tuple):
        return [isinstance(structure, tuple), *(kind for item in structure for kind in _kinds(item))]
    return []


def _spec(pred: Spec, *_captured: Spec, branches: tuple[SubGraph, SubGraph]) -> tuple[Spec, ...]:
    if pred.dtype.name != "bool" or pred.shape not in ((), None):
        kind = TypeError if pred.dtype.name != "bool" else ValueError
        raise kind(
            f"pred must be a bool scalar, got a {pred.dtype.name} of shape {TensorShape(pred.shape)}"
        )
    pairs = zip(branches[0].targets, branches[1].targets, strict=True)
    return tuple(Spec(a.dtype, common(a.spec.shape, b.spec.shape)) for a, b in pairs)


async def _if(
    run: Run, op: Operation, plans: Sequence[Plan], arrays: list[Any], state: Any, iteration: int
) -> Any:
    (pred,), *taken = split_inputs(op, arrays)
    chosen = 0 if pred else 1
    branch = Repeated(plans[chosen], run, taken[chosen])
    if op.op_def.awaits:
        return await branch.wait((), state, iteration)
    return branch((), state, iteration)


def _gradient(op: Operation, *grads: Tensor | None) -> list[Any]:
    # an op whose branches compute the original branch again, and the gradients of its captures
    pred, *captured = op.inputs
    if not any(tensor.dtype.is_floating for tensor in captured):
        return [None] * len(op.inputs)

    def back(branch: SubGraph, at: int) -> dict[int, Any]:
        numbers = range(at, at + len(branch.captured))
        inside = [get_default_graph().capture(captured[i]) for i in numbers]
        found = replayed_gradients(branch, inside, grads)
        return {
            i: (grad.values, grad.indices) if isinstance(grad, IndexedSlices) else grad
            for i, grad in zip(numbers, found, strict=True)
            if grad is not None
        }

    def nothing(found: dict[int, Any]) -> list[Any]:
        return [
            (captured[i][:0], zeros(0, grad[1].dtype))
            if isinstance(grad, tuple)
            else zeros_like(captured[i])
            for i, grad in found.items()
        ]

    branches = op.attrs["branches"]
    first, of_first = traced(lambda: back(branches[0], 0))
    second, _ = traced(lambda: nothing(of_first))
    _, of_second = traced(lambda: back(branches[1], len(branches[0].captured)), graph=second)
    traced(lambda: nothing(of_second), graph=first)
    with control_dependencies(op.control_inputs):  # reads the same values of variables as the cond
        outputs = subgraph_op("If", [convert_to_tensor(pred)], (first, second))
    flowing = nest.pack_like(of_first | of_second, outputs)
    for i, grad in flowing.items():
        if isinstance(grad, tuple):
            values, indices = grad
            flowing[i] = IndexedSlices(values, indices, shape_of(captured[i]))
    return [None, *map(flowing.get, range(len(captured)))]


def _live(op: Operation, used: Collection[Tensor]) -> Live:
    """Return the used outputs of a cond, and the inputs of its branches that these depend on."""
    kept = [i for i, output in enumerate(op.outputs) if output in used]
    if not kept:
        return Live.all_of(op)

    async def kernel(*args: Any) -> Any:
        found, state = await _if(*args)
        outputs = [None] * len(op.outputs)
        for i, value in zip(kept, found, strict=True):
            outputs[i] = value
        return outputs, state

    branches = op.attrs["branches"]
    targets = [[branch.targets[i] for i in kept] for branch in branches]
    inputs = list(split_inputs(op, op.inputs)[0])
    for branch, asked in zip(branches, targets, strict=True):
        inputs += branch.used_captures(asked)
    return Live(kernel, targets, [branch.parameters for branch in branches], inputs)


register(ControlOpDef("If", _if, _spec, _gradient, live=_live))
register(ControlOpDef("AsyncIf", _if, _spec, _gradient, live=_live, awaits=True))
