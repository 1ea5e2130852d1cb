"""Sparse tensors: features of variable length and lookups of them. TF1: ``tf.SparseTensor``."""

from __future__ import annotations

from typing import Any, NamedTuple

from asyncmon import graph as g
from asyncmon.graph.core.rules import shape_from
from asyncmon.tf1.ops.segments import aligned, segment_sum
from asyncmon.tf1.ops.sequences import sparse_to_dense

__all__ = [
    "SparseTensor", "SparseTensorValue", "embedding_lookup_sparse", "sparse_placeholder",
    "sparse_retain", "sparse_tensor_dense_matmul", "sparse_tensor_to_dense",
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


def sparse_retain(sp_input: SparseTensor, to_retain: Any) -> SparseTensor:
    """Return the elements for which ``to_retain``, a vector of booleans, is true. TF1: same name."""
    at, values, sizes = _checked(sp_input)
    kept = g.convert_to_tensor(to_retain, g.bool)
    kept.shape.with_rank(1).assert_is_compatible_with(values.shape)
    return SparseTensor(g.boolean_mask(at, kept), g.boolean_mask(values, kept), sizes)


# fmt: off
def sparse_tensor_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> g.Tensor:
    """Return the product of a sparse and a dense matrix; either may be transposed. TF1: same name.

    Gradients flow into the values and into ``b``. InvalidArgumentError in the run for indices that are
    out of range.
    """
    given = sp_a if isinstance(sp_a, SparseTensor) else SparseTensor(*sp_a)
    with g.name_scope(name, "SparseTensorDenseMatMul"):
        right = g.convert_to_tensor(b, given.values.dtype)
        right = g.transpose(right) if adjoint_b else right
        row, column = (1, 0) if adjoint_a else (0, 1)
        picked = g.gather(right, given.indices[:, column]) * g.expand_dims(given.values, 1)
        found = g.unsorted_segment_sum(picked, given.indices[:, row], given.dense_shape[row])
        rows = given.shape.as_list()[row] if given.shape.ndims else None
        found.set_shape([rows, right.shape.as_list()[1] if right.shape.ndims else None])
        return found


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
