"""Sequences of several lengths, and other ways to lay out elements."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError, OutOfRangeError
from asyncmon.graph.construction.build import (
    control_dependencies,
    convert_to_tensor,
    create_op,
    create_ops,
    name_scope,
)
from asyncmon.graph.construction.convert import renamed_argument, static_int
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.op import ZERO, OpDef, register
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.ops.basic import identity
from asyncmon.graph.ops.create import range, zeros_like
from asyncmon.graph.ops.gather import gather
from asyncmon.graph.ops.reduce import reduce_max
from asyncmon.graph.ops.shape_ops import broadcast_to, cast, expand_dims, reshape, shape
from asyncmon.graph.ops.variable_ops import assign_add

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array


_INTS = (dtypes.int32, dtypes.int64)


# --- sequences ------------------------------------------------------------------------------------
def sequence_mask(
    lengths: Any, maxlen: Any = None, dtype: Any = dtypes.bool, name: str | None = None
) -> Tensor:
    """Return for each length a row that is true up to it. TF1: ``tf.sequence_mask``.

    Args:
        lengths: integers of any shape.
        maxlen: the length of a row, a scalar; by default the greatest length.
        dtype: of the result.
        name: the scope of the ops.

    Raises:
        ValueError: ``maxlen`` is no scalar.
    """
    with name_scope(name, "SequenceMask"):
        counts = convert_to_tensor(lengths)
        if maxlen is None and counts.spec.value is not None:
            size = convert_to_tensor(counts.spec.value.max(initial=0))
        elif maxlen is None:
            size = create_op("Maximum", (create_op("Zero", (counts,)), reduce_max(counts)))
        else:
            size = convert_to_tensor(maxlen)
        if size.spec.shape not in ((), None):
            raise ValueError(f"maxlen must be scalar for sequence_mask, got {maxlen!r}.")
        start, step = (cast(n, size.dtype) for n in (0, 1))
        row = range(start, size, step)
        mask = create_op("Less", (row, cast(expand_dims(counts, -1), size.dtype)))
        return cast(mask, dtype)


register(OpDef("Zero", lambda x: x.dtype.type(0), lambda x: Spec(x.dtype, ()), ZERO))


def _reversed_sequence(x: Array, lengths: Array, *, seq: int, batch: int) -> Array:
    if lengths.shape != (x.shape[batch],):
        raise InvalidArgumentError(
            f"seq_lengths has shape {list(lengths.shape)}, there are {x.shape[batch]} sequences"
        )
    if lengths.size and (lengths.min() < 0 or lengths.max() > x.shape[seq]):
        raise InvalidArgumentError(
            f"seq_lengths must be in [0, {x.shape[seq]}], got {lengths.tolist()}"
        )
    position = np.arange(x.shape[seq])
    rows = lengths.astype(np.int64)[:, None]
    index = np.where(position < rows, rows - 1 - position, position)  # batch, seq
    moved = np.moveaxis(x, (batch, seq), (0, 1))
    result = moved[np.arange(len(lengths))[:, None], index]
    return np.moveaxis(result, (0, 1), (batch, seq))


def _reversed_rule(x: Spec, lengths: Spec, *, seq: int, batch: int) -> Spec:
    rules.check_dtype(lengths.dtype, _INTS, "seq_lengths")
    (count,) = rules.with_rank(lengths.shape, 1)
    if x.shape is None:
        return Spec(x.dtype, None)
    for axis, what in ((seq, "seq_dim"), (batch, "batch_dim")):
        if not 0 <= axis < len(x.shape):
            raise ValueError(f"{what} must be < input rank ({axis} vs. {len(x.shape)})")
    if seq == batch:
        raise ValueError(f"batch_dim == seq_dim == {seq}")
    size = rules.merge_dim(x.shape[batch], count)
    return Spec(x.dtype, (*x.shape[:batch], size, *x.shape[batch + 1 :]))


register(OpDef("ReverseSequence", _reversed_sequence, _reversed_rule, lambda op, grad:
    [create_op("ReverseSequence", (grad, op.inputs[1]), op.attrs), None]))  # fmt: skip


def reverse_sequence(
    input: Any,
    seq_lengths: Any,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
    seq_dim: int | None = None,
    batch_dim: int | None = None,
) -> Tensor:
    """Return sequences with their first ``seq_lengths[i]`` elements reversed. TF1: same name.

    Args:
        input: the sequences.
        seq_lengths: a vector, a length for each sequence.
        seq_axis: along which a sequence lies.
        batch_axis: along which the sequences lie, 0 by default.
        name: the node's name.
        seq_dim: an old name of ``seq_axis``.
        batch_dim: an old name of ``batch_axis``.
    """
    seq = renamed_argument("seq_axis", seq_axis, "seq_dim", seq_dim)
    batch = renamed_argument("batch_axis", batch_axis, "batch_dim", batch_dim)
    if seq is None:
        raise ValueError("reverse_sequence() needs seq_axis.")
    attrs = {"seq": static_int(seq, "seq_axis"), "batch": static_int(batch or 0, "batch_axis")}
    return create_op("ReverseSequence", (convert_to_tensor(input), seq_lengths), attrs, name)


def meshgrid(*args: Any, indexing: str = "xy", name: str = "meshgrid") -> list[Tensor]:
    """Return vectors repeated over a grid, a tensor for each of them. TF1: ``tf.meshgrid``.

    Args:
        args: vectors.
        indexing: "xy": the first two dimensions of the result are exchanged; or "ij".
        name: the scope of the ops.

    Raises:
        ValueError: another indexing.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Argument `indexing` must be 'xy' or 'ij', got {indexing!r}.")
    with name_scope(name, "meshgrid"):
        vectors = [reshape(convert_to_tensor(arg), [-1]) for arg in args]
        order = list(builtins.range(len(vectors)))
        if indexing == "xy" and len(order) > 1:
            order[:2] = [1, 0]
        sizes = [shape(vectors[i])[0] for i in order]
        result = []
        for i, vector in enumerate(vectors):
            ones = [-1 if order[at] == i else 1 for at in builtins.range(len(order))]
            result.append(broadcast_to(reshape(vector, ones), sizes))
        return result


def _roll(x: Array, shift: Array, axis: Array) -> Array:
    shifts, axes = np.ravel(shift).tolist(), np.ravel(axis).tolist()
    if len(shifts) != len(axes):
        raise InvalidArgumentError(f"shift and axis must have the same size, got {shifts} and {axes}")
    for a in axes:
        if not -x.ndim <= a < x.ndim:
            raise InvalidArgumentError(f"axis {a} is out of range for rank {x.ndim}")
    return np.roll(x, shifts, axes)


def _roll_rule(x: Spec, shift: Spec, axis: Spec) -> Spec:
    rules.check_dtype(shift.dtype, _INTS, "shift")
    rules.check_dtype(axis.dtype, _INTS, "axis")
    rules.with_rank_at_least(x.shape, 1)
    rules.merge(shift.shape, axis.shape)
    return Spec(x.dtype, x.shape)


register(OpDef("Roll", _roll, _roll_rule, lambda op, grad:
    [create_op("Roll", (grad, -op.inputs[1], op.inputs[2])), None, None]))  # fmt: skip


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Tensor:
    """Return a tensor whose elements are moved along axes, those at the end to the start.

    TF1: ``tf.roll``. ``shift`` and ``axis`` are integers, or vectors of one length.
    """
    return create_op("Roll", (convert_to_tensor(input), shift, axis), None, name or "roll")


def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """Return a tensor whose elements along an axis are each repeated. TF1: ``tf.repeat``.

    Args:
        input: the tensor.
        repeats: how often: an integer, or a vector with a number for each element.
        axis: by default the tensor is made a vector first.
        name: the scope of the ops.
    """
    with name_scope(name, "Repeat"):
        x = convert_to_tensor(input)
        if axis is None:
            x, axis = reshape(x, [-1]), 0
        count = shape(x)[axis]
        at = create_op("RepeatedIndices", (count, convert_to_tensor(repeats)))
        return gather(x, at, axis=axis)


def _repeated(count: Array, repeats: Array) -> Array:
    times = np.broadcast_to(repeats, (int(count),)) if np.size(repeats) == 1 else repeats
    if np.size(times) != count or (np.size(times) and np.min(times) < 0):
        raise InvalidArgumentError(
            f"repeats must hold {count} numbers >= 0, or one, got {np.ravel(repeats).tolist()}"
        )
    return np.repeat(np.arange(count, dtype=np.int32), times)


def _repeated_rule(count: Spec, repeats: Spec) -> Spec:
    rules.check_dtype(repeats.dtype, _INTS, "repeats")
    sizes, times = count.known_dims(), repeats.known_dims()
    if sizes is None or times is None or None in (*sizes, *times):
        return Spec(dtypes.int32, (None,))
    total = sum(t for t in times if t is not None) * (sizes[0] or 0 if len(times) == 1 else 1)
    return Spec(dtypes.int32, (total,))


register(OpDef("RepeatedIndices", _repeated, _repeated_rule, ZERO))


# --- parts ----------------------------------------------------------------------------------------
def _partitioned(data: Array, partitions: Array, *, num: int) -> Any:
    if np.size(partitions) and (np.min(partitions) < 0 or np.max(partitions) >= num):
        raise InvalidArgumentError(f"partitions must be in [0, {num}), got {np.ravel(partitions)[:16]}")
    parts = tuple([data[partitions == i] for i in builtins.range(num)])
    return parts[0] if num == 1 else parts


def _partitioned_rule(data: Spec, partitions: Spec, *, num: int) -> tuple[Spec, ...]:
    rules.check_dtype(partitions.dtype, (dtypes.int32,), "partitions")
    if data.shape is None or partitions.shape is None:
        return (Spec(data.dtype, None),) * num
    rules.merge(data.shape[: len(partitions.shape)], partitions.shape)
    return (Spec(data.dtype, (None, *data.shape[len(partitions.shape) :])),) * num


def _partitioned_gradient(op: Operation, *grads: Tensor | None) -> list[Tensor | None]:
    data, partitions = op.inputs
    positions = reshape(range(create_op("Size", (partitions,))), shape(partitions))
    at = create_ops("DynamicPartition", (positions, partitions), op.attrs)
    flows = [zeros_like(y) if g is None else g for y, g in zip(op.outputs, grads, strict=True)]
    joined = create_op("DynamicStitch", (*at, *flows), {"num": len(flows)})
    return [reshape(joined, shape(data)), None]


def _stitched(*inputs: Array, num: int) -> Array:
    indices, data = inputs[:num], inputs[num:]
    if any(np.size(at) and np.min(at) < 0 for at in indices):
        raise InvalidArgumentError("indices of dynamic_stitch() must be >= 0")
    size = max((int(np.max(at, initial=-1)) for at in indices), default=-1) + 1
    rest = data[0].shape[indices[0].ndim :]
    result = np.zeros((size, *rest), data[0].dtype)
    for at, values in zip(indices, data, strict=True):
        if values.shape != (*at.shape, *rest):
            raise InvalidArgumentError(
                f"data of dynamic_stitch() must have the shape {[*at.shape, *rest]}, "
                f"got {list(values.shape)}"
            )
        result[np.ravel(at)] = values.reshape(np.size(at), *rest)
    return result


def _stitched_rule(*inputs: Spec, num: int) -> Spec:
    rest: Any = None
    for at, values in zip(inputs[:num], inputs[num:], strict=True):
        rules.check_dtype(at.dtype, (dtypes.int32,), "indices")
        rules.check_same_dtype("DynamicStitch", inputs[num], values, ("data", "data"))
        if at.shape is not None and values.shape is not None:
            rules.merge(values.shape[: len(at.shape)], at.shape)
            rest = rules.merge(rest, values.shape[len(at.shape) :])
    known = [at.value for at in inputs[:num]]
    count = None
    if all(at is not None for at in known):
        count = max(int(np.max(at, initial=-1)) for at in known if at is not None) + 1
    return Spec(inputs[num].dtype, None if rest is None else (count, *rest))


def _stitched_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    num = op.attrs["num"]
    return [*[None] * num, *[gather(grad, at) for at in op.inputs[:num]]]


register(OpDef("DynamicPartition", _partitioned, _partitioned_rule, _partitioned_gradient))
register(OpDef("DynamicStitch", _stitched, _stitched_rule, _stitched_gradient))


def dynamic_partition(
    data: Any, partitions: Any, num_partitions: int, name: str | None = None
) -> list[Tensor]:
    """Return the rows of each part, of ``num_partitions`` ones. TF1: same name.

    ``partitions``, int32, says of each row of its shape which part it belongs to.
    """
    attrs = {"num": static_int(num_partitions, "num_partitions")}
    return list(create_ops("DynamicPartition", (convert_to_tensor(data), partitions), attrs, name))


def dynamic_stitch(indices: Sequence[Any], data: Sequence[Any], name: str | None = None) -> Tensor:
    """Return the rows of several tensors, each at its index; of equal ones the last. TF1: same name."""
    if len(indices) != len(data) or not data:
        raise ValueError(f"indices and data need one length, got {len(indices)} and {len(data)}.")
    inputs = [convert_to_tensor(value) for value in (*indices, *data)]
    return create_op("DynamicStitch", inputs, {"num": len(data)}, name)


# --- counting up ----------------------------------------------------------------------------------
def _below(value: Array, *, limit: int) -> Array:
    if value >= limit:
        raise OutOfRangeError(f"Reached limit of {limit}")
    return value


def _below_rule(value: Spec, *, limit: int) -> Spec:
    rules.check_dtype(value.dtype, _INTS, "ref")
    rules.with_rank(value.shape, 0)
    return Spec(value.dtype, value.shape)


register(OpDef("CheckLimit", _below, _below_rule, ZERO, aliases=True, stateful=True))


def count_up_to(ref: Any, limit: int, name: str | None = None) -> Tensor:
    """Return the value of an integer variable, and add 1 to it afterwards. TF1: ``tf.count_up_to``.

    OutOfRangeError in the run, which then writes nothing, once the value is ``limit``.
    """
    with name_scope(name, "CountUpTo"):
        value = create_op("CheckLimit", (ref,), {"limit": static_int(limit, "limit")})
        with control_dependencies([value]):
            added = assign_add(ref, 1)
        with control_dependencies([added]):
            return identity(value)
