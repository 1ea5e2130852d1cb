"""Sums of products over named or numbered axes: tensordot, einsum."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.arguments import static_ints
from asyncmon.graph.core.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.op import OpDef, Shape, Spec, register
from asyncmon.graph.kernels.matmul import product

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

__all__ = ["einsum", "tensordot"]


# --- tensordot --------------------------------------------------------------------------------------


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """Return the sum of products over axes of two tensors. TF1: ``tf.tensordot``.

    Args:
        a: a tensor.
        b: a tensor of the same dtype.
        axes: how many axes, the last of ``a`` and the first of ``b``; or two lists of axes.
        name: the node's name.

    Raises:
        ValueError: axes or sizes do not fit (InvalidArgumentError in the run, where a rank is not known
            before).
    """
    x, y = convert_pair(a, b, name or "Tensordot")
    if is_tensor_like(axes):
        axes = convert_to_tensor(axes).spec.value
        if axes is None:
            raise ValueError("`axes` must be known when the graph is built.")
        axes = axes.tolist()
    if not isinstance(axes, int):
        if len(axes) != 2:
            raise ValueError(f"`axes` must be an integer or have length 2, got {axes!r}")
        axes = tuple(static_ints(v, "axes") for v in axes)
        if len(axes[0]) != len(axes[1]):
            raise ValueError(
                f"Different number of contraction axes `a` and `b`, {len(axes[0])} != {len(axes[1])}."
            )
    if x.spec.shape is None or y.spec.shape is None:
        return create_op("Tensordot", (x, y), {"axes": axes}, name)
    equation = _equation(len(x.spec.shape), len(y.spec.shape), axes)
    return create_op("Einsum", (x, y), {"equation": equation, "spread": ""}, name or "Tensordot")


_Axes = int | tuple[tuple[int, ...], tuple[int, ...]]


def _equation(rank_x: int, rank_y: int, axes: _Axes) -> str:
    """Write the sum of products of tensors of these ranks as an einsum."""
    if isinstance(axes, int):
        if not 0 <= axes <= min(rank_x, rank_y):
            raise ValueError(f"`axes` must be from 0 to {min(rank_x, rank_y)}, got {axes}")
        axes = (tuple(range(rank_x - axes, rank_x)), tuple(range(axes)))
    of_x = [rules.normalize_axis(i, rank_x, "axes") for i in axes[0]]
    of_y = [rules.normalize_axis(i, rank_y, "axes") for i in axes[1]]
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    names_x = [next(letters) for _ in range(rank_x)]
    names_y = [names_x[of_x[of_y.index(i)]] if i in of_y else next(letters) for i in range(rank_y)]
    kept = [c for i, c in enumerate(names_x) if i not in of_x]
    kept += [c for i, c in enumerate(names_y) if i not in of_y]
    return f"{''.join(names_x)},{''.join(names_y)}->{''.join(kept)}"


def _tensordot(x: Array, y: Array, *, axes: _Axes) -> Array:
    """The same of tensors whose ranks are known only in the run."""
    return _einsum(x, y, equation=_equation(np.ndim(x), np.ndim(y), axes), spread="")


def _tensordot_grad(grad: Array, x: Array, y: Array, *, axes: _Axes, operand: int) -> Array:
    equation = _equation(np.ndim(x), np.ndim(y), axes)
    mine, other = (y, x) if operand else (x, y)
    shape = np.array(np.shape(mine))
    return _einsum_grad(grad, shape, other, equation=equation, operand=operand, spread="")


def _tensordot_spec(x: Spec, y: Spec, *, axes: _Axes) -> Spec:
    rules.check_same_dtype("Tensordot", x, y, ("a", "b"))
    rules.check_dtype(x.dtype, rules.NUMBERS, "a")
    return Spec(x.dtype, None)


def _tensordot_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    return [create_op("TensordotGrad", (grad, *op.inputs), {**op.attrs, "operand": i}) for i in (0, 1)]


def _tensordot_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    flow, x, y = op.inputs
    axes, operand = op.attrs["axes"], op.attrs["operand"]
    pair = (x, grad) if operand else (grad, y)
    flows: list[Tensor | None] = [create_op("Tensordot", pair, {"axes": axes}), None, None]
    other = 1 - operand
    flows[1 + other] = create_op("TensordotGrad", (flow, *pair), {"axes": axes, "operand": other})
    return flows


register(OpDef("Tensordot", _tensordot, _tensordot_spec, _tensordot_gradient, aliases=True))
register(
    OpDef(
        "TensordotGrad",
        _tensordot_grad,
        lambda grad, x, y, *, axes, operand: Spec(grad.dtype, (y if operand else x).shape),
        _tensordot_grad_gradient,
        aliases=True,
    )
)


# --- einsum: the equation ---------------------------------------------------------------------------


def _parse(equation: str, ranks: list[int | None]) -> tuple[str, str]:
    """Return the equation with its output, letters in the place of ``...``, and those letters."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise ValueError(f"Got {len(ranks)} inputs for equation {equation!r}, expecting {len(inputs)}")
    letters = set(text) - set(",.->")
    if not all(c.isalpha() and c.isascii() for c in letters):
        raise ValueError(f"Indices have incorrect format: {equation!r}")
    spare = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba" if c not in letters]
    extra = [_extra(labels, rank, equation) for labels, rank in zip(inputs, ranks, strict=True)]
    widest = "".join(spare[: max(extra, default=0)])
    inputs = [
        labels.replace("...", widest[len(widest) - n :])
        for labels, n in zip(inputs, extra, strict=True)
    ]
    if not arrow:  # labels that come once, in alphabetical order
        joined = "".join(inputs)
        right = "..." + "".join(sorted(c for c in letters if joined.count(c) == 1))
    output = right.replace("...", widest)
    if len(set(output)) != len(output) or not set(output) <= set("".join(inputs)):
        raise ValueError(f"The output of {equation!r} must name labels of the inputs, each once.")
    return f"{','.join(inputs)}->{output}", widest


def _extra(labels: str, rank: int | None, equation: str) -> int:
    """Return how many dimensions ``...`` stands for in one input."""
    named = len(labels.replace("...", ""))
    if "..." not in labels:
        if rank is not None and rank != named:
            raise ValueError(
                f"Expected input of rank {named} for {labels!r} in {equation!r}, got {rank}"
            )
        return 0
    if rank is None:
        raise ValueError(f"The rank of an input must be known to use '...' in {equation!r}.")
    if rank < named:
        raise ValueError(
            f"Expected input of rank {named} or more for {labels!r} in {equation!r}, got {rank}"
        )
    return rank - named


def _split(equation: str) -> tuple[list[str], str]:
    left, _, right = equation.partition("->")
    return left.split(","), right


# --- einsum: the kernels ----------------------------------------------------------------------------


def _einsum(*values: Array, equation: str, spread: str) -> Array:
    labels, output = _split(equation)
    sizes = _sizes(labels, [np.shape(v) for v in values], spread)
    operands = [_reduced(np.asarray(v), names, sizes) for v, names in zip(values, labels, strict=True)]
    while len(operands) > 1:
        (a, names_a), (b, names_b) = operands.pop(0), operands.pop(0)
        later = set(output).union(*(names for _, names in operands))
        operands.insert(0, _contract(a, names_a, b, names_b, later))
    value, names = operands[0]
    gone = tuple(i for i, c in enumerate(names) if c not in output)
    value = np.add.reduce(value, axis=gone, dtype=value.dtype) if gone else value
    left = [c for c in names if c in output]
    return np.transpose(value, [left.index(c) for c in output])


def _sizes(labels: list[str], shapes: list[tuple[int, ...]], spread: str) -> dict[str, int]:
    """Return the size of each label; of those in ``spread`` a size of 1 gives way to others."""
    sizes: dict[str, int] = {}
    for names, shape in zip(labels, shapes, strict=True):
        for name, size in zip(names, shape, strict=True):
            before = sizes.get(name, size)
            if before != size and (name not in spread or 1 not in (before, size)):
                raise InvalidArgumentError(
                    f"Expected dimension {sizes[name]} for label {name!r}, got {size}"
                )
            sizes[name] = before if size == 1 else size
    return sizes


def _reduced(x: Array, names: str, sizes: dict[str, int]) -> tuple[Array, str]:
    """Take diagonals of repeated labels, and drop dimensions of 1 that broadcast."""
    if len(set(names)) != len(names):
        unique = "".join(dict.fromkeys(names))
        x, names = np.einsum(f"{names}->{unique}", x), unique
    flat = tuple(i for i, c in enumerate(names) if x.shape[i] == 1 and sizes[c] != 1)
    if flat:
        x, names = np.squeeze(x, flat), "".join(c for i, c in enumerate(names) if i not in flat)
    return x, names


def _contract(a: Array, names_a: str, b: Array, names_b: str, later: set[str]) -> tuple[Array, str]:
    """Multiply two operands, adding up what nobody needs later, as one batched matrix product."""
    shared = [c for c in names_a if c in names_b]
    batch = [c for c in shared if c in later]
    inner = [c for c in shared if c not in later]
    free_a = [c for c in names_a if c not in shared and c in later]
    free_b = [c for c in names_b if c not in shared and c in later]
    left = _matrix(a, names_a, (batch, free_a, inner))
    right = _matrix(b, names_b, (batch, inner, free_b))
    result = product(left, right) if batch else product(left[0], right[0])[None]
    sizes = dict(zip(names_a, a.shape, strict=True)) | dict(zip(names_b, b.shape, strict=True))
    names = "".join(batch + free_a + free_b)
    return result.reshape([sizes[c] for c in names]), names


def _matrix(x: Array, names: str, groups: tuple[list[str], list[str], list[str]]) -> Array:
    kept = [c for group in groups for c in group]
    gone = tuple(i for i, c in enumerate(names) if c not in kept)
    if gone:
        x = np.add.reduce(x, axis=gone, dtype=x.dtype)
        names = "".join(c for c in names if c in kept)
    x = np.transpose(x, [names.index(c) for c in kept])
    ends = len(groups[0]), len(groups[0]) + len(groups[1])
    shape = x.shape[: ends[0]], x.shape[ends[0] : ends[1]], x.shape[ends[1] :]
    return x.reshape([prod(part) for part in shape])


def _einsum_grad(
    grad: Array, shape: Array, *others: Array, equation: str, operand: int, spread: str
) -> Array:
    """The gradient of one operand: of shape ``shape``, which the equation's labels may not tell."""
    labels, output = _split(equation)
    mine = labels[operand]
    rest = labels[:operand] + labels[operand + 1 :]
    target = tuple(shape.tolist())
    sizes = _sizes([output, *rest, mine], [grad.shape, *(o.shape for o in others), target], spread)
    unique = "".join(dict.fromkeys(mine))
    own = dict(zip(mine, target, strict=True))
    known = set(output).union(*rest)
    wanted = "".join(c for c in unique if c in known and own[c] == sizes[c])
    flipped = f"{','.join([output, *rest])}->{wanted}"
    part = _einsum(grad, *others, equation=flipped, spread=spread)
    part = part.reshape([own[c] if c in wanted else 1 for c in unique])
    part = np.broadcast_to(part, [own[c] for c in unique])
    if unique == mine:
        return part
    result = np.zeros(target, grad.dtype)
    np.einsum(f"{mine}->{unique}", result)[...] = part  # a view of the diagonal
    return result


# --- einsum: entries --------------------------------------------------------------------------------


def _einsum_spec(*inputs: Spec, equation: str, spread: str) -> Spec:
    labels, output = _split(equation)
    sizes: dict[str, int | None] = {}
    for spec, names in zip(inputs, labels, strict=True):
        rules.check_same_dtype("Einsum", inputs[0], spec, ("inputs", "inputs"))
        rules.check_dtype(spec.dtype, rules.NUMBERS, "inputs")
        for name, size in zip(names, rules.with_rank(spec.shape, len(names)), strict=True):
            if name not in sizes:
                sizes[name] = size
            elif name in spread:
                (sizes[name],) = rules.broadcast((sizes[name],), (size,)) or (None,)
            else:
                sizes[name] = rules.merge_dim(sizes[name], size)
    return Spec(inputs[0].dtype, tuple(sizes[c] for c in output))


def _einsum_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    return [_operand_gradient(op, grad, i) for i in range(len(op.inputs))]


def _operand_gradient(op: Operation, grad: Tensor, operand: int) -> Tensor:
    equation = op.attrs["equation"]
    labels, output = _split(equation)
    mine, rest = labels[operand], labels[:operand] + labels[operand + 1 :]
    others = [*op.inputs[:operand], *op.inputs[operand + 1 :]]
    x = op.inputs[operand]
    if len(set(mine)) == len(mine) and set(mine) <= set(output).union(*rest) and _exact(op):
        flipped = f"{','.join([output, *rest])}->{mine}"
        return create_op("Einsum", (grad, *others), {"equation": flipped, "spread": op.attrs["spread"]})
    attrs = {**op.attrs, "operand": operand}
    result = create_op("EinsumGrad", (grad, create_op("Shape", (x,)), *others), attrs)
    result.set_shape(x.spec.shape)
    return result


def _exact(op: Operation) -> bool:
    """Return true when no dimension is one of size 1 that broadcasts, as far as is known."""
    found: dict[str, set[int | None]] = {}
    for x, names in zip(op.inputs, _split(op.attrs["equation"])[0], strict=True):
        for name, size in zip(names, rules.with_rank(x.spec.shape, len(names)), strict=True):
            if name in op.attrs["spread"]:
                found.setdefault(name, set()).add(size)
    return all(len(sizes) == 1 and None not in sizes for sizes in found.values())


def _einsum_grad_spec(
    grad: Spec, shape: Spec, *others: Spec, equation: str, operand: int, spread: str
) -> Spec:
    known: Shape = shape.known_dims()
    return Spec(grad.dtype, (None,) * len(_split(equation)[0][operand]) if known is None else known)


def _einsum_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    inner, _, *others = op.inputs
    at = op.attrs["operand"]
    attrs = {"equation": op.attrs["equation"], "spread": op.attrs["spread"]}
    operands = [*others[:at], grad, *others[at:]]
    forward = create_op("Einsum", operands, attrs)
    flows: list[Tensor | None] = [forward, None]
    for i, other in enumerate(others):
        position = i if i < at else i + 1
        inputs = [inner, create_op("Shape", (other,)), *operands[:position], *operands[position + 1 :]]
        flows.append(create_op("EinsumGrad", inputs, {**attrs, "operand": position}))
    return flows


register(OpDef("Einsum", _einsum, _einsum_spec, _einsum_gradient, aliases=True))
register(OpDef("EinsumGrad", _einsum_grad, _einsum_grad_spec, _einsum_grad_gradient, aliases=True))


def einsum(equation: str, *inputs: Any, name: str | None = None) -> Tensor:
    """Return sums of products of elements, as an equation names them. TF1: ``tf.einsum``.

    Several operands are contracted from left to right, each time as one batched matrix product.

    Args:
        equation: such as ``"ij,jk->ik"``; without ``->`` the result has the labels that come once. A
            label may come twice in an input (its diagonal); ``...`` stands for dimensions that
            broadcast.
        inputs: tensors of one dtype.
        name: the node's name.

    Raises:
        ValueError: the equation does not fit the inputs.
    """
    dtype = next((x.dtype for x in inputs if is_tensor_like(x)), None)
    tensors = [convert_to_tensor(x, None if is_tensor_like(x) else dtype) for x in inputs]
    ranks = [None if t.spec.shape is None else len(t.spec.shape) for t in tensors]
    full, spread = _parse(equation, ranks)
    return create_op("Einsum", tensors, {"equation": full, "spread": spread}, name or "einsum")
