"""Gradients with few non-zero rows. TF1: ``tf.IndexedSlices``."""

from __future__ import annotations

from typing import Any, NamedTuple

from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.node import NodeGraph, Operation, Tensor


class IndexedSlicesValue(NamedTuple):
    """The result of fetching an :class:`IndexedSlices`. TF1: same name."""

    values: Any
    indices: Any
    dense_shape: Any = None


class IndexedSlices:
    """Rows of a large tensor: ``dense[indices[i]] += values[i]``, zeros elsewhere. TF1: same name.

    It converts to its dense tensor wherever a tensor is expected.

    Args:
        values: the rows, a tensor of shape ``[n, ...]``.
        indices: the numbers of the rows, an integer tensor of shape ``[n]``, repetitions allowed.
        dense_shape: the shape of the dense tensor, an integer vector. Without it there is no
            conversion, but the slices can be applied to a variable.
    """

    def __init__(self, values: Tensor, indices: Tensor, dense_shape: Tensor | None = None) -> None:
        self.values = values
        self.indices = indices
        self.dense_shape = dense_shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.values.dtype

    @property
    def graph(self) -> NodeGraph:
        """The graph of the values."""
        return self.values.graph

    @property
    def name(self) -> str:
        """The name of the values."""
        return self.values.name

    @property
    def op(self) -> Operation:
        """The operation that computes the values."""
        return self.values.op

    def _as_tensor(self) -> Tensor:
        if self.dense_shape is None:
            raise ValueError(f"Tensor conversion requires dense_shape, which {self!r} has not.")
        inputs = (self.values, self.indices, self.dense_shape[0])
        return self.graph.create("UnsortedSegmentSum", inputs).outputs[0]

    def __repr__(self) -> str:
        return (
            f"IndexedSlices(indices={self.indices!r}, values={self.values!r}, "
            f"dense_shape={self.dense_shape!r})"
        )


def to_dense(grad: Any) -> Any:
    """Convert slices to a tensor; return anything else unchanged."""
    return grad._as_tensor() if isinstance(grad, IndexedSlices) else grad
