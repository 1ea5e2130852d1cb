"""Constant folding: nodes whose outputs are known before any run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core.shape import is_known, num_elements
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.execution.specialise import infer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.execution.specialise import Facts

_LARGEST = 1 << 16  # elements: a larger constant is cheaper to compute than to keep
_SHAPE = 1 << 6  # elements: a larger value is no shape


def fold(
    op: Operation, inputs: Sequence[int], constants: Mapping[int, Any], facts: Facts
) -> Sequence[Any] | None:
    """Return the outputs of a node that is stateless, or None where they depend on a run.

    Args:
        op: the node.
        inputs: the registers of its inputs.
        constants: the registers with a value that never changes.
        facts: what is known of tensors.
    """
    if len(op.outputs) == 1:
        spec = facts[op.outputs[0]]
        if spec.value is not None and not op.inputs:
            return (spec.value if spec.value.ndim or spec.value.dtype == object else spec.value[()],)
        if spec.dims is not None and None not in spec.dims:  # a known shape, of an unknown tensor
            return (np.array(spec.dims, spec.dtype.as_numpy_dtype).reshape(spec.shape or ()),)
    if op.op_def.kernel is None or not constants.keys() >= set(inputs):
        return None
    specs: Sequence[Spec] = [facts[x] for x in op.outputs]
    try:
        if any(x in facts for x in op.inputs):
            specs = infer(op, [facts[x] for x in op.inputs])
        sizes = [num_elements(spec.shape) for spec in specs]
        if any(size is None or size > _LARGEST for size in sizes):
            return None
        with np.errstate(all="ignore"):
            values = op.op_def.kernel(*[constants[i] for i in inputs], **op.attrs)
    except Exception:  # what fails is left to fail in the run, at its node
        return None
    return (values,) if len(op.outputs) == 1 else tuple(values)


def note_value(tensor: Tensor, value: Any, facts: Facts) -> None:
    """Note what is known of a folded tensor: a rule may look at a value that can be a shape."""
    if tensor.spec.value is None and (tensor.dtype.is_integer or not is_known(tensor.spec.shape)):
        array = np.asarray(value)
        is_shape = array.ndim < 2 and array.size < _SHAPE and array.dtype != object
        facts[tensor] = Spec(tensor.dtype, array.shape, array if is_shape else None)
