"""Join and split tensors: concat, stack, unstack, split."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, chain
from typing import Any

import numpy as np

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import axis_of, convert_to_tensor, create_op, create_ops
from asyncmon.graph.core.convert import is_tensor_like, static_int
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.shape import Shape, merge, merge_dim
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.axes import folded, with_size
from asyncmon.graph.ops.shape_ops import shape


# --- stack and unstack ----------------------------------------------------------------------------
def _pack(*values: Array, axis: int) -> Any:
    first = np.asarray(values[0])
    if first.ndim or first.dtype == object:
        return np.stack(values, axis)
    return np.array(values, first.dtype)


def _pack_rule(*values: Spec, axis: int) -> Spec:
    check_one_dtype("Pack", values)
    dtype, shape = values[0].dtype, rules.like_first(*values).shape
    if shape is None:
        return Spec(dtype, None)
    at = rules.normalize_axis(axis, len(shape) + 1)
    dims = None
    if not shape and dtype.is_integer:
        dims = tuple((value.known_dims() or (None,))[0] for value in values)
    return Spec(dtype, (*shape[:at], len(values), *shape[at:]), dims=dims)


def check_one_dtype(op_type: str, values: Sequence[Spec], parameter: str = "values") -> None:
    """Raise TypeError for a list of tensors of different dtypes."""
    if any(value.dtype is not values[0].dtype for value in values):
        raise TypeError(
            f"Tensors in list passed to {parameter!r} of {op_type!r} Op have types "
            f"[{', '.join(value.dtype.name for value in values)}] that don't all match."
        )


def _outputs(parts: Sequence[Array]) -> Any:
    """Return the result of a kernel: a tuple, or the value of a single output."""
    return parts[0] if len(parts) == 1 else tuple(parts)


def _unpack_rule(x: Spec, *, num: int, axis: int) -> tuple[Spec, ...]:
    if x.shape is None:
        return (Spec(x.dtype, None),) * num
    at = rules.normalize_axis(axis, len(x.shape))
    merge_dim(x.shape[at], num)
    shape = x.shape[:at] + x.shape[at + 1 :]
    known = None if shape else x.known_dims()
    return tuple(Spec(x.dtype, shape, dims=None if known is None else (known[i],)) for i in range(num))


def _all_grads(op: Operation, grads: Sequence[Tensor | None]) -> list[Tensor]:
    """Return the gradients of all outputs, zeros for an output without one."""
    return [
        create_op("ZerosLike", (output,)) if grad is None else grad
        for output, grad in zip(op.outputs, grads, strict=True)
    ]


register(OpDef("Pack", _pack, _pack_rule, lambda op, grad: list(
    create_ops("Unpack", (grad,), {"num": len(op.inputs), "axis": op.attrs["axis"]}))))  # fmt: skip
register(OpDef("Unpack", lambda x, *, num, axis: _outputs(np.moveaxis(x, axis, 0)), _unpack_rule,
    lambda op, *grads: [create_op("Pack", _all_grads(op, grads), {"axis": op.attrs["axis"]})],
    aliases=True))  # fmt: skip


def stack(values: Any, axis: Any = 0, name: str | None = "stack") -> Tensor:
    """Stack tensors of one shape and dtype along a new dimension. TF1: ``tf.stack``.

    A list of numbers only makes a constant of a dtype that can hold all of them.
    """
    at = static_int(axis, "axis")
    if at == 0 and (not isinstance(values, list | tuple) or not values or _only_numbers(values)):
        with suppress(TypeError, ValueError):  # Pack raises a better error
            return convert_to_tensor(values, name=name)
    return create_op("Pack", one_dtype(values, "stack"), {"axis": at}, name)


def _only_numbers(values: Any) -> bool:
    """Return true for nested lists of numbers or strings, without tensors and arrays."""
    if isinstance(values, list | tuple):
        return bool(values) and all(_only_numbers(value) for value in values)
    return bool(np.isscalar(values))


def one_dtype(values: Any, what: str) -> list[Tensor]:
    """Convert a non-empty list to tensors; Python values take the dtype of the first tensor."""
    values = unstack(values) if is_tensor_like(values) else values
    if not len(values):
        raise ValueError(f"{what}() needs a list of at least one tensor, got {values!r}.")
    dtype = next((v.dtype for v in values if is_tensor_like(v)), None)
    return [convert_to_tensor(v, None if is_tensor_like(v) else dtype) for v in values]


def unstack(value: Any, num: int | None = None, axis: Any = 0, name: str = "unstack") -> list[Tensor]:
    """Return the slices along an axis as a list; ``num`` is needed if unknown. TF1: ``tf.unstack``."""
    x, at = convert_to_tensor(value), static_int(axis, "axis")
    if num is None and x.spec.shape is not None:
        num = x.spec.shape[rules.normalize_axis(at, len(x.spec.shape))]
    if num is None:
        raise ValueError(f"Cannot infer argument `num` from shape {x.shape}")
    return list(create_ops("Unpack", (x,), {"num": num, "axis": at}, name))


# --- concat and split -----------------------------------------------------------------------------
def _concat_rule(*values: Spec, axis: int) -> Spec:
    check_one_dtype("ConcatV2", values)
    dtype, known = values[0].dtype, [value.shape for value in values if value.shape is not None]
    if not known:
        return Spec(dtype, None)
    if not known[0]:
        raise ValueError("concat() expects tensors of rank 1 or higher; use stack() for scalars")
    at = rules.normalize_axis(axis, len(known[0]))
    shape: Shape = (None,) * len(known[0])
    for other in known:
        shape = merge(shape, tuple(None if i == at else n for i, n in enumerate(other)))
    sizes = [None if value.shape is None else value.shape[at] for value in values]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    dims, parts = None, [value.known_dims() for value in values]
    if total is not None and any(parts):
        pairs = zip(parts, sizes, strict=True)
        dims = tuple(chain.from_iterable(part or (None,) * (size or 0) for part, size in pairs))
    return Spec(dtype, _with_size(shape, at, total), dims=dims)


def _with_size(shape: Shape, axis: int, size: int | None) -> Shape:
    return None if shape is None else (*shape[:axis], size, *shape[axis + 1 :])


def _concat_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    axis, num = op.attrs["axis"], len(op.inputs)
    sizes = create_op("Pack", [create_op("Shape", (x,))[axis] for x in op.inputs], {"axis": 0})
    return list(create_ops("SplitV", (grad, sizes), {"num": num, "axis": axis}))


def _split(x: Array, *sizes: Array, num: int, axis: int) -> Any:
    total = x.shape[axis]
    return _pieces(x, _with_rest(sizes[0].tolist(), total) if sizes else _even(total, num), axis)


def _even(total: int, num: int) -> list[int]:
    if total % num:
        raise ValueError(f"Dimension size must be evenly divisible by {num} but is {total}")
    return [total // num] * num


def _pieces(x: Array, sizes: Sequence[int], axis: int) -> Any:
    # np.split, which is written in Python, takes ten times longer
    before = (slice(None),) * (axis % x.ndim)
    ends = accumulate(sizes)
    return _outputs([x[(*before, slice(end - n, end))] for n, end in zip(sizes, ends, strict=True)])


def _with_rest(sizes: list[int], total: int) -> list[int]:
    """Return the sizes of a split with -1 replaced by the rest."""
    rest = total - sum(sizes) - 1
    parts = [rest if size == -1 else size for size in sizes]
    if sum(parts) != total or min(parts) < 0:
        raise ValueError(f"Split sizes {sizes} must add up to the size {total} of the split dimension")
    return parts


def _split_rule(x: Spec, *sizes: Spec, num: int, axis: int) -> tuple[Spec, ...]:
    parts: tuple[int | None, ...] = (None,) * num
    if sizes:
        parts = sizes[0].known_dims() or parts
    if parts.count(-1) > 1:
        raise ValueError(f"size_splits can only have one -1, got {list(parts)}")
    if x.shape is None:
        return (Spec(x.dtype, None),) * num
    at = rules.normalize_axis(axis, len(x.shape), "split dimension")
    total, known = x.shape[at], [part for part in parts if part is not None]
    if total is not None and not sizes:
        parts = tuple(_even(total, num))
    elif total is not None and len(known) == num:
        parts = tuple(_with_rest(known, total))
    return tuple(Spec(x.dtype, _with_size(x.shape, at, None if part == -1 else part)) for part in parts)


def _split_gradient(op: Operation, *grads: Tensor | None) -> list[Tensor | None]:
    joined = create_op("ConcatV2", _all_grads(op, grads), {"axis": op.attrs["axis"]})
    return [joined, None][: len(op.inputs)]


register(OpDef("ConcatV2", lambda *values, axis, out=None: np.concatenate(values, axis, out=out),
    _concat_rule, _concat_gradient, out=True))  # fmt: skip
register(OpDef("Split", _split, _split_rule, _split_gradient, aliases=True))
register(OpDef("SplitV", _split, _split_rule, _split_gradient, aliases=True))


def concat(values: Any, axis: Any, name: str = "concat") -> Tensor:
    """Join tensors of one dtype along an existing axis. TF1: ``tf.concat``."""
    tensors = one_dtype(values if isinstance(values, list | tuple) else [values], "concat")
    at = axis_of(axis)
    if len(tensors) == 1:
        return create_op("Identity", tensors, None, name)
    if isinstance(at, int):
        return create_op("ConcatV2", tensors, {"axis": at}, name)
    joined = create_op("ConcatV2", [folded(x, at) for x in tensors], {"axis": 1}, name)
    return with_size(joined, tensors[0], at, shape(joined)[1:2])


def split(
    value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None, name: str = "split"
) -> list[Tensor]:
    """Split a tensor along an axis. TF1: ``tf.split``.

    Args:
        value: the tensor.
        num_or_size_splits: the number of equal parts, or the size of each (one may be -1: the rest).
        axis: an int or a tensor.
        num: the number of parts, if the sizes are a tensor of unknown length.
    """
    at, how = axis_of(axis), num_or_size_splits
    if not isinstance(at, int):
        x = convert_to_tensor(value)
        cut = split(folded(x, at), how, 1, num, name)
        return [with_size(part, x, at, shape(part)[1:2]) for part in cut]
    listed = isinstance(how, list | tuple) or is_tensor_like(how) or np.ndim(how)
    sizes = convert_to_tensor(how) if listed else None
    if sizes is None or sizes.spec.shape == ():
        parts = static_int(how, "num_or_size_splits")
        if parts < 1:
            raise ValueError(f"num_or_size_splits must be positive, got {parts}")
        return list(create_ops("Split", (value,), {"num": parts, "axis": at}, name))
    rules.check_dtype(sizes.dtype, rules.INTS, "size_splits")
    rules.with_rank(sizes.spec.shape, 1)
    if num is None:
        num = len(how) if isinstance(how, list | tuple) else (sizes.spec.shape or (None,))[0]
    if num is None:
        raise ValueError(f"Cannot infer argument `num` from shape {sizes.shape}")
    return list(create_ops("SplitV", (value, sizes), {"num": num, "axis": at}, name))
