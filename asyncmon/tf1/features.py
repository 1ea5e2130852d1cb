"""Which features are parsed out of examples: what programs give, and what kernels get."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon import graph as g
from asyncmon.tf1.example_bytes import FLOATS, INTS, STRINGS

if TYPE_CHECKING:
    from collections.abc import Mapping


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


class Wanted(NamedTuple):
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


_KINDS = {g.int64: INTS, g.float32: FLOATS, g.string: STRINGS}


def all_wanted(features: Mapping[str, Any], *, single: bool) -> tuple[Wanted, ...]:
    """Return the features that a program gives, by name, sorted; ``single``: rows may be missing."""
    if not features:
        raise ValueError("Missing: features was empty or None; give names to FixedLenFeature.")
    return tuple(_wanted(key, features[key], single) for key in sorted(features))


def _wanted(key: str, feature: Any, single: bool) -> Wanted:
    rows = isinstance(feature, FixedLenSequenceFeature)
    if not isinstance(feature, FixedLenFeature | FixedLenSequenceFeature):
        raise ValueError(
            f"Unsupported {type(feature).__name__} {feature!r} for key {key!r}: give a "
            "FixedLenFeature or a FixedLenSequenceFeature."
        )
    if isinstance(feature, FixedLenSequenceFeature) and not (single or feature.allow_missing):
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
    if dtype not in _KINDS:
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
    return Wanted(key, key.encode(), dtype, extents, default, rows, _KINDS[dtype], size)


def _default(key: str, feature: Any, dtype: g.DType) -> Any:
    value = feature.default_value
    tensor = value if isinstance(value, g.Tensor) else g.convert_to_tensor(value, dtype)
    if tensor.spec.value is None or tensor.dtype is not dtype:
        raise ValueError(
            f"The default_value of {key!r} must be a constant of {dtype.name}, got {value!r}."
        )
    found = np.asarray(tensor.spec.value)
    if dtype is g.string:
        found = np.array([x.encode() if isinstance(x, str) else x for x in found.flat], object)
    return found.reshape(tensor.spec.shape or ())
