"""The shapes that updates get at last, where the graph did not know them, or was told another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.op_def import Spec
from asyncmon.graph.plan import located

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.plan import Update

__all__ = ["check_shapes"]


def check_shapes(update: Update, arrays: Sequence[Any], registers: Sequence[Any]) -> None:
    """Refuse inputs that do not fit, before anything is written.

    Args:
        update: what is to be done.
        arrays: what it will write.
        registers: with its inputs; None for one that is not computed yet.

    Raises:
        InvalidArgumentError: the op's rule says so.
    """
    for i, shape in update.shaped:
        value = registers[i]
        if value is not None and value.shape != shape:
            break
    else:
        return
    op = update.op
    tensors = op.inputs[op.op_def.refs :]
    values = [registers[i] for i in update.inputs]
    specs = [Spec(t.spec.dtype, a.shape) for t, a in zip(op.inputs, arrays, strict=False)]
    for tensor, value in zip(tensors, values, strict=True):
        specs.append(tensor.spec if value is None else Spec(tensor.spec.dtype, np.shape(value)))
    try:
        op.op_def.infer(*specs, **op.attrs)
    except ValueError as error:
        given = ", ".join(str(np.shape(value)) for value in values if np.shape(value))
        what = f"variable {update.names[0]!r} of shape {arrays[0].shape} is updated with {given}"
        raise located(ValueError(f"{error}: {what}"), op) from error
