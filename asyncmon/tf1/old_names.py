"""Names that TF1 had first, and other names of what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon import graph as g
from asyncmon.graph.construction.build import convert_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from asyncmon.graph import Tensor

__all__ = [
    "all_variables", "arg_max", "arg_min", "disable_control_flow_v2", "disable_eager_execution",
    "disable_resource_variables", "disable_tensor_equality", "disable_v2_behavior",
    "disable_v2_tensorshape", "enable_resource_variables", "executing_eagerly",
    "executing_eagerly_outside_functions", "floor_div", "guarantee_const", "initialize_all_tables",
    "initialize_all_variables", "initialize_local_variables", "initialize_variables",
    "is_numeric_tensor", "lin_space", "mul", "neg", "numpy_function", "op_scope", "pack",
    "reverse_v2", "sub", "tables_initializer", "to_complex64", "to_complex128", "to_double",
    "to_float", "to_int32", "to_int64", "unpack", "variable_op_scope", "where_v2",
]  # fmt: skip


def _caster(label: str, dtype: Any) -> Callable[..., Tensor]:
    def convert(x: Any, name: str = label) -> Tensor:
        return g.cast(x, dtype, name)

    convert.__name__ = convert.__qualname__ = f"to_{label[2:].lower()}"
    convert.__doc__ = f"Return ``x`` as {dtype.name}. TF1: ``tf.{convert.__name__}``."
    return convert


to_float = _caster("ToFloat", g.float32)
to_double = _caster("ToDouble", g.float64)
to_int32 = _caster("ToInt32", g.int32)
to_int64 = _caster("ToInt64", g.int64)
to_complex64 = _caster("ToComplex64", g.complex64)
to_complex128 = _caster("ToComplex128", g.complex128)

mul, sub, neg = g.multiply, g.subtract, g.negative
lin_space = g.linspace
all_variables = g.global_variables
initialize_all_variables = g.global_variables_initializer
initialize_local_variables = g.local_variables_initializer
initialize_variables = g.variables_initializer


def arg_max(input: Any, dimension: Any, output_type: Any = g.int64, name: str | None = None) -> Tensor:
    """Return the positions of the greatest elements along an axis. TF1: same name."""
    return g.argmax(input, dimension, name, output_type=output_type)


def arg_min(input: Any, dimension: Any, output_type: Any = g.int64, name: str | None = None) -> Tensor:
    """Return the positions of the smallest elements along an axis. TF1: same name."""
    return g.argmin(input, dimension, name, output_type=output_type)


def pack(values: Sequence[Any], axis: int = 0, name: str = "pack") -> Tensor:
    """Return :func:`asyncmon.graph.stack` of tensors. TF1: same name, before 1.0."""
    return g.stack(values, axis, name)


def unpack(value: Any, num: int | None = None, axis: int = 0, name: str = "unpack") -> list[Tensor]:
    """Return :func:`asyncmon.graph.unstack` of a tensor. TF1: same name, before 1.0."""
    return g.unstack(value, num, axis, name)


def floor_div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x / y`` rounded down. TF1: same name."""
    return g.floordiv(x, y, name)


def reverse_v2(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """Return :func:`asyncmon.graph.reverse` of a tensor. TF1: same name."""
    return g.reverse(tensor, axis, name)


def where_v2(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """Return ``x`` where the condition is true, else ``y``; all three broadcast. TF1: same name.

    Without ``x`` and ``y``: the positions where it is true, of shape [n, rank].
    """
    if x is None and y is None:
        return g.where(condition, name=name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    first, second = convert_pair(x, y, name or "SelectV2")
    return g.create_op("SelectV2", (g.convert_to_tensor(condition), first, second), None, name)


def guarantee_const(input: Any, name: str | None = None) -> Tensor:
    """Return the tensor. TF1: same name; plans fold constants without it."""
    return g.identity(input, name)


def is_numeric_tensor(tensor: Any) -> bool:
    """Return whether it is a tensor of numbers. TF1: same name."""
    if not g.is_tensor(tensor):
        return False
    dtype = tensor.dtype
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_complex)


def numpy_function(
    func: Any = None, inp: Any = None, Tout: Any = None, stateful: bool = True, name: str | None = None
) -> Any:
    """Return what a Python function computes in each run. TF1: same name. See ``py_func``."""
    return g.py_func(func, inp, Tout, stateful, name)


def op_scope(
    values: Sequence[Any], name: str | None, default_name: str | None = None
) -> AbstractContextManager[str]:
    """Return ``name_scope(name, default_name, values)``. TF1: same name, before 1.0."""
    return g.name_scope(name, default_name, values)


def variable_op_scope(
    values: Sequence[Any],
    name_or_scope: Any,
    default_name: str | None = None,
    *args: Any,
    **kwargs: Any,
) -> AbstractContextManager[g.VariableScope]:
    """Return ``variable_scope(name_or_scope, default_name, values, ...)``. TF1: same name."""
    return g.variable_scope(name_or_scope, default_name, values, *args, **kwargs)


def tables_initializer(name: str = "init_all_tables") -> g.Operation:
    """Return an operation that does nothing: there are no lookup tables. TF1: same name."""
    return g.no_op(name)


initialize_all_tables = tables_initializer


def executing_eagerly() -> bool:
    """Return False: ops are nodes of a graph. TF1: same name."""
    return False


executing_eagerly_outside_functions = executing_eagerly


def disable_v2_behavior() -> None:
    """Do nothing: this is TF1's behaviour. TF2: ``tf.compat.v1``, same name."""


disable_eager_execution = disable_v2_behavior
disable_v2_tensorshape = disable_v2_behavior
disable_tensor_equality = disable_v2_behavior
disable_control_flow_v2 = disable_v2_behavior


def enable_resource_variables() -> None:
    """Do nothing: there is one kind of variable. TF1: same name."""


disable_resource_variables = enable_resource_variables
