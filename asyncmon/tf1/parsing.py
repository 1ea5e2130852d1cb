"""TF1: ``tf.parse_example`` and kin: serialized examples become tensors.

::

    features = {"x": tf.FixedLenFeature([2], tf.float32), "label": tf.FixedLenFeature([], tf.int64)}
    parsed = tf.parse_single_example(serialized, features)      # {"x": ..., "label": ...}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncmon import graph as g
from asyncmon.errors import InvalidArgumentError
from asyncmon.protobuf import WireError
from asyncmon.tf1.example_bytes import (
    FLOATS,
    INTS,
    STRINGS,
    Layouts,
    feature_of,
    features_of,
    packed_of,
    scalar_of,
)
from asyncmon.tf1.file_ops import bytes_of


class FixedLenFeature(NamedTuple):
    """A feature of one shape; without a ``default_value`` each example must have it. TF1: same name."""

    shape: Any
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """A feature with any number of rows. TF1: same name.

    ``shape`` is that of a row. In :func:`parse_example` ``allow_missing`` must be true: rows are
    filled up to the longest example with ``default_value`` (0 or b"" by default).
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class _Wanted(NamedTuple):
    """A feature as the kernel needs it."""

    name: str
    key: bytes
    dtype: g.DType
    shape: tuple[int, ...]  # of a row, where it has rows
    default: Any  # an array of the shape, or None; of rows: what fills them up
    rows: bool
    kind: int
    size: int

    def spec(self, batch: tuple[int | None, ...]) -> g.Spec:
        return g.Spec(self.dtype, (*batch, *((None,) if self.rows else ()), *self.shape))


_TAGS = {g.int64: INTS, g.float32: FLOATS, g.string: STRINGS}


def parse_example(
    serialized: Any, features: Mapping[str, Any], name: str | None = None, example_names: Any = None
) -> dict[str, g.Tensor]:
    """Return the features of a batch of serialized ``Example`` messages. TF1: same name.

    ``features`` are names to :class:`FixedLenFeature` or :class:`FixedLenSequenceFeature`, of int64,
    float32 or string; each becomes a tensor ``[batch, *shape]`` or ``[batch, rows, *shape]``.
    Errors name examples by ``example_names``.

    Raises:
        ValueError: features that cannot be parsed.
        InvalidArgumentError: in the run: an example lacks a feature, or has another number or type of
            values.
    """
    inputs = [g.convert_to_tensor(serialized, g.string)]
    if example_names is not None:
        inputs.append(g.convert_to_tensor(example_names, g.string))
    if not features:
        raise ValueError("Missing: features was empty or None; give names to FixedLenFeature.")
    wanted = tuple(_wanted(key, features[key]) for key in sorted(features))
    attrs = {"wanted": wanted, "layouts": Layouts()}
    outputs = g.create_operation("ParseExample", inputs, attrs, name or "ParseExample").outputs
    return dict(zip([one.name for one in wanted], outputs, strict=True))


def parse_single_example(
    serialized: Any, features: Mapping[str, Any], name: str | None = None, example_names: Any = None
) -> dict[str, g.Tensor]:
    """Return the features of one serialized ``Example``, a string scalar. TF1: same name.

    Tensors have the shapes of the features, without a batch; else as :func:`parse_example`.
    """
    tensor = g.convert_to_tensor(serialized, g.string)
    if tensor.spec.shape not in (None, ()):
        raise ValueError(f"Input serialized must be a scalar, got shape {tensor.shape}.")
    return parse_example(tensor, features, name or "ParseSingleExample", example_names)


def _wanted(key: str, feature: Any) -> _Wanted:
    rows = isinstance(feature, FixedLenSequenceFeature)
    if not isinstance(feature, FixedLenFeature | FixedLenSequenceFeature):
        raise ValueError(
            f"Unsupported {type(feature).__name__} {feature!r} for key {key!r}: give a "
            "FixedLenFeature or a FixedLenSequenceFeature."
        )
    if isinstance(feature, FixedLenSequenceFeature) and not feature.allow_missing:
        raise ValueError("Unsupported: FixedLenSequenceFeature requires allow_missing to be True.")
    if feature.shape is None or feature.dtype is None:
        missing = "shape" if feature.shape is None else "dtype"
        raise ValueError(f"Missing {missing} for feature {key}. Received feature={feature}.")
    dtype, shape = g.as_dtype(feature.dtype), g.TensorShape(feature.shape)
    if not shape.is_fully_defined():
        raise ValueError(
            f"All dimensions of shape for feature {key} need to be known but received {shape}. "
            f"Consider using FixedLenSequenceFeature. Received feature={feature}."
        )
    if dtype not in _TAGS:
        raise TypeError(f"Feature {key!r} is {dtype.name}; examples hold float32, int64 and string.")
    default = None if feature.default_value is None else _default(key, feature, dtype)
    extents = tuple(int(extent or 0) for extent in shape.as_list())
    if default is not None and not rows:
        if default.size != math.prod(extents):
            raise ValueError(
                f"The default_value of {key!r} has {default.size} elements, its shape is {shape}."
            )
        default = default.reshape(extents)
    size = math.prod(extents)
    return _Wanted(key, key.encode(), dtype, extents, default, rows, _TAGS[dtype], size)


def _default(key: str, feature: Any, dtype: g.DType) -> Any:
    value = feature.default_value
    tensor = value if isinstance(value, g.Tensor) else g.convert_to_tensor(value, dtype)
    if tensor.spec.value is None or tensor.dtype is not dtype:
        raise ValueError(
            f"The default_value of {key!r} must be a constant of {dtype.name}, got {value!r}."
        )
    return np.asarray(tensor.spec.value).reshape(tensor.spec.shape or ())


# --- kernels --------------------------------------------------------------------------------------
def _parse_example(
    serialized: Any, names: Any = None, *, wanted: Sequence[_Wanted], layouts: Layouts
) -> Any:
    try:
        outputs = (_batched if np.shape(serialized) else _single)(serialized, names, wanted, layouts)
    except (WireError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"Could not parse example input, value: {str(serialized)[:200]!r}: {error}"
        ) from None
    return outputs if len(outputs) > 1 else outputs[0]


def _single(serialized: Any, name: Any, wanted: Sequence[_Wanted], layouts: Layouts) -> list[Any]:
    data = bytes_of(serialized)
    outputs = _scalars(wanted, data, layouts.find(data))
    if outputs is not None:
        return outputs
    found = features_of(data)
    return [_dense(one, found, name) for one in wanted]


def _batched(serialized: Any, names: Any, wanted: Sequence[_Wanted], _layouts: Layouts) -> list[Any]:
    examples = [features_of(bytes_of(item)) for item in serialized]
    labels = [b"<unknown>"] * len(examples) if names is None else list(names)
    outputs = []
    for one in wanted:
        values = [_dense(one, *pair) for pair in zip(examples, labels, strict=True)]
        outputs.append(_padded(one, values) if one.rows else _batch(one, values))
    return outputs


def _scalars(wanted: Sequence[_Wanted], data: bytes, places: Any) -> list[Any] | None:
    """Return the features where each is one value at a known place, else None."""
    if places is None:
        return None
    values = []
    for one in wanted:
        place = places.get(one.key)
        if place is None or one.rows or place[0] != one.kind:
            return None
        if not one.shape:
            value = scalar_of(data, *place)
        elif one.kind == STRINGS:
            return None
        else:
            value = packed_of(data, *place)
            value = value.reshape(one.shape) if len(value) == one.size else None
        if value is None:
            return None
        values.append(value)
    return values


def _batch(one: _Wanted, values: list[Any]) -> Any:
    batch = np.empty((len(values), *one.shape), one.dtype.as_numpy_dtype)
    for i, value in enumerate(values):
        batch[i] = value
    return batch


def _padded(one: _Wanted, values: list[Any]) -> Any:
    most = max(map(len, values), default=0)
    filler = (b"" if one.dtype is g.string else 0) if one.default is None else one.default
    batch = np.full((len(values), most, *one.shape), filler, one.dtype.as_numpy_dtype)
    for i, value in enumerate(values):
        batch[i, : len(value)] = value
    return batch


def _dense(one: _Wanted, found: Mapping[bytes, Any], label: Any = None) -> Any:
    """Return the values of a feature of one example, or its default."""
    feature = found.get(one.key)
    values = None if feature is None else feature_of(feature, one.kind)
    if values is None:
        if one.rows:
            return np.empty((0, *one.shape), one.dtype.as_numpy_dtype)
        if one.default is None:
            example = "" if label is None else f"Name: {bytes_of(label).decode()}, "
            raise InvalidArgumentError(
                f"{example}Feature: {one.name} (data type: {one.dtype.name}) is required but could not "
                "be found."
            )
        return one.default.copy() if one.shape else one.default[()]
    if isinstance(values, str):
        raise InvalidArgumentError(
            f"Key: {one.name}.  Data types don't match. Data type: {values} but expected type: "
            f"{one.dtype.name}"
        )
    count = len(values)
    if not (one.size and count % one.size == 0 if one.rows else count == one.size):
        wanted = "a whole number of rows of shape" if one.rows else "output shape:"
        raise InvalidArgumentError(
            f"Key: {one.name}.  Number of {one.dtype.name} values != expected.  values size: {count} "
            f"but {wanted} {list(one.shape)}"
        )
    if one.rows:
        return values.reshape(-1, *one.shape)
    return values.reshape(one.shape) if one.shape else values[0]


def _parse_rule(
    serialized: g.Spec, names: g.Spec | None = None, *, wanted: Sequence[_Wanted], layouts: Any
) -> Any:
    if serialized.shape is not None and len(serialized.shape) > 1:
        raise ValueError(
            f"serialized must be a scalar or a vector, got shape {list(serialized.shape)}."
        )
    if serialized.shape is None:
        return tuple(g.Spec(one.dtype, None) for one in wanted)
    return tuple(one.spec(serialized.shape) for one in wanted)


g.register(g.OpDef("ParseExample", _parse_example, _parse_rule))
