"""``cond``: run one of two branches. TF1: ``tf.cond``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ControlOpDef, Spec, register
from asyncmon.graph.core.rules import common
from asyncmon.graph.core.shape import TensorShape
from asyncmon.graph.execution.analysis import Uses
from asyncmon.graph.execution.facts import split_inputs
from asyncmon.graph.execution.plan import Plan
from asyncmon.graph.execution.records import Live
from asyncmon.graph.execution.run import Run
from asyncmon.graph.ops.basic import identity
from asyncmon.graph.ops.create import zeros_like


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
        true_fn: builds a tensor, an operation, or a nested structure of them.
        false_fn: builds the same structure, with the same dtypes.
        strict: keep a list of one result a list; by default it is unpacked in both branches.
        name: the scope of the new ops.
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
        types = [[target.dtype.name for target in branch.targets] for branch in (first, second)]
        if types[0] != types[1]:
            raise ValueError(
                "Outputs of true_fn and false_fn must have the same type: "
                f"{', '.join(types[0])} and {', '.join(types[1])}."
            )
        outputs = subgraph_op("If", [convert_to_tensor(pred)], (first, second))
        result = nest.pack_like(value, [identity(output, "Merge") for output in outputs])
    return unwrapped(result, keep=strict)


def _branch(build: Callable[[], Any], strict: bool) -> tuple[SubGraph, Any]:
    def checked() -> Any:
        value = unwrapped(build(), keep=strict)
        if value is None or not nest.flatten(value):
            raise ValueError(
                f"{build!r} must return something, not {value!r}: a tensor or an operation."
            )
        return value

    return traced(checked)


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
    # a cond whose branches compute the original branch again, and its gradient
    pred, *captured = op.inputs
    wanted = [i for i, tensor in enumerate(captured) if tensor.dtype.is_floating]
    if not wanted:
        return [None] * len(op.inputs)

    def back(branch: SubGraph, at: int) -> Callable[[], list[Tensor]]:
        own = range(at, at + len(branch.captured))

        def build() -> list[Tensor]:
            inside = [get_default_graph().capture(captured[i]) for i in own]
            mine = [i for i in wanted if i in own]
            found = replayed_gradients(branch, inside, grads, [i - at for i in mine])
            by_input = dict(zip(mine, found, strict=True))
            return [by_input[i] if i in by_input else zeros_like(captured[i]) for i in wanted]

        return build

    first, second = op.attrs["branches"]
    branches = back(first, 0), back(second, len(first.captured))
    with control_dependencies(op.control_inputs):  # reads the same values of variables as the cond
        flowing = cond(pred, *branches, strict=True, name="cond_grad")
    by_input = dict(zip(wanted, flowing, strict=True))
    return [None, *(by_input.get(i) for i in range(len(captured)))]


def _live(op: Operation, used: Collection[Tensor]) -> Live:
    """Return the used outputs of a cond, and the inputs of its branches that these depend on."""
    kept = [i for i, output in enumerate(op.outputs) if output in used]
    if not kept or len(kept) == len(op.outputs):
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
        uses = Uses.of(asked, branch.parameters)
        taken = branch.parameters[len(branch.parameters) - len(branch.captured) :]
        for tensor, inside in zip(branch.captured, taken, strict=True):
            if inside in uses.used or inside in uses.captured or inside in branch.variables:
                inputs.append(tensor)
    return Live(kernel, targets, [branch.parameters for branch in branches], inputs)


register(ControlOpDef("If", _if, _spec, _gradient, live=_live))
register(ControlOpDef("AsyncIf", _if, _spec, _gradient, live=_live, awaits=True))
