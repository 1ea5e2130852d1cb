"""Aliases, mostly names of TF1 before 1.0, and functions made of a few ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.graph import IndexedSlices, Tensor
from asyncmon.graph.core.build import convert_pair
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.graph.core.signatures import named
from asyncmon.summary import merge, merge_all
from asyncmon.summary.ops import collect
from asyncmon.tf1.signatures import REQUIRED, function_of

__all__ = [
    "all_variables",
    "arg_max",
    "arg_min",
    "audio_summary",
    "concat_v2",
    "count_nonzero",
    "disable_eager_execution",
    "disable_v2_behavior",
    "div",
    "enable_resource_variables",
    "executing_eagerly",
    "floor_div",
    "histogram_summary",
    "image_summary",
    "initialize_all_tables",
    "initialize_all_variables",
    "initialize_local_variables",
    "initialize_variables",
    "inv",
    "invert_permutation",
    "is_tensor",
    "lin_space",
    "merge_all_summaries",
    "merge_summary",
    "mul",
    "neg",
    "numpy_function",
    "pack",
    "reverse_v2",
    "saturate_cast",
    "scalar_mul",
    "scalar_summary",
    "select",
    "shape_n",
    "sub",
    "tables_initializer",
    "to_complex64",
    "to_complex128",
    "to_double",
    "to_float",
    "to_int32",
    "to_int64",
    "unpack",
]


def _caster(label: str, dtype: Any) -> Callable[..., Tensor]:
    def convert(x: Any, name: str = label) -> Tensor:
        return g.cast(x, dtype, name)

    own = f"to_{label[2:].lower()}"
    return named(convert, own, f"Return ``x`` as {dtype.name}. TF1: ``tf.{own}``.")


to_float = _caster("ToFloat", g.float32)
to_double = _caster("ToDouble", g.float64)
to_int32 = _caster("ToInt32", g.int32)
to_int64 = _caster("ToInt64", g.int64)
to_complex64 = _caster("ToComplex64", g.complex64)
to_complex128 = _caster("ToComplex128", g.complex128)

mul, sub, neg, inv = g.multiply, g.subtract, g.negative, g.reciprocal
floor_div, lin_space, select = g.floordiv, g.linspace, g.where
concat_v2, reverse_v2, pack, unpack = g.concat, g.reverse, g.stack, g.unstack
numpy_function = g.py_func
is_tensor = g.is_tensor_like
all_variables = g.global_variables
initialize_all_variables = g.global_variables_initializer
initialize_local_variables = g.local_variables_initializer
initialize_variables = g.variables_initializer


def arg_max(input: Any, dimension: Any, output_type: Any = g.int64, name: str | None = None) -> Tensor:
    """Return the indices of the greatest elements along an axis. TF1: same name."""
    return g.argmax(input, dimension, name, output_type=output_type)


def arg_min(input: Any, dimension: Any, output_type: Any = g.int64, name: str | None = None) -> Tensor:
    """Return the indices of the smallest elements along an axis. TF1: same name."""
    return g.argmin(input, dimension, name, output_type=output_type)


def tables_initializer(name: str = "init_all_tables") -> g.Operation:
    """Return an operation that does nothing: there are no lookup tables. TF1: same name."""
    return g.no_op(name)


initialize_all_tables = tables_initializer


def executing_eagerly() -> bool:
    """Return False: ops are nodes of a graph. TF1: same name."""
    return False


def disable_v2_behavior() -> None:
    """Do nothing: the behaviour is that of TF1. TF2: ``tf.compat.v1``."""


disable_eager_execution = enable_resource_variables = disable_v2_behavior


# --- functions of a few ops -----------------------------------------------------------------------
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """Return a tensor, or :class:`~asyncmon.graph.IndexedSlices`, times a scalar. TF1: same name."""
    if isinstance(x, IndexedSlices):
        return IndexedSlices(scalar_mul(scalar, x.values, name), x.indices, x.dense_shape)
    values = g.convert_to_tensor(x)
    factor = g.convert_to_tensor(scalar, dtype=values.dtype, name="scalar")
    if factor.shape.ndims not in (None, 0):
        raise ValueError(f"Only scalar multiply works, got shape {factor.shape}")
    return g.multiply(factor, values, name)


def count_nonzero(
    input_tensor: Any = None,
    axis: Any = None,
    keepdims: bool | None = None,
    dtype: Any = g.int64,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
    input: Any = None,
) -> Tensor:
    """Return the number of elements along axes that are not zero, false or empty. TF1: same name."""
    values = renamed_argument("input", input, "input_tensor", input_tensor)
    with g.name_scope(name, "count_nonzero", [values]):
        x = g.convert_to_tensor(values)
        zero = "" if x.dtype == g.string else False if x.dtype == g.bool else 0
        nonzero = g.cast(g.not_equal(x, g.constant(zero, x.dtype)), g.int64)
        count = g.reduce_sum(
            nonzero, axis, keepdims, reduction_indices=reduction_indices, keep_dims=keep_dims
        )
        return g.cast(count, dtype)


def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """Cast values, clipped to the range of the dtype. TF1: same name."""
    with g.name_scope(name, "saturate_cast", [value]) as scope:
        x, dtype = g.convert_to_tensor(value), g.as_dtype(dtype)
        if x.dtype.min < dtype.min:
            x = g.maximum(x, g.constant(dtype.min, x.dtype))
        if x.dtype.max > dtype.max:
            most = np.array(dtype.max, x.dtype.as_numpy_dtype)
            if int(most) > int(dtype.max):  # a float rounds it up, and out of the range
                most = np.nextafter(most, np.zeros_like(most))
            x = g.minimum(x, g.constant(most, x.dtype))
        return g.cast(x, dtype, scope)


# --- summaries before 1.0 -------------------------------------------------------------------------
def scalar_summary(
    tags: Any, values: Any, collections: Sequence[str] | None = None, name: str | None = None
) -> Tensor:
    """Return an op that summarises numbers. TF1: ``tf.scalar_summary``, before 1.0.

    ``tags`` is a tag, or a list with a tag for each element of the vector ``values``.
    """
    if isinstance(tags, str | bytes):
        return _summary("ScalarSummary", name, collections, tags, values)
    elements = g.unstack(g.convert_to_tensor(values), len(tags))
    with g.name_scope(name, "ScalarSummary"):
        parts = [
            _summary("ScalarSummary", None, (), tag, x) for tag, x in zip(tags, elements, strict=True)
        ]
    return merge(parts, [g.GraphKeys.SUMMARIES] if collections is None else collections)


def _old(own: str, what: str, kind: str, *inputs: str, **attrs: int) -> Callable[..., Tensor]:
    """Return the function of a summary with a tag, inputs and attributes."""

    def summarise(tag: Any, collections: Any, name: Any, **given: Any) -> Tensor:
        values = [g.convert_to_tensor(given.pop(one), _DTYPES.get(one)) for one in inputs]
        return _summary(kind, name, collections, tag, *values, **given)

    required = dict.fromkeys(("tag", *inputs), REQUIRED)
    doc = f"Return an op that summarises {what}. TF1: ``tf.{own}``, before 1.0."
    return function_of(own, doc, {**required, **attrs, "collections": None, "name": None}, summarise)


_DTYPES = {"sample_rate": g.float32}

histogram_summary = _old("histogram_summary", "a distribution", "HistogramSummary", "values")
image_summary = _old("image_summary", "images", "ImageSummary", "tensor", max_images=3)
audio_summary = _old(
    "audio_summary", "sounds", "AudioSummaryV2", "tensor", "sample_rate", max_outputs=3
)
merge_summary = merge
merge_all_summaries = merge_all


def _summary(
    kind: str, name: str | None, collections: Sequence[str] | None, tag: Any, *inputs: Any, **attrs: Any
) -> Tensor:
    attrs["tag"] = tag.decode() if isinstance(tag, bytes) else tag
    return collect(g.create_op(kind, inputs, attrs, name), collections)


def shape_n(input: Any, out_type: Any = g.int32, name: str | None = None) -> list[Tensor]:
    """Return the shape of each tensor of a list. TF1: ``tf.shape_n``."""
    return [g.shape(value, name or "ShapeN", out_type) for value in input]


def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x / y`` for floats, ``x // y`` for integers, as Python 2 did. TF1: ``tf.div``."""
    x, y = convert_pair(x, y, name or "div")
    op_type = "RealDiv" if x.dtype.is_floating or x.dtype.is_complex else "FloorDiv"
    return g.create_op(op_type, (x, y), None, name or "div")


def invert_permutation(x: Any, name: str | None = None) -> Tensor:
    """Return the inverse permutation: ``y[x[i]] == i``. TF1: ``tf.invert_permutation``.

    ``x`` is a vector of int32 or int64; InvalidArgumentError in the run if it is not a permutation.
    """
    return g.create_op("InvertPermutation", (x,), None, name)
