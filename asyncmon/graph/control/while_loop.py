"""``while_loop``: a body that repeats while a condition of the run holds. TF1: ``tf.while_loop``."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.construction.build import (
    control_dependencies,
    convert_to_tensor,
    create_ops,
    get_default_graph,
    name_scope,
)
from asyncmon.graph.control.subgraph import (
    SubGraph,
    check_repeatable,
    replayed_gradients,
    run_subplan,
    subgraph_op,
    traced,
    unwrapped,
)
from asyncmon.graph.core import nest
from asyncmon.graph.core.op import ControlOpDef, register
from asyncmon.graph.core.shape import as_shape, common, is_compatible
from asyncmon.graph.core.spec import Shape, Spec
from asyncmon.graph.core.tensor_shape import TensorShape
from asyncmon.graph.execution.facts import split_inputs
from asyncmon.graph.ops.basic import constant, identity, stop_gradient
from asyncmon.graph.ops.compare import logical_and

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.execution.plan import Plan
    from asyncmon.graph.execution.run import Run


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """Repeat ``body`` on the loop's variables while ``cond`` of them holds. TF1: ``tf.while_loop``.

    What both use from outside, an operation too, is done once, before; a variable is read anew in each
    iteration. The gradient runs the loop again, keeping each iteration's variables.

    Args:
        cond: takes the loop variables, returns a bool scalar.
        body: takes them, returns their next values in the same structure.
        loop_vars: their first values: a list, tuple or nested structure of tensors.
        shape_invariants: shapes, in the same structure, for those whose shape changes.
        parallel_iterations: accepted for the original's sake; iterations run one after another.
        back_prop: false stops gradients.
        swap_memory: accepted for the original's sake; there is one memory.
        name: the scope of the new ops.
        maximum_iterations: the most there may be.
        return_same_structure: returns a list of one variable as a list.

    Returns:
        The last values, in the structure that ``body`` returns.

    Raises:
        TypeError: a function is none, or a dtype changes.
        ValueError: there is no loop variable, the structure or a shape changes.
    """
    if not callable(cond):
        raise TypeError("cond must be callable.")
    if not callable(body):
        raise TypeError("body must be callable.")
    if not nest.flatten(loop_vars):
        raise ValueError("No loop variables provided.")
    if parallel_iterations < 1:
        raise TypeError("parallel_iterations must be a positive integer.")
    if maximum_iterations is not None:  # counted in one more loop variable
        most = convert_to_tensor(maximum_iterations)
        _, result = while_loop(
            lambda i, inner: logical_and(i < most, cond(*_arguments(inner))),
            lambda i, inner: (i + 1, _like(inner, body(*_arguments(inner)))),
            (constant(0, most.dtype), loop_vars),
            None if shape_invariants is None else (TensorShape(()), shape_invariants),
            back_prop=back_prop,
            name=name,
        )
        return unwrapped(result, keep=return_same_structure)
    with name_scope(name, "while"):
        first = [convert_to_tensor(value) for value in nest.flatten(loop_vars)]
        shapes = _invariants(loop_vars, shape_invariants, first)
        likes = list(zip(first, shapes, strict=True))

        def called(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *inside: function(*_arguments(nest.pack_like(loop_vars, inside)))

        test, _ = traced(called(cond), likes)
        step, result = traced(called(body), likes)
        _check(loop_vars, result, test, step, shapes)
        outputs = subgraph_op("While", first, (test, step), count=len(first))
        leave = identity if back_prop else stop_gradient
        outputs = tuple(leave(output, "Exit") for output in outputs)
    return unwrapped(nest.pack_like(result, outputs), keep=return_same_structure)


def _arguments(loop_vars: Any) -> Sequence[Any]:
    return loop_vars if isinstance(loop_vars, list | tuple) else (loop_vars,)


def _like(loop_vars: Any, result: Any) -> Any:
    """Return what a body returned as the structure of the loop variables: one of one needs no list."""
    single = isinstance(loop_vars, list | tuple) and len(loop_vars) == 1
    if single and not nest.same_structure(loop_vars, result):
        return type(loop_vars)([result])
    return result


def _invariants(loop_vars: Any, invariants: Any, first: Sequence[Tensor]) -> list[Shape]:
    if invariants is None:
        return [x.spec.shape for x in first]
    shapes = [as_shape(shape) for shape in nest.flatten_as(loop_vars, invariants)]
    for x, shape in zip(first, shapes, strict=True):
        if not x.shape.is_compatible_with(shape):
            raise ValueError(f"{x!r} does not have the shape invariant {TensorShape(shape)}.")
    return shapes


def _check(
    loop_vars: Any, result: Any, test: SubGraph, step: SubGraph, shapes: Sequence[Shape]
) -> None:
    if not nest.same_structure(loop_vars, _like(loop_vars, result)):
        raise ValueError(
            f"body must return the structure of loop_vars, {loop_vars!r}; it returned {result!r}."
        )
    if len(test.targets) != 1 or test.targets[0].dtype.name != "bool":
        raise TypeError(f"cond must return a bool scalar, got {test.targets!r}.")
    for before, after, shape in zip(step.parameters, step.targets, shapes, strict=False):
        if before.dtype is not after.dtype:
            raise TypeError(
                f"Loop variable {before.name!r} enters the loop with type {before.dtype.name}, "
                f"but has type {after.dtype.name} after 1 iteration."
            )
        if common(shape, after.spec.shape) != shape:
            raise ValueError(
                f"The shape for {before.name} is not an invariant for the loop. It enters the loop "
                f"with shape {TensorShape(shape)}, but has shape {after.shape} after one iteration. "
                "Provide shape invariants using the `shape_invariants` argument, or set_shape()."
            )


def _spec(*specs: Spec, branches: tuple[SubGraph, SubGraph], count: int) -> tuple[Spec, ...]:
    parameters = branches[1].parameters[:count]
    for parameter, spec in zip(parameters, specs, strict=False):
        declared = parameter.op.attrs["shape"]
        if not is_compatible(declared, spec.shape):
            raise ValueError(
                f"A value of shape {TensorShape(spec.shape)} is given for {parameter.name}, which has "
                f"the shape invariant {TensorShape(declared)}"
            )
    return tuple(Spec(p.spec.dtype, p.spec.shape) for p in parameters)


# Running.


async def _while(
    run: Run,
    op: Operation,
    plans: Sequence[Plan],
    arrays: list[Any],
    state: Any,
    base: int,
    begun: list[tuple[int, Sequence[Any]]] | None = None,
) -> Any:
    """Run a loop; add to ``begun`` the number of each iteration, and the values that it began with."""
    own, for_test, for_step, *_ = split_inputs(op, arrays)
    values = own[: op.attrs["count"]]
    for i in itertools.count(1):
        now = run.iteration(base, i)
        (condition,), state = await run_subplan(op, plans[0], run, [*values, *for_test], state, now)
        if getattr(condition, "ndim", 0):
            raise InvalidArgumentError(
                f"A condition must be a scalar, but it has shape {condition.shape}"
            )
        if not condition:
            return values, state
        if begun is not None:
            begun.append((now, values))
        values, state = await run_subplan(op, plans[1], run, [*values, *for_step], state, now)


# The gradient: the loop once more, keeping what each iteration began with, then its body backwards.


def _gradient(op: Operation, *grads: Tensor | None) -> list[Any]:
    test, step = op.attrs["branches"]
    check_repeatable(test)
    count = op.attrs["count"]
    floating = tuple(i for i in range(count) if op.inputs[i].dtype.is_floating)
    own, _, taken = split_inputs(op, op.inputs)
    wanted = tuple(i for i, tensor in enumerate(taken) if tensor.dtype.is_floating)

    def backwards(*given: Tensor) -> list[Any]:
        """Return the gradients of a body's inputs for its inputs and its results' gradients."""
        inside = [*given[:count], *map(get_default_graph().take_in, taken)]
        ends = dict(zip(floating, given[count:], strict=True))
        asked = [*floating, *(count + i for i in wanted)]
        return replayed_gradients(step, inside, [ends.get(i) for i in range(count)], asked)

    likes = [*step.parameters[:count], *(step.targets[i] for i in floating)]
    back, _ = traced(backwards, [(x, x.spec.shape) for x in likes])
    zeros = {i: np.zeros((), op.inputs[i].dtype.numpy) for i in floating if grads[i] is None}
    flowing = [convert_to_tensor(zeros.get(i, grads[i])) for i in floating]
    inputs = (*own, *flowing, *op.inputs[count:], *back.captured)
    attrs = {"branches": (test, step, back), "count": count, "floating": floating, "wanted": wanted}
    after = [*op.control_inputs, *back.outer_control]  # it sees the variables that the loop sees
    with control_dependencies(after):
        found = create_ops("WhileGrad", inputs, attrs)
    offset = count + len(test.captured)
    by_input = dict(zip([*floating, *(offset + i for i in wanted)], found, strict=True))
    return [by_input.get(i) for i in range(len(op.inputs))]


def _while_grad_spec(
    *specs: Spec, branches: Any, count: int, floating: Sequence[int], wanted: Sequence[int]
) -> tuple[Spec, ...]:
    step = branches[1]
    likes = [step.parameters[i] for i in floating] + [step.captured[i] for i in wanted]
    return tuple(Spec(x.spec.dtype, x.spec.shape) for x in likes)


async def _while_grad(
    run: Run, op: Operation, plans: Sequence[Plan], arrays: list[Any], state: Any, base: int
) -> Any:
    own, _, for_step, for_back = split_inputs(op, arrays)
    floating, wanted, count = op.attrs["floating"], op.attrs["wanted"], op.attrs["count"]
    begun: list[tuple[int, Sequence[Any]]] = []
    values, state = await _while(run, op, plans, arrays, state, base, begun)
    grads = [np.zeros_like(values[i]) + grad for i, grad in zip(floating, own[count:], strict=True)]
    sums = [np.zeros_like(for_step[i]) for i in wanted]
    for now, values in reversed(begun):
        run.check()
        found, state = await run_subplan(op, plans[2], run, [*values, *grads, *for_back], state, now)
        grads = found[: len(floating)]
        sums = [total + part for total, part in zip(sums, found[len(floating) :], strict=True)]
    return [*grads, *sums], state


register(ControlOpDef("While", _while, _spec, _gradient, loops=True))
register(ControlOpDef("AsyncWhile", _while, _spec, _gradient, awaits=True))
register(ControlOpDef("WhileGrad", _while_grad, _while_grad_spec, loops=True))
