"""TF1: ``tf.parse_example`` and kin: parse serialized examples into tensors.

::

    features = {"x": tf.FixedLenFeature([2], tf.float32), "label": tf.FixedLenFeature([], tf.int64)}
    parsed = tf.parse_single_example(serialized, features)      # {"x": ..., "label": ...}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from asyncmon import graph as g
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core.dtypes import as_objects
from asyncmon.protobuf import DELIMITED, FIXED32, FIXED64, VARINT, WireError, read_varint, signed
from asyncmon.tf1.example import Feature
from asyncmon.tf1.file_ops import bytes_of
from asyncmon.tf1.ops.sparse import SparseTensor

__all__ = [
    "FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature", "parse_example",
    "parse_single_example",
]  # fmt: skip

# The first byte of each kind of list in a serialized feature.
_STRINGS: Final = 0x0A
_FLOATS: Final = 0x12
_INTS: Final = 0x1A

_KINDS = {
    "bytes_list": (_STRINGS, g.string),
    "float_list": (_FLOATS, g.float32),
    "int64_list": (_INTS, g.int64),
}
_TAGS = {dtype: tag for tag, dtype in _KINDS.values()}

_Span = tuple[bytes, int, int]  # bytes, and the start and the end of a part of them

_LAYOUTS = 64  # of one parser


class FixedLenFeature(NamedTuple):
    """A feature of fixed shape, required unless it has a ``default_value``. TF1: same name."""

    shape: Any
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """A feature with a variable number of rows. TF1: same name.

    ``shape`` is the shape of a row. ``allow_missing`` must be true: a batch is padded to its longest
    example with ``default_value`` (0 or b"" by default).
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class VarLenFeature(NamedTuple):
    """A feature with any number of values, parsed into a ``tf.SparseTensor``. TF1: same name."""

    dtype: Any


class _Wanted(NamedTuple):
    """A feature, as the kernel uses it."""

    name: str
    key: bytes
    dtype: g.DType
    shape: tuple[int, ...]  # of a row, if it has rows
    default: Any  # an array of the shape, or None; with rows: the padding
    rows: bool
    kind: int
    size: int
    sparse: bool

    def specs(self, batch: tuple[int | None, ...] | None) -> list[g.Spec]:
        if batch is None:
            return [g.Spec(dtype, None) for dtype in self.dtypes()]
        if self.sparse:
            shapes: Any = [(None, len(batch) + 1), (None,), (len(batch) + 1,)]
        else:
            shapes = [(*batch, *((None,) if self.rows else ()), *self.shape)]
        return [g.Spec(*pair) for pair in zip(self.dtypes(), shapes, strict=True)]

    def dtypes(self) -> list[g.DType]:
        return [g.int64, self.dtype, g.int64] if self.sparse else [self.dtype]


def parse_example(
    serialized: Any, features: Mapping[str, Any], name: str | None = None, example_names: Any = None
) -> dict[str, Any]:
    """Parse a batch of serialized ``Example`` messages. TF1: same name.

    ``features`` maps names to :class:`FixedLenFeature`, :class:`FixedLenSequenceFeature` or
    :class:`VarLenFeature`, of int64, float32 or string. The result maps them to tensors
    ``[batch, *shape]`` or ``[batch, rows, *shape]``, or sparse tensors ``[batch, values]``.
    ``example_names`` are used in errors.

    Raises:
        ValueError: an unsupported feature. The run raises InvalidArgumentError if an example lacks a
            feature, or has another number or type of values.
    """
    inputs = [g.convert_to_tensor(serialized, g.string)]
    if example_names is not None:
        inputs.append(g.convert_to_tensor(example_names, g.string))
    if not features:
        raise ValueError("Missing: features was empty or None; give names to FixedLenFeature.")
    wanted = tuple(_wanted(key, features[key]) for key in sorted(features))
    attrs = {"wanted": wanted, "layouts": _Layouts()}
    made = iter(g.create_operation("ParseExample", inputs, attrs, name or "ParseExample").outputs)
    return {one.name: SparseTensor(*islice(made, 3)) if one.sparse else next(made) for one in wanted}


def parse_single_example(
    serialized: Any, features: Mapping[str, Any], name: str | None = None, example_names: Any = None
) -> dict[str, Any]:
    """Parse one serialized ``Example``, a string scalar. TF1: same name.

    As :func:`parse_example`, without the batch dimension.
    """
    tensor = g.convert_to_tensor(serialized, g.string)
    if tensor.spec.shape not in (None, ()):
        raise ValueError(f"Input serialized must be a scalar, got shape {tensor.shape}.")
    return parse_example(tensor, features, name or "ParseSingleExample", example_names)


def _wanted(key: str, feature: Any) -> _Wanted:
    if isinstance(feature, VarLenFeature):  # a sequence whose rows are numbers, not padded
        numbers = FixedLenSequenceFeature((), feature.dtype, allow_missing=True)
        return _wanted(key, numbers)._replace(sparse=True)
    rows = isinstance(feature, FixedLenSequenceFeature)
    if not isinstance(feature, FixedLenFeature | FixedLenSequenceFeature):
        raise ValueError(
            f"Unsupported {type(feature).__name__} {feature!r} for key {key!r}: give a "
            "FixedLenFeature, a FixedLenSequenceFeature or a VarLenFeature."
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
    return _Wanted(key, key.encode(), dtype, extents, default, rows, _TAGS[dtype], size, sparse=False)


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
    serialized: Any, names: Any = None, *, wanted: Sequence[_Wanted], layouts: _Layouts
) -> Any:
    try:
        outputs = (_batched if np.shape(serialized) else _single)(serialized, names, wanted, layouts)
    except (WireError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"Could not parse example input, value: {str(serialized)[:200]!r}: {error}"
        ) from None
    return outputs if len(outputs) > 1 else outputs[0]


def _single(serialized: Any, name: Any, wanted: Sequence[_Wanted], layouts: _Layouts) -> list[Any]:
    data = bytes_of(serialized)
    outputs = _scalars(wanted, data, layouts.find(data))
    if outputs is not None:
        return outputs
    found = _features_of(data)
    outputs = []
    for one in wanted:
        value = _dense(one, found, name)
        outputs += _sparse(one, [value], 0) if one.sparse else [value]
    return outputs


def _batched(serialized: Any, names: Any, wanted: Sequence[_Wanted], _layouts: _Layouts) -> list[Any]:
    examples = [_features_of(bytes_of(item)) for item in serialized]
    labels = [b"<unknown>"] * len(examples) if names is None else list(names)
    outputs: list[Any] = []
    for one in wanted:
        values = [_dense(one, *pair) for pair in zip(examples, labels, strict=True)]
        if one.sparse:
            outputs += _sparse(one, values, 1)
        else:
            outputs.append(_batch(one, values))
    return outputs


def _sparse(one: _Wanted, values: list[Any], batch: int) -> list[Any]:
    """Return the indices, values and shape of a feature; ``batch`` is 0 for a single example."""
    at = [(i, j) for i, value in enumerate(values) for j in range(len(value))]
    shape = (len(values), max(map(len, values), default=0))
    indices = np.array(at, np.int64).reshape(-1, 2)[:, 1 - batch :]
    found = np.concatenate([np.empty(0, one.dtype.numpy), *values])
    return [indices, found, np.array(shape[1 - batch :], np.int64)]


def _scalars(wanted: Sequence[_Wanted], data: bytes, places: Any) -> list[Any] | None:
    """Return the features if each is at a known place, else None."""
    if places is None:
        return None
    values = []
    for one in wanted:
        place = places.get(one.key)
        if place is None or one.rows or place[0] != one.kind:
            return None
        if not one.shape:
            value = _scalar_of(data, *place)
        elif one.kind == _STRINGS:
            return None
        else:
            value = _packed_of(data, *place)
            value = value.reshape(one.shape) if len(value) == one.size else None
        if value is None:
            return None
        values.append(value)
    return values


def _batch(one: _Wanted, values: list[Any]) -> Any:
    rows = [max(map(len, values), default=0)] if one.rows else []  # others are padded
    filler = (b"" if one.dtype is g.string else 0) if one.default is None else one.default
    batch = np.full((len(values), *rows, *one.shape), filler, one.dtype.as_numpy_dtype)
    for i, value in enumerate(values):
        batch[(i, slice(len(value))) if one.rows else i] = value
    return batch


def _dense(one: _Wanted, found: Mapping[bytes, Any], label: Any = None) -> Any:
    """Return the values of a feature in one example, or its default."""
    feature = found.get(one.key)
    values = None if feature is None else _feature_of(feature, one.kind)
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
    return tuple(spec for one in wanted for spec in one.specs(serialized.shape))


g.register(g.OpDef("ParseExample", _parse_example, _parse_rule))


# --- serialized examples --------------------------------------------------------------------------
class _Layouts:
    """A cache of the places of values: examples of equal length often have the same layout.

    All bytes between the values are compared: if they are equal, the layout is.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[tuple[int, int, bytes]], dict[bytes, Any]]] = {}

    def find(self, data: bytes) -> dict[bytes, tuple[int, int, int]] | None:
        """Return the kind and place of each feature's single value or packed list; None if unknown."""
        known = self._known.get(len(data))
        if known is None:
            if len(self._known) < _LAYOUTS and (found := _places(data)) is not None:
                spans = sorted([place[1:] for place in found.values()])
                edges = [0, *[i for span in spans for i in span], len(data)]
                gaps = zip(edges[::2], edges[1::2], strict=True)
                self._known[len(data)] = [(a, b, data[a:b]) for a, b in gaps if a < b], found
                return found
            return None
        for start, end, between in known[0]:
            if data[start:end] != between:
                return None
        return known[1]


def _places(data: bytes) -> dict[bytes, tuple[int, int, int]] | None:
    """Return the places for :meth:`_Layouts.find`; None if a feature has several values, or none."""
    found = {}
    for key, span in _features_of(data).items():
        lists = _parts(*span)
        place = _only(data, *lists[0][1:]) if len(lists) == 1 else None
        if place is None or lists[0][0] not in (_STRINGS, _FLOATS, _INTS):
            return None
        found[key] = (lists[0][0], *place)
    return found


def _only(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Return the place of a list's single value or packed part; None if it has more."""
    values = _parts(data, start, end)
    if len(values) == 1 and data[start] == 0x0A and values[0][2] == end:
        return values[0][1:]
    return None


def _scalar_of(data: bytes, kind: int, start: int, end: int) -> Any:
    """Return the single value of a feature; None if there are several."""
    if kind == _STRINGS:
        return as_objects(data[start:end])
    if kind == _FLOATS:
        return np.frombuffer(data, "<f4", 1, start)[0] if end - start == 4 else None
    if start == end:
        return None
    number, stop = read_varint(data, start)
    return np.int64(signed(number)) if stop == end else None


def _features_of(data: bytes) -> dict[bytes, _Span]:
    """Return the serialized features of an ``Example`` by name; the last one of a name is used.

    Raises:
        WireError: the bytes are no such message.
    """
    found: dict[bytes, _Span] = {}
    for outer, first, last in _parts(data, 0, len(data)):
        if outer != 0x0A:
            continue
        for inner, left, right in _parts(data, first, last):
            if inner != 0x0A:
                continue
            key, value = b"", (data, right, right)
            for part, begin, stop in _parts(data, left, right):
                if part == 0x0A:
                    key = data[begin:stop]
                elif part == 0x12:
                    value = (data, begin, stop)
            found[key] = value
    return found


def _feature_of(span: _Span, kind: int) -> Any:
    """Return the vector of a feature's values; None if it has no kind, or the name of another kind."""
    data, start, end = span
    parts = _parts(*span)
    if len(parts) == 1 and parts[0][0] == kind:
        if kind == _STRINGS:
            return np.array([data[a:b] for _tag, a, b in _parts(data, *parts[0][1:])], object)
        if (place := _only(data, *parts[0][1:])) is not None:
            return _packed_of(data, kind, *place)
    feature = Feature.FromString(data[start:end])  # a list in several parts, or not packed
    found = feature.WhichOneof("kind")
    if found is None:
        return None
    tag, dtype = _KINDS[found]
    return np.array(getattr(feature, found).value, dtype.numpy) if tag == kind else dtype.name


def _packed_of(data: bytes, kind: int, start: int, end: int) -> Any:
    """Return the vector of a packed list of numbers."""
    if kind == _INTS:
        return _ints(data[start:end])
    if (end - start) % 4:
        raise WireError(f"A list of floats has {end - start} bytes.")
    return np.frombuffer(data, "<f4", (end - start) // 4, start).astype(np.float32)


def _ints(packed: bytes) -> Any:
    raw = np.frombuffer(packed, np.uint8)
    if not (raw & 128).any():
        return raw.astype(np.int64)
    values, position = [], 0
    while position < len(packed):
        number, position = read_varint(packed, position)
        values.append(signed(number))
    return np.array(values, np.int64)


def _parts(data: bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return the first byte and the span of each field of bytes in a message; skip the others."""
    found = []
    try:
        while start < end:
            tag = data[start]
            if tag & 0x87 != DELIMITED:
                start = _after_other(data, start)
                continue
            size = data[start + 1]
            start += 2
            if size > 127:
                size, start = read_varint(data, start - 1)
            found.append((tag, start, start + size))
            start += size
    except IndexError:
        raise WireError(f"The bytes end within a field, at byte {start}.") from None
    if start > end:
        raise WireError(f"A field needs {start - end} more bytes than the {end} that there are.")
    return found


def _after_other(data: bytes, start: int) -> int:
    """Return the end of a field that :func:`_parts` skips."""
    key, start = read_varint(data, start)
    if key & 7 == VARINT:
        return read_varint(data, start)[1]
    if key & 7 == DELIMITED:
        size, start = read_varint(data, start)
        return start + size
    if key & 7 not in (FIXED64, FIXED32):
        raise WireError(f"A field at byte {start} has the unknown wire type {key & 7}.")
    return start + (8 if key & 7 == FIXED64 else 4)
