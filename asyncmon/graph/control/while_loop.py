"""``while_loop``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from asyncmon.graph.control.loop import check_carried, while_op
from asyncmon.graph.control.subgraph import SubGraph, traced
from asyncmon.graph.core import nest
from asyncmon.graph.core.build import convert_to_tensor, name_scope
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.shape import Shape, TensorShape, as_shape
from asyncmon.graph.ops.basic import constant, identity, stop_gradient
from asyncmon.graph.ops.elementwise import logical_and


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
    """Repeat ``body`` on the loop variables while ``cond`` is true. TF1: ``tf.while_loop``.

    Tensors and operations of the outer graph that both use run once, before the loop. Each iteration
    reads the current values of variables. If gradients are built, the values they use are stacked.

    Args:
        cond: takes the loop variables, returns a bool scalar.
        body: takes the loop variables, returns their next values in the same structure.
        loop_vars: the initial values: a list, tuple or nested structure of tensors.
        shape_invariants: a structure of shapes, less specific where a shape changes.
        parallel_iterations: without effect: iterations run one after another.
        back_prop: false stops gradients.
        swap_memory: without effect: there is one memory.
        maximum_iterations: an upper bound of the number of iterations.
        return_same_structure: return a list of one variable as a list.

    Returns:
        The final values, in the structure that ``body`` returns; a single variable without its list.

    Raises:
        TypeError: ``cond`` or ``body`` is not callable, or a dtype changes.
        ValueError: there is no loop variable, or the structure or a shape changes.
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
        return _result(result, len(nest.flatten(result)), keep=return_same_structure)
    with name_scope(name, "while"):
        first = [convert_to_tensor(value) for value in nest.flatten(loop_vars)]
        shapes = _invariants(loop_vars, shape_invariants, first)
        likes = list(zip(first, shapes, strict=True))

        def called(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *inside: function(*_arguments(nest.pack_like(loop_vars, inside)))

        test, _ = traced(called(cond), likes)
        step, result = traced(called(body), likes)
        _check(loop_vars, result, test, step)
        outputs = while_op(first, (test, step))
        leave = identity if back_prop else stop_gradient
        outputs = tuple(leave(output, "Exit") for output in outputs)
    return _result(nest.pack_like(result, outputs), len(outputs), keep=return_same_structure)


def _result(values: Any, count: int, *, keep: bool) -> Any:
    """Return the values of a loop; unpack a single one unless ``keep``."""
    listed = values if isinstance(values, list | tuple | Mapping) else [values]
    single = count == 1 and not keep and isinstance(listed, list | tuple)
    return listed[0] if single else listed


def _arguments(loop_vars: Any) -> Sequence[Any]:
    return loop_vars if isinstance(loop_vars, list | tuple) else (loop_vars,)


def _like(loop_vars: Any, result: Any) -> Any:
    """Return the result of a body in the structure of the loop variables; wrap a bare single one."""
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


def _check(loop_vars: Any, result: Any, test: SubGraph, step: SubGraph) -> None:
    if not nest.same_structure(loop_vars, _like(loop_vars, result)):
        raise ValueError(
            f"body must return the structure of loop_vars, {loop_vars!r}; it returned {result!r}."
        )
    if len(test.targets) != 1 or test.targets[0].dtype.name != "bool":
        raise TypeError(f"cond must return a bool scalar, got {test.targets!r}.")
    if test.targets[0].spec.shape not in ((), None):
        raise ValueError(f"cond must return a scalar, got one of shape {test.targets[0].shape}.")
    check_carried(step.parameters, step.targets)
