"""``pad``."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.rules import rank_of
from asyncmon.graph.core.shape import merge_dim
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.index import indexing_op
from asyncmon.graph.ops.shape_ops import like

_Rows = tuple[tuple[int | None, int | None], ...]
"""Paddings, None for those that are tensors."""


def _pad(x: Array, paddings: Array, constant: Array, *, known: _Rows = ()) -> Array:
    widths = _widths(paddings)
    result = np.full([a + n + b for (a, b), n in zip(widths, x.shape, strict=True)], constant, x.dtype)
    result[tuple(slice(a, a + n) for (a, _), n in zip(widths, x.shape, strict=True))] = x
    return result


def _mirror_index(
    shape: tuple[int, ...], paddings: Array, *, mode: str, known: _Rows = ()
) -> tuple[Array, ...]:
    widths = _widths(paddings)
    edge: Any = mode  # one of numpy's
    for (a, b), n in zip(widths, shape, strict=True):
        if max(a, b) > n - (mode == "reflect"):
            how = "less" if mode == "reflect" else "no greater"
            raise InvalidArgumentError(f"paddings must be {how} than the dimension size {n}: {a}, {b}")
    return np.ix_(*(np.pad(np.arange(n), w, edge) for w, n in zip(widths, shape, strict=True)))


def _widths(paddings: Array) -> list[tuple[int, int]]:
    if paddings.size and paddings.min() < 0:
        raise ValueError(f"Paddings must be non-negative: {paddings.tolist()}")
    return [(int(a), int(b)) for a, b in paddings]


def _pad_rule(x: Spec, paddings: Spec, *_constant: Spec, known: _Rows = (), **_attrs: object) -> Spec:
    rules.check_dtype(paddings.dtype, (dtypes.int32, dtypes.int64), "paddings")
    rows, columns = rules.with_rank(paddings.shape, 2)
    merge_dim(columns, 2)
    rank = merge_dim(rows, rank_of(x.shape))
    if x.shape is None or (paddings.value is None and not known):
        return Spec(x.dtype, None if rank is None else (None,) * rank)
    widths = known if paddings.value is None else _widths(paddings.value)
    pairs = zip(x.shape, widths, strict=True)
    return Spec(
        x.dtype,
        tuple(None if None in (n, a, b) else a + n + b for n, (a, b) in pairs),  # type: ignore[operator]  # none is None
    )


def _known_rows(paddings: Any) -> _Rows:
    """Return the known paddings of a list with tensors inside, else ()."""
    if not isinstance(paddings, list | tuple) or is_tensor_like(paddings):
        return ()
    if not all(isinstance(row, list | tuple) and len(row) == 2 for row in paddings):
        return ()
    if not any(is_tensor_like(side) for row in paddings for side in row):
        return ()
    return tuple([(_known(before), _known(after)) for before, after in paddings])


def _known(side: Any) -> int | None:
    if not is_tensor_like(side):
        return int(side)
    return (convert_to_tensor(side).spec.known_dims() or (None,))[0]


def _pad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    begin = create_op("Reshape", (op.inputs[1][:, :1], [-1]))
    return [like("Slice", (grad, begin), op.inputs[0]), None, None]


register(OpDef("PadV2", _pad, _pad_rule, _pad_gradient))
indexing_op("MirrorPad", _mirror_index, _pad_rule)


def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: Any = 0,
) -> Tensor:
    """Return a tensor with more around it. TF1: ``tf.pad``.

    Args:
        tensor: the tensor.
        paddings: how many elements to add before and after, a row of two for each dimension.
        mode: "CONSTANT", "REFLECT" (without the edge) or "SYMMETRIC" (with it), in any case.
        constant_values: the added value of the mode "CONSTANT".
    """
    x = convert_to_tensor(tensor)
    widths = convert_to_tensor(paddings, dtypes.int32 if not is_tensor_like(paddings) else None)
    known, mode = _known_rows(paddings), mode.upper()
    if mode == "CONSTANT":
        if type(constant_values) is int and constant_values == 0:  # nothing, in any dtype
            constant_values = b"" if x.dtype is dtypes.string else x.dtype.numpy.type(0)
        around = convert_to_tensor(constant_values, x.dtype)
        return create_op("PadV2", (x, widths, around), {"known": known}, name or "Pad")
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise ValueError(
            f"Value of argument `mode` expected to be one of CONSTANT, REFLECT, SYMMETRIC, got {mode!r}"
        )
    return create_op("MirrorPad", (x, widths), {"mode": mode.lower(), "known": known}, name)
