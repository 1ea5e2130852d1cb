"""Convert Python values, arrays, variables and lists to tensors, and arguments to integers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.node import NodeGraph, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.shape import as_shape

_INT32 = np.iinfo(np.int32)


def is_tensor_like(value: Any) -> bool:
    """Return true for a tensor, a variable and the like. TF1: ``tf.is_tensor``."""
    return type(value) is Tensor or hasattr(value, "_as_tensor")


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors, variables and the like in a value or in nested lists."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif is_tensor_like(value):
        yield value


def to_tensor(
    graph: NodeGraph, value: Any, dtype: DType | None = None, name: str | None = None
) -> Tensor:
    """Convert a value to a tensor of ``graph``.

    Raises:
        ValueError: a tensor of another dtype, of another graph, or None.
        TypeError: a value that the dtype cannot hold.
    """
    if type(value) is Tensor:
        tensor = value
    elif hasattr(value, "_as_tensor"):
        tensor = value._as_tensor()
    elif isinstance(value, list | tuple) and any(True for _ in tensors_in(value)):
        tensor = _pack(graph, value, dtype, name)
    else:
        return const(graph, to_array(value, dtype), dtype, name or "Const")
    if tensor.graph is not graph:
        tensor = graph.capture(tensor)
    if dtype is not None and tensor.spec.dtype is not dtype:
        raise ValueError(
            f"Tensor conversion requested dtype {dtype.name} for Tensor with dtype "
            f"{tensor.spec.dtype.name}: {tensor!r}"
        )
    return tensor


def to_operand(
    graph: NodeGraph, value: Any, label: str, operand: str | int, dtype: DType | None = None
) -> Tensor:
    """Convert an input of an op to a tensor; ``label`` is the scope of a constant's name."""
    if type(value) is Tensor and value.graph is graph:
        return value
    if is_tensor_like(value):
        return to_tensor(graph, value)
    return to_tensor(graph, value, dtype, graph.operand_name(label, operand))


def to_pair(graph: NodeGraph, x: Any, y: Any, label: str) -> tuple[Tensor, Tensor]:
    """Convert two operands to tensors; a value that is no tensor takes the dtype of the other one."""
    if is_tensor_like(x):
        first = to_operand(graph, x, label, "x")
        return first, to_operand(graph, y, label, "y", first.spec.dtype)
    if type(x) is float and type(y) is int:
        y = float(y)  # as in TF1, the first of two numbers determines the dtype
    second = to_operand(graph, y, label, "y")
    return to_operand(graph, x, label, "x", second.spec.dtype), second


def to_ref(graph: NodeGraph, value: Any) -> Tensor:
    """Return the ref tensor of a variable, not its value."""
    element = getattr(value, "_as_graph_element", lambda: value)()
    if getattr(getattr(element, "op", None), "type", None) != "VariableV2":
        raise TypeError(f"Expected a variable, got {value!r}.")
    return element if element.graph is graph else graph.capture_ref(element)


def const(graph: NodeGraph, value: NDArray[Any], dtype: DType | None, name: str) -> Tensor:
    """Add a constant. It holds the array itself, which must not change any more."""
    value.flags.writeable = False
    attrs = {"value": value, "dtype": dtype or dtypes.as_dtype(value.dtype)}
    return graph.add_op("Const", (), attrs, name).outputs[0]


def to_array(value: Any, dtype: DType | None = None) -> NDArray[Any]:
    """Convert a value to a new array: float32 and int32 for Python numbers, an array's own dtype.

    ValueError for None or a ragged list. TypeError if ``dtype`` cannot hold the value.
    """
    if value is None:
        raise ValueError("None values not supported.")
    if type(value) is dtypes.DType:
        raise TypeError(f"Cannot convert {value!r}, a dtype, to a tensor.")
    if hasattr(value, "_as_shape"):
        value = _sizes(value, dtype)
    try:
        array = np.array(value)
    except UnicodeDecodeError:  # str beside bytes that are not ASCII
        array = np.array(value, object)
    except ValueError as error:
        raise ValueError(f"Cannot convert {value!r} to a tensor: {error}") from None
    kind = array.dtype.kind
    is_text = kind in "SUO" or (dtype is dtypes.string and not array.size)
    if is_text and dtype in (None, dtypes.string):
        try:
            return dtypes.as_strings(value)
        except TypeError:
            kinds = type(value).__name__
            raise TypeError(f"Cannot convert {value!r} of type {kinds} to a tensor.") from None
    if kind == "O" and dtype not in (None, dtypes.variant) and isinstance(value, np.ndarray):
        with suppress(ValueError, TypeError):  # of numbers
            return array.astype(dtype.numpy)
    if kind == "O" and dtype is not dtypes.variant:
        raise TypeError(f"Cannot convert {value!r} of type {type(value).__name__} to a tensor.")
    given = isinstance(value, np.ndarray | np.generic)
    if dtype is None:
        return array if given else _narrow(array)
    return _cast(array, value, dtype, given=given)


def _sizes(shape: Any, dtype: DType | None) -> NDArray[Any]:
    if dtype not in (None, dtypes.int32, dtypes.int64):
        raise TypeError(f"Cannot convert a TensorShape to dtype {dtype}. Allowed are int32 and int64.")
    if not shape.is_fully_defined():
        raise ValueError(f"Cannot convert a partially known TensorShape {shape} to a Tensor.")
    return np.array(shape.as_list(), np.int32)


# The kinds of dtypes that a Python value may have, by its kind. An array is cast to any of them.
_KEEPS_VALUE = {"b": "b", "i": "iufc", "u": "iufc", "f": "fc", "c": "c"}


def _cast(array: NDArray[Any], value: Any, dtype: DType, *, given: bool) -> NDArray[Any]:
    target = dtype.numpy
    if array.dtype == target:
        return array
    kinds = _KEEPS_VALUE.get(array.dtype.kind, "")
    if kinds and (given or not array.size):
        kinds = "biufc"
    if target.kind not in kinds:
        raise TypeError(
            f"Expected {dtype.name}, got {value!r} of type {type(value).__name__!r} instead."
        )
    if not given and target.kind in "iu" and array.size:
        limits = np.iinfo(target)
        if array.min() < limits.min or array.max() > limits.max:
            raise TypeError(f"Expected {dtype.name}, got {value!r}, which is out of its range.")
    return array.astype(target)


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of Python numbers in TF1's default dtypes."""
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype == np.int64 and (
        not array.size or (array.min() >= _INT32.min and array.max() <= _INT32.max)
    ):
        return array.astype(np.int32)
    return array


def _pack(graph: NodeGraph, values: Any, dtype: DType | None, name: str | None) -> Tensor:
    if dtype is None:
        dtype = next(tensors_in(values)).dtype
    parts = []
    for value in values:
        part = to_tensor(graph, value, None if is_tensor_like(value) else dtype)
        same = part.spec.dtype is dtype
        parts.append(part if same else graph.add_op("Cast", (part,), {"dtype": dtype}).outputs[0])
    return graph.add_op("Pack", parts, {"axis": 0}, name or "packed").outputs[0]


register(OpDef("Const", lambda *, value, dtype: value,
    lambda *, value, dtype: Spec(dtype, as_shape(value.shape), value), aliases=True))  # fmt: skip


# --- static arguments -------------------------------------------------------------------------------


def static_ints(value: Any, what: str) -> tuple[int, ...]:
    """Convert an argument to integers, which must be known when the graph is built.

    It is an int, a sequence of ints, an array, or a constant tensor of these; TypeError for other
    elements, ValueError for a tensor that is not known. Errors call it ``what``.
    """
    if is_tensor_like(value):
        tensor = value._as_tensor() if hasattr(value, "_as_tensor") else value
        dims = tensor.spec.known_dims()
        if dims is None or None in dims:
            raise ValueError(f"{what} must be known when the graph is built, got {value!r}.")
        return tuple(d for d in dims if d is not None)
    if isinstance(value, list | tuple) and any(is_tensor_like(v) for v in value):
        return tuple(static_int(v, what) for v in value)
    array = np.asarray(value)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{what} must be an integer or integers, got {value!r}.")
    return tuple(int(i) for i in array.reshape(-1))


def static_int(value: Any, what: str) -> int:
    """Convert an argument to one integer. Errors as :func:`static_ints`."""
    if type(value) is int:
        return value
    numbers = static_ints(value, what)
    if len(numbers) != 1:
        raise ValueError(f"{what} must be one integer, got {value!r}.")
    return numbers[0]


def static_axes(value: Any, what: str = "axis") -> tuple[int, ...] | None:
    """Convert axes to integers; None stays None. Errors as :func:`static_ints`."""
    return None if value is None else static_ints(value, what)


def renamed_argument(new_name: str, new: Any, old_name: str, old: Any) -> Any:
    """Return the value of an argument with two names; ValueError if both are given."""
    if old is None:
        return new
    if new is not None:
        raise ValueError(f"Cannot specify both {old_name!r} and {new_name!r}")
    return old
