"""``add_n``: the sum of tensors of one shape, of which none is broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.op import OpDef, Spec, register

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

__all__ = ["add_n"]


def _add_n(*inputs: Array) -> Any:
    if len(inputs) == 1:
        return inputs[0]
    total = np.add(inputs[0], inputs[1])
    for value in inputs[2:]:
        total = np.add(total, value, out=total if isinstance(total, np.ndarray) else None)
    return total


def _checked_add_n(first: Array, *others: Array) -> Any:
    shape = first.shape
    for i, value in enumerate(others):
        if value.shape != shape:
            raise InvalidArgumentError(
                f"Inputs to operation AddN must have the same size and shape. "
                f"Input 0: {list(shape)} != input {i + 1}: {list(value.shape)}"
            )
    return _add_n(first, *others)


def _bound_add_n(op: Operation) -> Callable[..., Any] | None:
    """Return what looks at no shape, where they are known."""
    known = all(rules.num_elements(tensor.spec.shape) is not None for tensor in op.inputs)
    return _add_n if known else None


def _add_n_shape(*inputs: Spec) -> Spec:
    rules.check_dtype(inputs[0].dtype, rules.NUMBERS, "inputs")
    for i, other in enumerate(inputs):
        if other.dtype is not inputs[0].dtype:
            raise TypeError(
                f"Tensors in list passed to 'inputs' of 'AddN' Op have types "
                f"[{', '.join(s.dtype.name for s in inputs)}] that don't all match (input {i})."
            )
    return rules.like_first(*inputs)


register(
    OpDef(
        "AddN",
        _checked_add_n,
        _add_n_shape,
        lambda op, grad: [grad] * len(op.inputs),
        aliases=True,
        bind=_bound_add_n,
    )
)


def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """Return the sum of tensors of one shape and dtype. TF1: ``tf.add_n``.

    Raises:
        ValueError: ``inputs`` is not a list of at least one tensor, or shapes differ.
    """
    if not isinstance(inputs, list | tuple) or not inputs:
        raise ValueError(
            "inputs must be an iterable of at least one Tensor/IndexedSlices with the same "
            "dtype and shape"
        )
    return create_op("AddN", [convert_to_tensor(value) for value in inputs], {}, name)
