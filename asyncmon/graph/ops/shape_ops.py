"""Shapes: shape, size, rank, reshape, expand_dims, squeeze, transpose, broadcast_to, tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import axis_of, convert_to_tensor, create_op, graph_of, shape_tensor
from asyncmon.graph.core.convert import const, is_tensor_like, renamed_argument, static_axes, tensors_in
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, constant_of, register, table
from asyncmon.graph.core.rules import rank_of, shape_from
from asyncmon.graph.core.shape import Shape, merge, merge_dim, num_elements
from asyncmon.graph.numerics.arrays import Array

Gradients = list[Tensor | None]


def like(type: str, inputs: Sequence[Any], x: Tensor, attrs: Mapping[str, Any] | None = None) -> Tensor:
    """Add an op whose last input is the shape of ``x``, and return its output."""
    return create_op(type, (*inputs, create_op("Shape", (x,))), attrs)


def broadcast_like(value: Any, x: Tensor) -> Tensor:
    """Broadcast a tensor to the shape of ``x``."""
    return like("BroadcastTo", (value,), x)


# --- asking for the shape -------------------------------------------------------------------------
def _integers(
    ask: Callable[[Array], Any], known: Callable[[Shape], tuple[Shape, Shape]]
) -> tuple[Callable[..., Any], rules.Rule]:
    """Return kernel and rule of an op; ``known`` gives the shape and the elements of the output."""

    def kernel(x: Array, *, out_type: dtypes.DType = dtypes.int32) -> Array:
        return np.array(ask(x), out_type.numpy)

    def rule(x: Spec, *, out_type: dtypes.DType = dtypes.int32) -> Spec:
        own, elements = known(x.shape)
        return Spec(out_type, own, dims=elements)

    return kernel, rule


register(OpDef("Shape", *_integers(np.shape, lambda shape: ((rank_of(shape),), shape)), ZERO))
register(OpDef("Size", *_integers(np.size, lambda shape: ((), (num_elements(shape),))), ZERO))
register(OpDef("Rank", *_integers(np.ndim, lambda shape: ((), (rank_of(shape),))), ZERO))


def shape(input: Any, name: str | None = None, out_type: Any = dtypes.int32) -> Tensor:
    """Return the shape as a vector of integers, a constant if it is known. TF1: ``tf.shape``."""
    return _asked("Shape", input, out_type, name)


def _asked(op_type: str, input: Any, out_type: Any, name: str | None) -> Tensor:
    tensor, dtype = convert_to_tensor(input), dtypes.as_dtype(out_type)
    spec = table[op_type].infer(tensor.spec, out_type=dtype)
    value = constant_of(spec) if isinstance(spec, Spec) else None
    if value is None:
        return create_op(op_type, (tensor,), {"out_type": dtype}, name)
    return const(graph_of((tensor,)), value.astype(dtype.numpy), dtype, name or op_type)


def size(input: Any, name: str | None = None, out_type: Any = dtypes.int32) -> Tensor:
    """Return the number of elements, a constant if it is known. TF1: ``tf.size``."""
    return _asked("Size", input, out_type, name)


def rank(input: Any, name: str | None = None) -> Tensor:
    """Return the number of dimensions, a constant if it is known. TF1: ``tf.rank``."""
    return _asked("Rank", input, dtypes.int32, name)


# --- reshape --------------------------------------------------------------------------------------
def _reshape(x: Array, target: Array) -> Any:
    sizes = target.reshape(-1).tolist()
    if sizes and min(sizes) < -1:  # which numpy treats as -1
        raise InvalidArgumentError(f"Sizes must be non-negative, or -1 for the rest, got {sizes}")
    if 0 in sizes and -1 in sizes and not np.size(x):  # TF1 divides by the non-zero sizes
        rest = prod(d for d in np.shape(x) if d) // prod(d for d in sizes if d > 0)
        sizes[sizes.index(-1)] = rest
    return np.reshape(x, sizes)


def _reshape_rule(x: Spec, target: Spec) -> Spec:
    rules.check_dtype(target.dtype, (dtypes.int32, dtypes.int64), "shape")
    dims = shape_from(target)
    if dims is None:
        return Spec(x.dtype, None)
    if any(d is not None and d < -1 for d in dims):
        raise ValueError(f"Sizes must be non-negative, or -1 for the rest, got {list(dims)}")
    wild = [i for i, d in enumerate(dims) if d == -1]
    if len(wild) > 1:
        raise ValueError(f"Only one input size may be -1, not both {wild[0]} and {wild[1]}")
    free, total = None, num_elements(x.shape)
    if total is not None and None not in dims:
        known = prod(d for d in dims if d is not None and d != -1)
        if not wild and total != known:
            found = f"{rules.text(dims)} ({known} elements)"
            raise ValueError(f"Cannot reshape a tensor with {total} elements to shape {found}")
        if known and total % known:
            raise ValueError(f"Dimension size must be evenly divisible by {known} but is {total}")
        if wild and total and not known:
            raise ValueError(f"Cannot reshape a tensor with {total} elements to {rules.text(dims)}")
        free = total // known if known else None
    elif x.shape is not None and x.shape.count(None) == 1 and not wild and None not in dims:
        needed = prod(d for d in dims if d is not None)
        known = prod(d for d in x.shape if d is not None)
        if known and needed % known:  # for any unknown size
            raise ValueError(f"Dimension size must be evenly divisible by {known} but is {needed}")
    return Spec(x.dtype, tuple(free if d == -1 else d for d in dims))


def _reshape_run_rule(x: Spec, target: Spec) -> Spec:
    # a single size may be a scalar
    if target.shape == ():
        target = Spec(target.dtype, (1,), dims=target.known_dims())
    return _reshape_rule(x, target)


register(OpDef("Reshape", _reshape, _reshape_rule,
    lambda op, grad: [like("Reshape", (grad,), op.inputs[0]), None],
    aliases=True, run_rule=_reshape_run_rule))  # fmt: skip


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Tensor:
    """Return the elements in another shape, which may have one -1. TF1: ``tf.reshape``."""
    return create_op("Reshape", (tensor, shape_tensor(shape)), None, name)


# --- dimensions of size one -----------------------------------------------------------------------
def _expand_dims(x: Array, *, axis: tuple[int, ...]) -> Array:
    if len(axis) != 1:
        return np.expand_dims(x, axis)
    shape = list(np.shape(x))
    shape.insert(axis[0] if axis[0] >= 0 else len(shape) + 1 + axis[0], 1)
    return np.reshape(x, shape)  # np.expand_dims takes five times as long


def _expand_dims_rule(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    if x.shape is None:
        return Spec(x.dtype, None)
    rank = len(x.shape) + len(axis)
    new = {rules.normalize_axis(a, rank) for a in axis}
    rest = iter(x.shape)
    return Spec(x.dtype, tuple(1 if i in new else next(rest) for i in range(rank)))


def expand_dims(input: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """Insert a dimension of size 1 at ``axis``. TF1: ``tf.expand_dims``."""
    axis = renamed_argument("axis", axis, "dim", dim)
    if axis is None:
        raise ValueError("Must specify an axis argument to tf.expand_dims()")
    at, x = axis_of(axis, vector=True), convert_to_tensor(input)
    if isinstance(at, int):
        return create_op("ExpandDims", (x,), {"axis": (at,)}, name)
    sizes = create_op("ShapeWithSize", (shape(x), at, [1]), {"insert": True})
    return create_op("Reshape", (x, sizes), None, name or "ExpandDims")


def _squeeze_rule(x: Spec, *, axis: tuple[int, ...] | None) -> Spec:
    if x.shape is None:
        return Spec(x.dtype, None)
    if axis is None:
        return Spec(x.dtype, None if None in x.shape else tuple(d for d in x.shape if d != 1))
    gone = {rules.normalize_axis(a, len(x.shape)) for a in axis}
    for i in sorted(gone):
        if x.shape[i] not in (1, None):
            raise ValueError(f"Can not squeeze dim[{i}], expected a dimension of 1, got {x.shape[i]}")
    return Spec(x.dtype, tuple(d for i, d in enumerate(x.shape) if i not in gone))


register(OpDef("ExpandDims", _expand_dims, _expand_dims_rule,
    lambda op, grad: [create_op("Squeeze", (grad,), op.attrs)], aliases=True))  # fmt: skip
register(OpDef("Squeeze", np.squeeze, _squeeze_rule,
    lambda op, grad: [like("Reshape", (grad,), op.inputs[0])], aliases=True))  # fmt: skip


def squeeze(input: Any, axis: Any = None, name: str | None = None, squeeze_dims: Any = None) -> Tensor:
    """Remove all dimensions of size 1, or those of ``axis``. TF1: ``tf.squeeze``."""
    axes = static_axes(renamed_argument("axis", axis, "squeeze_dims", squeeze_dims))
    return create_op("Squeeze", (input,), {"axis": tuple(dict.fromkeys(axes or ())) or None}, name)


# --- order and repetition of dimensions -----------------------------------------------------------
def _transpose_rule(x: Spec, *order: Spec, perm: tuple[int, ...] | None) -> Spec:
    if order:
        rules.check_dtype(order[0].dtype, (dtypes.int32, dtypes.int64), "perm")
        (rank,), known = rules.with_rank(order[0].shape, 1), constant_of(order[0])
        if known is None:
            rank = merge_dim(rank, rank_of(x.shape))
            return Spec(x.dtype, None if rank is None else (None,) * rank)
        perm = tuple(known.tolist())
    if perm is None:
        return Spec(x.dtype, None if x.shape is None else x.shape[::-1])
    shape = rules.with_rank(x.shape, len(perm))
    axes = [rules.normalize_axis(a, len(perm), "perm") for a in perm]
    if len(set(axes)) != len(axes):
        raise ValueError(f"perm must be a permutation of the dimensions, got {list(perm)}")
    return Spec(x.dtype, tuple(shape[a] for a in axes))


def _transpose_gradient(op: Operation, grad: Tensor) -> Gradients:
    perm = op.attrs["perm"]
    if len(op.inputs) > 1:
        order = create_op("InvertPermutation", (op.inputs[1],))
        return [create_op("Transpose", (grad, order), {"perm": None}), None]
    back = None if perm is None else tuple(int(i) for i in np.argsort([p % len(perm) for p in perm]))
    return [create_op("Transpose", (grad,), {"perm": back})]


register(OpDef("Transpose", lambda x, *order, perm:
    np.transpose(x, order[0].tolist() if order else perm), _transpose_rule, _transpose_gradient,
    aliases=True))  # fmt: skip


def transpose(
    a: Any, perm: Any = None, name: str | None = "transpose", conjugate: bool = False
) -> Tensor:
    """Permute the dimensions of a tensor, by default reverse them. TF1: ``tf.transpose``.

    ``perm``, which may be a tensor, has the dimension of ``a`` for each dimension of the result.
    """
    x = convert_to_tensor(a)
    if conjugate and x.dtype.is_complex:
        x = create_op("Conj", (x,))
    if is_tensor_like(perm) or any(True for _ in tensors_in(perm)):
        order = convert_to_tensor(perm)
        if constant_of(order.spec) is None:
            return create_op("Transpose", (x, order), {"perm": None}, name)
    return create_op("Transpose", (x,), {"perm": static_axes(perm, "perm")}, name)


def sum_to_shape(value: Array, shape: Any) -> Any:
    """Sum an array to a shape that broadcasts to its own."""
    target, found = tuple(shape), np.shape(value)
    if found == target:
        return value
    padded = (1,) * (len(found) - len(target)) + target
    axes = tuple(i for i, d in enumerate(found) if i < len(found) - len(target) or d != padded[i])
    return np.add.reduce(value, axis=axes, keepdims=False).reshape(target)


_FEW = 4096  # elements: a copy is faster than np.broadcast_to, which is written in Python


def _broadcast_to(x: Array, target: Array) -> Any:
    shape = target.tolist()
    if prod(shape) > _FEW or np.ndim(x) > len(shape):
        return np.broadcast_to(x, shape)
    result = np.empty(shape, x.dtype)
    result[...] = x
    return result


register(OpDef("BroadcastTo", _broadcast_to, lambda x, target:
    Spec(x.dtype, merge(rules.broadcast(x.shape, dims := shape_from(target)), dims)),
    lambda op, grad: [like("SumToShape", (grad,), op.inputs[0]), None], aliases=True))  # fmt: skip
register(OpDef("SumToShape", sum_to_shape, lambda value, shape: Spec(value.dtype, shape.known_dims()),
    lambda op, grad: [broadcast_like(grad, op.inputs[0]), None], aliases=True))  # fmt: skip


def unbroadcast(grad: Tensor, operand: Tensor, other: Tensor) -> Tensor:
    """Sum ``grad``, of the shape of ``operand + other``, to the shape of ``operand``.

    Adds no node if the static shapes show that ``operand`` is not broadcast.
    """
    x, y = operand.spec.shape, other.spec.shape
    if operand is other:
        return grad
    if x is not None and y is not None and len(x) >= len(y):
        pairs = zip(x[len(x) - len(y) :], y, strict=True)
        if not any((a is None or a == 1) and b != 1 for a, b in pairs):
            return grad
    return like("SumToShape", (grad,), operand)


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """Broadcast a tensor to a shape. TF1: ``tf.broadcast_to``."""
    return create_op("BroadcastTo", (input, shape_tensor(shape)), None, name)


def _tile_rule(x: Spec, multiples: Spec) -> Spec:
    times = shape_from(multiples)
    rank = merge_dim(rank_of(times), rank_of(x.shape))
    if rank is None:
        return Spec(x.dtype, None)
    pairs = zip(rules.with_rank(x.shape, rank), times or (None,) * rank, strict=True)
    return Spec(x.dtype, tuple(None if n is None or m is None or m < 0 else n * m for n, m in pairs))


def _tile(x: Array, multiples: Array) -> Any:
    times = multiples.tolist()
    if times and min(times) < 0:
        raise InvalidArgumentError(f"Expected multiples >= 0, but got {times}")
    return np.tile(x, times)


def _tile_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    # split each dimension into the copies of a dimension of x, and add them up
    x, multiples = op.inputs
    sizes = create_op("Shape", (x,), {"out_type": multiples.dtype})

    def cut(copies: Tensor) -> Tensor:
        return reshape(create_op("Pack", (copies, sizes), {"axis": 1}), [-1])

    once = cut(create_op("OnesLike", (multiples,)))
    return [like("Reshape", (create_op("SumToShape", (reshape(grad, cut(multiples)), once)),), x), None]


register(OpDef("Tile", _tile, _tile_rule, _tile_gradient))


def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """Repeat a tensor ``multiples[i]`` times along each dimension i. TF1: ``tf.tile``."""
    return create_op("Tile", (input, shape_tensor(multiples)), None, name)
