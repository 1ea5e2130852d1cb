"""The shapes that updates get at last, where the graph did not know them, or was told others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph.core.spec import Spec
from asyncmon.graph.execution.plan import located

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.core.node import Operation

__all__ = ["ShapeCheck"]

_MANY = 64  # combinations of shapes that are remembered


class ShapeCheck:
    """Refuses inputs of an update that do not fit, before anything is written.

    Args:
        op: the update.
        inputs: the registers of its inputs, without the variable and its slots.
    """

    def __init__(self, op: Operation, inputs: Sequence[int]) -> None:
        self._op = op
        self._inputs = tuple(zip(op.inputs[op.op_def.refs :], inputs, strict=True))
        self._shape = op.inputs[0].spec.shape
        self._not_scalars = [
            (i, tensor.spec.shape) for tensor, i in self._inputs if tensor.spec.shape != ()
        ]
        self._known: set[tuple[Any, ...]] = set()

    def __call__(self, arrays: Sequence[Any], registers: Sequence[Any]) -> None:
        """Check.

        Args:
            arrays: the values of the variable and its slots.
            registers: with the inputs; None for one that is not computed yet.

        Raises:
            InvalidArgumentError: the op's rule says so.
        """
        if arrays[0].shape == self._shape:
            for i, shape in self._not_scalars:
                value = registers[i]
                if value is not None and value.shape != shape:
                    break
            else:
                return
        specs = [
            Spec(t.spec.dtype, array.shape) for t, array in zip(self._op.inputs, arrays, strict=False)
        ]
        for tensor, i in self._inputs:
            value = registers[i]
            specs.append(tensor.spec if value is None else Spec(tensor.spec.dtype, value.shape))
        shapes = tuple([spec.shape for spec in specs])
        if shapes in self._known:
            return
        try:
            self._op.op_def.infer(*specs, **self._op.attrs)
        except ValueError as error:
            given = ", ".join(str(shape) for shape in shapes[len(arrays) :])
            what = f"a variable of shape {shapes[0]} is updated with inputs of shapes {given}"
            raise located(ValueError(f"{error}: {what}"), self._op) from error
        if len(self._known) >= _MANY:
            self._known.clear()
        self._known.add(shapes)
