"""A gradient of which only some rows are not zero. TF1: ``tf.IndexedSlices``."""

from __future__ import annotations

from typing import Any, NamedTuple

from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.node import NodeGraph, Operation, Tensor


class IndexedSlicesValue(NamedTuple):
    """What a run returns for a fetched :class:`IndexedSlices`. TF1: same name."""

    values: Any
    indices: Any
    dense_shape: Any = None


class IndexedSlices:
    """Rows of a big tensor: ``dense[indices[i]] += values[i]``, and zeros elsewhere. TF1: same name.

    Stands for its dense tensor wherever a tensor is expected.

    Args:
        values: the rows, a tensor of shape ``[n, ...]``.
        indices: which rows they are, an integer tensor of shape ``[n]``; a row may come twice.
        dense_shape: the shape of the whole, an integer vector. Without it, it stands for no tensor, but
            can be applied to a variable.
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
    """Return slices as a tensor; anything else as it is."""
    return grad._as_tensor() if isinstance(grad, IndexedSlices) else grad
