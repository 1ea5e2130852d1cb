"""Families of ops: one row of a table registers an op and creates its public function.

Elementwise ops, reductions and optimizer updates are families: they share the shape rule, a part of the
gradient and the signature. A row has the rest::

    unary = partial(families.unary, __name__)  # the module of the functions
    exp = unary("exp", "Exp", np.exp, SMOOTH, lambda g, x, y: g * y, "Return e to the power ``x``.")

The arguments of a row:

* ``module``: the name of the module that has the row.
* ``name``: the public name.
* ``op_type``: the op type, and the default name of nodes unless ``node`` is given.
* ``kernel``: computes the output; an elementwise one takes ``out=``, which may be one of its inputs.
* ``allowed``: the dtypes of the inputs.
* ``gradient``: a function of the gradient of the output, the inputs and the output; None for no
  gradient.
* ``doc``: the first sentence of the documentation.
* ``output``: the dtype of the output, by default that of the input.
* ``rule``: the shape rule, by default that of the family.
* ``default``: the default of the public function's argument ``name``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import axes_of, convert_to_tensor, create_op, graph_of
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import NOT_DIFFERENTIABLE, ZERO, OpDef, Spec, VariableOpDef, register
from asyncmon.graph.core.shape import merge, num_elements
from asyncmon.graph.core.signatures import named
from asyncmon.graph.ops.axes import check_distinct, reduced
from asyncmon.graph.ops.shape_ops import unbroadcast

Kernel = Callable[..., Any]
Dtypes = Sequence[DType]
Gradients = list[Tensor | None]
UnaryGradient = Callable[[Tensor, Tensor, Tensor], Tensor] | None
BinaryGradient = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
ReductionGradient = Callable[[Tensor, Tensor, Tensor, Any], Tensor]

_F = TypeVar("_F", bound=Callable[..., Any])


class UnaryFunction(Protocol):
    """A public function of one tensor."""

    def __call__(self, x: Any, name: str | None = None) -> Tensor: ...


class ActivationFunction(Protocol):
    """A public function of one tensor, which ``tf.nn`` calls ``features``."""

    def __call__(self, features: Any, name: str | None = None) -> Tensor: ...


class BinaryFunction(Protocol):
    """A public function of two tensors that broadcast."""

    def __call__(self, x: Any, y: Any, name: str | None = None) -> Tensor: ...


class ReductionFunction(Protocol):
    """A public function of one tensor that reduces axes."""

    def __call__(
        self,
        input_tensor: Any,
        axis: Any = None,
        keepdims: bool | None = None,
        name: str | None = None,
        reduction_indices: Any = None,
        keep_dims: bool | None = None,
    ) -> Tensor: ...


# --- elementwise ----------------------------------------------------------------------------------
def unary(
    module: str,
    name: str,
    op_type: str,
    kernel: Kernel,
    allowed: Dtypes,
    gradient: UnaryGradient,
    doc: str,
    *,
    output: DType | None = None,
    rule: rules.Rule | None = None,
) -> UnaryFunction:
    """Register ``kernel(x, out=None)`` with ``gradient(grad, x, y)``; return its public function."""
    _register_unary(op_type, kernel, rule or rules.unary(allowed, output=output), gradient)

    def function(x: Any, name: str | None = None) -> Tensor:
        return create_op(op_type, (x,), None, name)

    return _published(function, module, name, doc, x=_dtypes(allowed))


def activation(
    module: str,
    name: str,
    op_type: str,
    kernel: Kernel,
    allowed: Dtypes,
    gradient: UnaryGradient,
    doc: str,
) -> ActivationFunction:
    """Register an op of ``tf.nn`` as :func:`unary` does; its parameter is called ``features``."""
    _register_unary(op_type, kernel, rules.unary(allowed, "features"), gradient)

    def function(features: Any, name: str | None = None) -> Tensor:
        return create_op(op_type, (features,), None, name)

    return _published(function, module, name, doc, "tf.nn", features=_dtypes(allowed))


def _register_unary(op_type: str, kernel: Kernel, rule: rules.Rule, gradient: UnaryGradient) -> None:
    back = ZERO if gradient is None else lambda op, g: [gradient(g, op.inputs[0], op.outputs[0])]
    register(OpDef(op_type, kernel, rule, back, elementwise=True))


def binary(
    module: str,
    name: str,
    op_type: str,
    kernel: Kernel,
    allowed: Dtypes,
    gradient: BinaryGradient | None,
    doc: str,
    *,
    rule: rules.Rule | None = None,
    node: str | None = None,
    default: str | None = None,
) -> BinaryFunction:
    """Register ``kernel(x, y, out=None)``, whose inputs broadcast, and return its public function.

    ``gradient(grad, x, y, z)`` returns the gradients of ``x`` and ``y`` in the shape of the output
    ``z``.
    """

    def back(op: Operation, grad: Tensor) -> Gradients:
        assert gradient is not None
        x, y = op.inputs
        of_x, of_y = gradient(grad, x, y, op.outputs[0])
        return [unbroadcast(of_x, x, y), unbroadcast(of_y, y, x)]

    flows = back if gradient else ZERO
    if rule is None:
        rule = rules.binary(op_type, allowed)
        rule = _on_sizes(rule, kernel) if dtypes.int32 in allowed else rule
    register(OpDef(op_type, kernel, rule, flows, elementwise=True))
    return binary_function(module, name, op_type, allowed, doc, node, default)


_FEW = 64  # elements: a longer vector is not a shape


def _on_sizes(rule: rules.Rule, kernel: Kernel) -> rules.Rule:
    """Return a rule that also infers elements: ``shape(x)[0] - 1`` is static if ``shape(x)`` is."""

    def with_dims(x: Spec, y: Spec) -> Spec:
        spec: Spec = rule(x, y)
        if spec.dtype not in _SIZES or spec.shape is None or len(spec.shape) > 1:
            return spec
        if (num_elements(spec.shape) or _FEW + 1) > _FEW:
            return spec
        of_x, of_y = x.known_dims(), y.known_dims()
        if of_x is None or of_y is None:
            return spec
        count = max(len(of_x), len(of_y))
        pairs = zip(of_x * (count // len(of_x)), of_y * (count // len(of_y)), strict=True)
        return Spec(spec.dtype, spec.shape, dims=tuple([_sized(kernel, a, b) for a, b in pairs]))

    return with_dims


_SIZES = (dtypes.int32, dtypes.int64)


def _sized(kernel: Kernel, x: int | None, y: int | None) -> int | None:
    if x is None or y is None:
        return None
    try:
        value = int(kernel(np.int64(x), np.int64(y)))
    except (ArithmeticError, ValueError, InvalidArgumentError):  # the run raises it
        return None
    return value if abs(value) < 1 << 31 else None


def comparison(
    module: str,
    name: str,
    op_type: str,
    kernel: Kernel,
    allowed: Dtypes,
    doc: str,
    default: str | None = None,
) -> BinaryFunction:
    """Register an op with a bool result as :func:`binary` does."""
    rule = rules.binary(op_type, allowed, output=dtypes.bool)
    return binary(module, name, op_type, kernel, allowed, None, doc, rule=rule, default=default)


def binary_function(
    module: str,
    name: str,
    op_type: str,
    allowed: Dtypes,
    doc: str,
    node: str | None = None,
    default: str | None = None,
) -> BinaryFunction:
    """Return another public function of an op that :func:`binary` registered."""

    def function(x: Any, y: Any, name: str | None = default) -> Tensor:
        return graph_of((x, y)).create(op_type, (x, y), {}, name or node, pair=True).outputs[0]

    like_x = "of the dtype of ``x``, which a Python value takes; the shapes broadcast."
    return _published(function, module, name, doc, x=_dtypes(allowed), y=like_x)


# --- reductions -----------------------------------------------------------------------------------
def reduction(
    module: str,
    name: str,
    op_type: str,
    kernel: Kernel,
    allowed: Dtypes,
    gradient: ReductionGradient | None,
    doc: str,
    *,
    node: str | None = None,
) -> ReductionFunction:
    """Register ``kernel(x, *, axis, keepdims)`` and return its public function.

    ``axis`` is a tuple, or None for all axes. In ``gradient(grad, x, y, axis)``, the gradient and the
    output ``y`` broadcast against ``x``.
    """
    only = allowed[0] if len(allowed) == 1 else None  # the dtype of an empty list

    def rule(x: Spec, *, axis: tuple[int, ...] | None, keepdims: bool) -> Spec:
        rules.check_dtype(x.dtype, allowed, "input")
        if x.shape is None:
            return Spec(x.dtype, () if axis is None and not keepdims else None)
        rank = len(x.shape)
        axes = range(rank) if axis is None else axis
        gone = [rules.normalize_axis(a, rank, error=_OUTSIDE) for a in axes]
        if axis is not None:
            check_distinct(gone)
        kept = [(i, d) for i, d in enumerate(x.shape) if keepdims or i not in gone]
        return Spec(x.dtype, tuple(1 if i in gone else d for i, d in kept))

    def back(op: Operation, grad: Tensor) -> Gradients:
        assert gradient is not None
        y, axis = op.outputs[0], op.attrs["axis"]
        if axis and not op.attrs["keepdims"]:
            y, grad = (create_op("ExpandDims", (t,), {"axis": axis}) for t in (y, grad))
        return [gradient(grad, op.inputs[0], y, axis)]

    register(OpDef(op_type, kernel, rule, back if gradient else NOT_DIFFERENTIABLE))

    def function(
        input_tensor: Any,
        axis: Any = None,
        keepdims: bool | None = None,
        name: str | None = None,
        reduction_indices: Any = None,
        keep_dims: bool | None = None,
    ) -> Tensor:
        x = convert_to_tensor(input_tensor, preferred_dtype=only)
        axes = axes_of(renamed_argument("axis", axis, "reduction_indices", reduction_indices))
        keep = bool(renamed_argument("keepdims", keepdims, "keep_dims", keep_dims))
        if axes is None or isinstance(axes, tuple):
            return create_op(op_type, (x,), {"axis": axes, "keepdims": keep}, name or node)
        attrs = {"axis": (-1,), "keepdims": False}
        return reduced(lambda rows: create_op(op_type, (rows,), attrs, name or node), x, axes, keep)

    return _published(
        function,
        module,
        name,
        doc,
        input_tensor=_dtypes(allowed),
        axis="an int, ints or a tensor of them, negative ones from the end; None for all.",
        keepdims="keep the reduced axes, with length 1.",
        reduction_indices="an old name of ``axis``.",
        keep_dims="an old name of ``keepdims``.",
    )


_OUTSIDE = "Invalid reduction dimension {axis} for input with {rank} dimension(s)"


# --- updates of variables -------------------------------------------------------------------------
def update_op(
    name: str, update: Callable[..., None], *, refs: int, rows: Callable[..., None] | None = None
) -> None:
    """Register the two ops of an optimizer: ``Apply<name>`` and ``SparseApply<name>``.

    The inputs are the variable and its slots, then scalars (learning rate, decays), then the gradient.
    The gradient of the sparse op is rows and their distinct indices.

    Args:
        name: the name of the optimizer.
        update: ``update(*refs, *scalars, grad)`` writes flat slices of the refs in place, element by
            element.
        refs: the number of inputs that are the variable and its slots.
        rows: ``rows(*refs, *scalars, grad, indices)``, the update by rows; by default it gathers the
            rows of the refs, updates them and writes them back.
    """

    def gathered(*inputs: Any, **attrs: Any) -> None:
        *others, indices = inputs
        news = [ref[indices] for ref in others[:refs]]
        update(*news, *others[refs:], **attrs)
        for ref, new in zip(others[:refs], news, strict=True):
            ref[indices] = new

    dense, sparse = update_rule(refs), update_rule(refs, sparse=True)
    register(VariableOpDef(f"Apply{name}", None, dense, refs=refs, update=update, blockwise=True))
    register(VariableOpDef(f"SparseApply{name}", None, sparse, refs=refs, update=rows or gathered))


def update_rule(refs: int, *, sparse: bool = False) -> rules.Rule:
    """Return the shape rule of an op with the inputs of :func:`update_op`."""

    def rule(*inputs: Spec, **_attrs: object) -> Spec:
        last = len(inputs) - 1 - sparse
        var, shape = inputs[0], inputs[0].shape
        for slot in inputs[1:refs]:
            shape = merge(shape, slot.shape)
        for scalar in inputs[refs:last]:
            rules.with_rank(scalar.shape, 0)
        if sparse:
            indices = inputs[-1].shape
            shape = None if shape is None or indices is None else (*indices, *shape[1:])
        merge(shape, inputs[last].shape)
        for other in inputs:
            if other.dtype.is_floating and other.dtype is not var.dtype:
                found = other.dtype.name
                raise TypeError(f"Expected {var.dtype.name}, the variable's dtype, got {found}")
        return Spec(var.dtype, var.shape)

    return rule


# --- public functions -----------------------------------------------------------------------------
_KINDS = {
    rules.FLOATS: "floats.",
    rules.REALS: "floats or integers.",
    rules.SMOOTH: "floats or complex numbers.",
    rules.NUMBERS: "floats, integers or complex numbers.",
}


def _dtypes(allowed: Dtypes) -> str:
    dtypes = tuple(allowed)
    return _KINDS.get(dtypes) or f"of dtype {', '.join(d.name for d in dtypes)}."


def _published(
    function: _F, module: str, name: str, doc: str, space: str = "tf", **parameters: str
) -> _F:
    """Name and document a function of a module that calls a family."""
    arguments = "".join(f"\n    {parameter}: {text}" for parameter, text in parameters.items())
    text = f"{doc} TF1: ``{space}.{name}``.\n\nArgs:{arguments}\n    name: the node's name."
    return named(function, name, text, module)
