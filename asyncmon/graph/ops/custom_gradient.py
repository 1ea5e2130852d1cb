"""``custom_gradient``: a function of tensors that says itself how gradients flow back."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from asyncmon.graph.construction.build import convert_to_tensor, create_op, create_ops
from asyncmon.graph.core.nest import flatten
from asyncmon.graph.core.op import OpDef, register
from asyncmon.graph.core.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.graph.core.node import Operation, Tensor


def _values(*values: Any, count: int, grad_fn: Any) -> Any:
    return values[0] if count == 1 else values[:count]


def _rule(*specs: Spec, count: int, grad_fn: Any) -> tuple[Spec, ...]:
    return tuple(Spec(spec.dtype, spec.shape) for spec in specs[:count])


def _gradient(op: Operation, *grads: Tensor | None) -> list[Any]:
    count = op.attrs["count"]
    flows = [
        create_op("ZerosLike", (y,)) if g is None else g for y, g in zip(op.outputs, grads, strict=True)
    ]
    found = op.attrs["grad_fn"](*flows)
    back = list(found) if isinstance(found, list | tuple) else [found]
    expected = len(op.inputs) - count
    if len(back) != expected:
        raise ValueError(
            f"The gradient function of custom_gradient must return {expected} gradients, one for each "
            f"argument, got {len(back)}."
        )
    return [*[None] * count, *back]


register(OpDef("CustomGradient", _values, _rule, _gradient, aliases=True))


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function like ``f`` whose gradient is what ``f`` says. TF1: ``tf.custom_gradient``.

    ::

        @custom_gradient
        def log1pexp(x):
            e = exp(x)
            return log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    Args:
        f: ``f(*tensors) -> results, grad_fn``, where ``grad_fn(*grads)`` gets the gradient of each
            result and returns one for each argument. Variables that ``f`` reads get none: pass them.
    """

    @wraps(f)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        inputs = [convert_to_tensor(arg) for arg in args]
        results, grad_fn = f(*inputs, **kwargs)
        listed = [convert_to_tensor(result) for result in flatten(results)]
        attrs = {"count": len(listed), "grad_fn": grad_fn}
        outputs = create_ops("CustomGradient", (*listed, *inputs), attrs)
        return list(outputs) if isinstance(results, list | tuple) else outputs[0]

    return decorated
