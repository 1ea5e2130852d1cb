"""Sparse tensors: features of variable length and lookups of them. TF1: ``tf.SparseTensor``."""

from __future__ import annotations

from typing import Any, NamedTuple

from asyncmon import graph as g
from asyncmon.graph.core.rules import shape_from
from asyncmon.tf1.ops.segments import aligned, segment_sum
from asyncmon.tf1.ops.sequences import sparse_to_dense

__all__ = [
    "SparseTensor", "SparseTensorValue", "embedding_lookup_sparse", "sparse_placeholder",
    "sparse_tensor_to_dense",
]  # fmt: skip


class SparseTensorValue(NamedTuple):
    """The value of a :class:`SparseTensor`, fed or fetched. TF1: same name."""

    indices: Any
    values: Any
    dense_shape: Any


class SparseTensor(SparseTensorValue):
    """Values at coordinates of a tensor that is zero elsewhere. TF1: same name.

    Runs fetch it as a :class:`SparseTensorValue`, and are fed one for it. It may be a loop variable.
    ``indices`` is int64 ``[n, rank]``, in the order of the elements, ``values`` is ``[n]`` and
    ``dense_shape`` is int64 ``[rank]``. ValueError for other shapes.
    """

    __slots__ = ()
    _value_type = SparseTensorValue

    def __new__(cls, indices: Any, values: Any, dense_shape: Any) -> SparseTensor:
        """Convert the parts to tensors."""
        at, sizes = (g.convert_to_tensor(x, g.int64) for x in (indices, dense_shape))
        x = g.convert_to_tensor(values)
        rows, rank = at.shape.with_rank(2).as_list()
        g.TensorShape([rows]).assert_is_compatible_with(x.shape.with_rank(1))
        g.TensorShape([rank]).assert_is_compatible_with(sizes.shape.with_rank(1))
        return super().__new__(cls, at, x, sizes)

    dtype = property(lambda self: self.values.dtype, doc="The dtype of the values.")
    graph = property(lambda self: self.values.graph, doc="The graph of the values.")
    op = property(lambda self: self.values.op, doc="The operation of the values.")

    shape = property(lambda self: self.get_shape(), doc="The static shape.")

    def get_shape(self) -> g.TensorShape:
        """Return the static shape. TF1: same name."""
        return g.TensorShape(shape_from(self.dense_shape.spec))


def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """Return a sparse tensor whose value must be fed. TF1: same name.

    A run is fed a :class:`SparseTensorValue` or a tuple ``(indices, values, dense_shape)`` for it.
    """
    sizes = g.TensorShape(shape)
    scope = name or "sparse_placeholder"
    known = sizes.is_fully_defined()
    dense = sizes.as_list() if known else g.placeholder(g.int64, [sizes.ndims], f"{scope}/shape")
    at = g.placeholder(g.int64, [None, sizes.ndims], f"{scope}/indices")
    return SparseTensor(at, g.placeholder(dtype, [None], f"{scope}/values"), dense)


# fmt: off
def sparse_tensor_to_dense(
    sp_input: SparseTensor, default_value: Any = None, validate_indices: bool = True,
    name: str | None = None,
) -> g.Tensor:
    """Return the dense tensor, with ``default_value``, 0 or b"", elsewhere. TF1: same name.

    Errors as of ``tf.sparse_to_dense``.
    """
    at, values, sizes = _checked(sp_input)
    default = 0 if default_value is None else default_value
    dense = sparse_to_dense(at, sizes, values, default, validate_indices, name or "SparseToDense")
    dense.set_shape(sp_input.shape)
    return dense


def embedding_lookup_sparse(
    params: Any, sp_ids: SparseTensor, sp_weights: SparseTensor | None,
    partition_strategy: str = "mod", name: str | None = None, combiner: str | None = None,
    max_norm: Any = None,
) -> g.Tensor:
    """Return for each row of ids the combined rows of a table. TF1: ``tf.nn``.

    A row without ids is zero; the result ends with the last row that has one. ``sp_ids`` is
    ``[batch, any]``; the other arguments are those of ``tf.nn.embedding_lookup``.

    Args:
        sp_weights: a weight for each id, with the same indices, or None for ones.
        combiner: "mean" (divided by the sum of the weights, the default), "sum", or "sqrtn" (divided
            by the root of the sum of squares).

    ValueError for an unknown combiner, TypeError for ids or weights that are no SparseTensor.
    """
    combiner = combiner or "mean"
    if combiner not in ("mean", "sum", "sqrtn"):
        raise ValueError(f"combiner must be one of 'mean', 'sqrtn' or 'sum', got {combiner!r}.")
    at, ids, _ = _checked(sp_ids)
    with g.name_scope(name, "embedding_lookup_sparse"):
        rows = g.nn.embedding_lookup(params, ids, partition_strategy, max_norm=max_norm)
        segments = g.cast(at[:, 0], g.int32)
        weights = g.ones_like(ids) if sp_weights is None else _checked(sp_weights).values
        each = aligned(g.cast(weights, rows.dtype), rows)
        total = segment_sum(rows * each, segments)
        if combiner == "sum":
            return total
        mean = combiner == "mean"
        by = segment_sum(each if mean else each * each, segments)
        found = g.div_no_nan(total, by if mean else g.sqrt(by))
        found.set_shape(total.shape)
        return found

# fmt: on


def _checked(value: Any) -> SparseTensor:
    if not isinstance(value, SparseTensor):
        raise TypeError(f"Expected a SparseTensor, got {value!r} of type {type(value).__name__}.")
    return value
