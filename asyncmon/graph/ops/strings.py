"""Strings, which are bytes: numbers as text and back, joining, cutting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.construction.build import convert_to_tensor, create_op
from asyncmon.graph.construction.convert import renamed_argument
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.op import ZERO, OpDef, register
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.ops.axes import axes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncmon.graph.core.dtypes import DType
    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.kernels.arrays import Array


_STRING = (dtypes.string,)
NUMERIC = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)


def _each(function: Callable[..., Any], *arrays: Any, dtype: Any = object) -> Array:
    """Apply a function to elements, which broadcast."""
    found = np.frompyfunc(function, len(arrays), 1)(*arrays)
    return np.asarray(found, dtype=dtype) if dtype is not object else _objects(found)


def _objects(found: Any) -> Array:
    if isinstance(found, np.ndarray):
        return found
    result = np.empty((), object)
    result[()] = found
    return result


def _on_strings(output: DType) -> rules.Rule:
    def rule(x: Spec, *_others: Spec, **_attrs: Any) -> Spec:
        rules.check_dtype(x.dtype, _STRING, "input")
        return Spec(output, x.shape)

    return rule


# --- numbers --------------------------------------------------------------------------------------
_NUMBER = re.compile(
    rb"\s*[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)\s*", re.I
)
_INTEGER = re.compile(rb"\s*-?\d+\s*")


def parsed(text: bytes, dtype: DType) -> Any:
    """Return the number that a text is. ValueError where it is none, or does not fit."""
    if dtype.is_floating:
        if not _NUMBER.fullmatch(text):
            raise ValueError(text)
        return float(text)
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    number = int(text)
    if not dtype.min <= number <= dtype.max:
        raise ValueError(text)
    return number


def _to_number(x: Array, *, out_type: DType) -> Array:
    def parse(text: bytes) -> Any:
        try:
            return parsed(text, out_type)
        except ValueError:
            shown = text.decode(errors="backslashreplace")
            raise InvalidArgumentError(
                f"StringToNumberOp could not correctly convert string: {shown}"
            ) from None

    return _each(parse, x, dtype=out_type.numpy)


def _to_number_rule(x: Spec, *, out_type: DType) -> Spec:
    rules.check_dtype(x.dtype, _STRING, "string_tensor")
    rules.check_dtype(out_type, NUMERIC, "out_type")
    return Spec(out_type, x.shape)


register(OpDef("StringToNumber", _to_number, _to_number_rule, ZERO))


def string_to_number(
    string_tensor: Any = None,
    out_type: Any = dtypes.float32,
    name: str | None = None,
    input: Any = None,
) -> Tensor:
    """Return the numbers that texts are: float32, float64, int32 or int64. TF1: same name.

    InvalidArgumentError in the run for what is no number, or out of the dtype's range.
    """
    texts = renamed_argument("input", input, "string_tensor", string_tensor)
    return create_op("StringToNumber", (texts,), {"out_type": dtypes.as_dtype(out_type)}, name)


def _as_string(x: Array, *, spec: str) -> Array:
    if x.dtype == np.bool_:
        return _each(lambda value: b"true" if value else b"false", x)
    return _each(lambda value: (spec % value).encode(), x)


register(OpDef("AsString", _as_string, lambda x, *, spec: Spec(dtypes.string, x.shape), ZERO))


def as_string(
    input: Any,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Tensor:
    """Return numbers or bools as text. TF1: ``tf.as_string``.

    Args:
        input: a tensor of real numbers or of bools; strings stay as they are.
        precision: of floats: digits behind the point; 6 where it is negative.
        scientific: of floats: with an exponent.
        shortest: of floats: with an exponent where that is shorter.
        width: the least length.
        fill: what stands before to reach it: "", " ", "0", "-" (behind), "+" (a sign).
        name: the node's name.

    Raises:
        ValueError: both ``scientific`` and ``shortest``, an option that is none of numbers of this
            dtype, or another ``fill``.
    """
    x = convert_to_tensor(input)
    if x.dtype is dtypes.string:
        return create_op("Identity", (x,), None, name)
    rules.check_dtype(x.dtype, (*rules.REALS, dtypes.bool), "input")
    if scientific and shortest:
        raise ValueError("Cannot select both scientific and shortest notation")
    if fill not in ("", " ", "0", "-", "+"):
        raise ValueError(f"fill must be '', ' ', '0', '-' or '+', got {fill!r}")
    if not x.dtype.is_floating and (scientific or shortest or precision >= 0):
        raise ValueError(f"scientific, shortest and precision are for floats, got {x.dtype.name}")
    parts = ["%", fill, str(width) if width > -1 else ""]
    if x.dtype.is_floating:
        parts += [
            f".{precision}" if precision > -1 else "",
            "e" if scientific else "g" if shortest else "f",
        ]
    else:
        parts.append("d")
    return create_op("AsString", (x,), {"spec": "".join(parts)}, name)


def _decode_raw(x: Array, *, out_type: DType, little_endian: bool) -> Array:
    dtype, texts = out_type.numpy.newbyteorder("<" if little_endian else ">"), x.reshape(-1).tolist()
    length = len(texts[0]) if texts else 0
    for text in texts:
        if len(text) != length:
            raise InvalidArgumentError(
                "DecodeRaw requires input strings to all be the same size, got "
                f"{length} and {len(text)}"
            )
    if length % dtype.itemsize:
        raise InvalidArgumentError(
            f"Input to DecodeRaw has length {length} that is not a multiple of {dtype.itemsize}, "
            f"the size of {out_type.name}"
        )
    values = np.frombuffer(b"".join(texts), dtype).astype(out_type.numpy)
    return values.reshape(*x.shape, length // dtype.itemsize)


def _decode_raw_rule(x: Spec, *, out_type: DType, little_endian: bool) -> Spec:
    rules.check_dtype(x.dtype, _STRING, "bytes")
    rules.check_dtype(out_type, (*rules.NUMBERS, dtypes.bool), "out_type")
    return Spec(out_type, None if x.shape is None else (*x.shape, None))


register(OpDef("DecodeRaw", _decode_raw, _decode_raw_rule, ZERO))


def decode_raw(
    input_bytes: Any = None,
    out_type: Any = None,
    little_endian: bool = True,
    name: str | None = None,
    bytes: Any = None,
) -> Tensor:
    """Return the numbers that the bytes of strings are, along a new last dimension. TF1: same name.

    InvalidArgumentError in the run for strings of several lengths, or of a length that is no multiple.
    """
    texts = renamed_argument("input_bytes", input_bytes, "bytes", bytes)
    attrs = {"out_type": dtypes.as_dtype(out_type), "little_endian": little_endian}
    return create_op("DecodeRaw", (texts,), attrs, name)


# --- joining and cutting --------------------------------------------------------------------------
def _join(*parts: Array, separator: bytes) -> Array:
    return _each(lambda *texts: separator.join(texts), *parts)


def _join_rule(*parts: Spec, separator: bytes) -> Spec:
    shape: Any = ()
    for part in parts:
        rules.check_dtype(part.dtype, _STRING, "inputs")
        if part.shape != ():
            shape = part.shape if shape == () else rules.merge(shape, part.shape)
    return Spec(dtypes.string, shape)


register(OpDef("StringJoin", _join, _join_rule, ZERO))


def string_join(inputs: Sequence[Any], separator: str = "", name: str | None = None) -> Tensor:
    """Return strings of several tensors joined, element by element. TF1: same name.

    The tensors have one shape, or are scalars.
    """
    parts = [convert_to_tensor(part) for part in inputs]
    if not parts:
        raise ValueError("string_join() needs a list of at least one tensor, got [].")
    return create_op("StringJoin", parts, {"separator": _bytes(separator)}, name)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _reduce_join(x: Array, *, axis: tuple[int, ...], keepdims: bool, separator: bytes) -> Array:
    axes = [a % x.ndim for a in axis]
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = np.transpose(x, [*kept, *reversed(axes)]).reshape(*[x.shape[a] for a in kept], -1)
    result = np.empty(rows.shape[:-1], object)
    for at in np.ndindex(rows.shape[:-1]):
        result[at] = separator.join(rows[at].tolist())
    return np.expand_dims(result, tuple(sorted(axes))) if keepdims else result


def _reduce_join_rule(x: Spec, *, axis: tuple[int, ...], keepdims: bool, separator: bytes) -> Spec:
    rules.check_dtype(x.dtype, _STRING, "inputs")
    if x.shape is None:
        return Spec(x.dtype, None)
    gone = [rules.normalize_axis(a, len(x.shape)) for a in axis]
    kept = [(i, d) for i, d in enumerate(x.shape) if keepdims or i not in gone]
    return Spec(x.dtype, tuple(1 if i in gone else d for i, d in kept))


register(OpDef("ReduceJoin", _reduce_join, _reduce_join_rule, ZERO))


def reduce_join(
    inputs: Any,
    axis: Any = None,
    keep_dims: bool | None = None,
    separator: str = "",
    name: str | None = None,
    reduction_indices: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Return strings joined along axes, by default all. TF1: same name.

    The first axis given varies fastest; by default the last does.
    """
    x = convert_to_tensor(inputs)
    axes = axes_of(renamed_argument("axis", axis, "reduction_indices", reduction_indices))
    if axes is None:
        if x.spec.shape is None:
            raise ValueError(f"reduce_join() along all axes needs a known rank, got {x!r}.")
        axes = tuple(reversed(range(len(x.spec.shape))))
    if not isinstance(axes, tuple):
        raise ValueError(f"reduce_join() needs axes known when the graph is built, got {axis!r}.")
    keep = bool(renamed_argument("keepdims", keepdims, "keep_dims", keep_dims))
    attrs = {"axis": axes, "keepdims": keep, "separator": _bytes(separator)}
    return create_op("ReduceJoin", (x,), attrs, name)


def _substr(x: Array, pos: Array, length: Array) -> Array:
    def cut(text: bytes, start: int, count: int) -> bytes:
        if not -len(text) <= start <= len(text):
            raise InvalidArgumentError(f"pos {start} out of range for string {text!r}")
        start = start + len(text) if start < 0 else start
        return text[start : max(start + count, start)]

    return _each(cut, x, pos, length)


def _substr_rule(x: Spec, pos: Spec, length: Spec) -> Spec:
    rules.check_dtype(x.dtype, _STRING, "input")
    rules.check_dtype(pos.dtype, (dtypes.int32, dtypes.int64), "pos")
    rules.check_same_dtype("Substr", pos, length, ("pos", "len"))
    rules.merge(pos.shape, length.shape)
    return Spec(dtypes.string, rules.broadcast(x.shape, pos.shape))


register(OpDef("Substr", _substr, _substr_rule, ZERO))


def substr(input: Any, pos: Any, len: Any, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """Return ``len`` bytes of each string from ``pos`` on. TF1: ``tf.substr``.

    ``pos`` counts from the end where it is negative; InvalidArgumentError in the run out of range.

    Raises:
        ValueError: another unit than bytes.
    """
    if unit != "BYTE":
        raise ValueError(f"substr() counts bytes: unit must be 'BYTE', got {unit!r}.")
    start = convert_to_tensor(pos)
    count = convert_to_tensor(len, None if hasattr(len, "dtype") else start.dtype)
    return create_op("Substr", (input, start, count), None, name)


register(OpDef("StringStrip", lambda x: _each(bytes.strip, x), _on_strings(dtypes.string), ZERO))
register(OpDef("StringLower", lambda x: _each(lambda t: t.decode().lower().encode(), x),
    _on_strings(dtypes.string), ZERO))  # fmt: skip
register(OpDef("StringUpper", lambda x: _each(lambda t: t.decode().upper().encode(), x),
    _on_strings(dtypes.string), ZERO))  # fmt: skip
register(OpDef("StringLength", lambda x: _each(len, x, dtype=np.int32),
    _on_strings(dtypes.int32), ZERO))  # fmt: skip


def string_strip(input: Any, name: str | None = None) -> Tensor:
    """Return strings without white space at their ends. TF1: same name."""
    return create_op("StringStrip", (input,), None, name)


def string_lower(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """Return strings, which are UTF-8, in lower case. TF1: ``tf.strings.lower``."""
    return create_op("StringLower", (input,), None, name)


def string_upper(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """Return strings, which are UTF-8, in upper case. TF1: ``tf.strings.upper``."""
    return create_op("StringUpper", (input,), None, name)


def string_length(input: Any, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """Return the number of bytes of strings as int32. TF1: ``tf.strings.length``."""
    if unit != "BYTE":
        raise ValueError(f"string_length() counts bytes: unit must be 'BYTE', got {unit!r}.")
    return create_op("StringLength", (input,), None, name)


def _regex_replace(x: Array, *, pattern: bytes, rewrite: bytes, replace_global: bool) -> Array:
    compiled, count = re.compile(pattern), 0 if replace_global else 1
    return _each(lambda text: compiled.sub(rewrite, text, count), x)


register(OpDef("RegexReplace", _regex_replace, _on_strings(dtypes.string), ZERO))


def regex_replace(
    input: Any, pattern: str, rewrite: str, replace_global: bool = True, name: str | None = None
) -> Tensor:
    r"""Return strings in which what a regular expression, Python's, matches is replaced.

    TF1: same name. ``\1`` in ``rewrite`` is the first group.
    """
    attrs = {
        "pattern": _bytes(pattern),
        "rewrite": _bytes(rewrite).replace(rb"\0", rb"\g<0>"),
        "replace_global": replace_global,
    }
    return create_op("RegexReplace", (input,), attrs, name)
