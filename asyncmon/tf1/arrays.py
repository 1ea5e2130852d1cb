"""Functions of TF1 that order and move the elements of arrays, made of a few ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon import graph as g
from asyncmon.tf1 import more_ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph import Tensor

__all__ = [
    "argsort", "batch_gather", "batch_matmul", "concat_v2", "depth_to_space", "get_static_value",
    "inv", "listdiff", "no_regularizer", "parallel_stack", "select", "sort", "space_to_depth",
    "tensor_scatter_nd_add", "tensor_scatter_nd_sub", "tensor_scatter_nd_update",
]  # fmt: skip


def argsort(
    values: Any,
    axis: int = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the positions that sort a tensor along an axis, int32. TF1: same name.

    Equal elements keep their order. ``stable`` is without effect, as in TF1.

    Raises:
        ValueError: the direction is neither "ASCENDING" nor "DESCENDING", or the rank is unknown.
    """
    with g.name_scope(name, "argsort"):
        moved, order = _to_last(values, axis)
        return _from_last(_sorted(moved, direction).indices, order)


def sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """Return a tensor sorted along an axis. TF1: same name.

    Raises:
        ValueError: see :func:`argsort`.
    """
    with g.name_scope(name, "sort"):
        moved, order = _to_last(values, axis)
        top = _sorted(moved, direction)
        return _from_last(_negated(top.values) if direction == "ASCENDING" else top.values, order)


def _sorted(x: Tensor, direction: str) -> g.TopK:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"direction must be 'ASCENDING' or 'DESCENDING', got {direction!r}.")
    return g.top_k(_negated(x) if direction == "ASCENDING" else x, g.shape(x)[-1])


def _negated(x: Tensor) -> Tensor:
    """Return a tensor with the opposite order, and without overflow."""
    if not x.dtype.is_integer:
        return -x
    top = x.dtype.max if x.dtype.min == 0 else -1
    return g.constant(top, x.dtype) - x


def _to_last(values: Any, axis: int) -> tuple[Tensor, list[int] | None]:
    x = g.convert_to_tensor(values)
    if axis == -1:
        return x, None
    if x.shape.ndims is None:
        raise ValueError(f"axis={axis} needs a tensor of known rank, got {x}.")
    order = list(range(x.shape.ndims))
    order[axis], order[-1] = order[-1], order[axis]
    return g.transpose(x, order), order


def _from_last(x: Tensor, order: list[int] | None) -> Tensor:
    return x if order is None else g.transpose(x, order)


def batch_gather(params: Any, indices: Any, name: str | None = None) -> Tensor:
    """Return elements along the last axis of ``indices``, batch by batch. TF1: same name."""
    positions = g.convert_to_tensor(indices)
    if positions.shape.ndims is None:
        raise ValueError(f"batch_gather needs indices of known rank, got {positions}.")
    return g.gather(params, positions, name=name, batch_dims=positions.shape.ndims - 1)


def space_to_depth(
    input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC"
) -> Tensor:
    """Return images whose blocks of ``block_size`` squared pixels are channels. TF1: same name.

    Args:
        input: [batch, height, width, channels]; the sides are multiples of the block size.
        block_size: 2 or more.
        name: the name scope.
        data_format: "NHWC".

    Raises:
        ValueError: the block size is less than 2, or the format another one.
    """
    _check_block(block_size, data_format)
    with g.name_scope(name, "SpaceToDepth"):
        x, b = g.convert_to_tensor(input), block_size
        n, h, w, c = _sides(x)
        blocks = g.reshape(x, g.stack([n, h // b, b, w // b, b, c]))
        return g.reshape(g.transpose(blocks, [0, 1, 3, 2, 4, 5]), [n, h // b, w // b, b * b * c])


def depth_to_space(
    input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC"
) -> Tensor:
    """Undo :func:`space_to_depth`. TF1: same name."""
    _check_block(block_size, data_format)
    with g.name_scope(name, "DepthToSpace"):
        x, b = g.convert_to_tensor(input), block_size
        n, h, w, c = _sides(x)
        blocks = g.reshape(x, g.stack([n, h, w, b, b, c // (b * b)]))
        return g.reshape(g.transpose(blocks, [0, 1, 3, 2, 4, 5]), [n, h * b, w * b, c // (b * b)])


def _check_block(block_size: int, data_format: str) -> None:
    if block_size < 2:
        raise ValueError(f"block_size must be 2 or more, got {block_size!r}.")
    if data_format != "NHWC":
        raise ValueError(f"data_format must be 'NHWC', got {data_format!r}: transpose the images.")


def _sides(x: Tensor) -> list[Any]:
    """Return the four sizes of images: numbers where they are known."""
    if x.shape.ndims != 4:
        raise ValueError(f"The images must have the shape [batch, height, width, channels], got {x}.")
    sizes = g.shape(x)
    return [sizes[i] if size is None else size for i, size in enumerate(x.shape.as_list())]


def parallel_stack(values: Sequence[Any], name: str = "parallel_stack") -> Tensor:
    """Return tensors of one shape stacked along a new first axis. TF1: same name."""
    return g.stack(values, 0, name)


def batch_matmul(
    x: Any, y: Any, adj_x: bool = False, adj_y: bool = False, name: str | None = None
) -> Tensor:
    """Return the products of matrices. TF1: same name, before 1.0."""
    return g.matmul(x, y, adjoint_a=adj_x, adjoint_b=adj_y, name=name)


def select(condition: Any, t: Any, e: Any, name: str | None = None) -> Tensor:
    """Return :func:`asyncmon.graph.where`. TF1: same name, before 1.0."""
    return g.where(condition, t, e, name)


inv = g.reciprocal
concat_v2 = g.concat
listdiff = more_ops.setdiff1d
tensor_scatter_nd_add = more_ops.tensor_scatter_add
tensor_scatter_nd_sub = more_ops.tensor_scatter_sub
tensor_scatter_nd_update = more_ops.tensor_scatter_update


def get_static_value(tensor: Any, partial: bool = False) -> Any:
    """Return the array of a constant tensor, None of any other one. TF1: same name."""
    if not g.is_tensor(tensor):
        return tensor
    tensor = g.convert_to_tensor(tensor)
    return tensor.op.get_attr("value") if tensor.op.type == "Const" else None


def no_regularizer(_: Any) -> None:
    """Return None: a scope with it regularises nothing. TF1: same name."""
