"""Products of matrices and tensors: matmul, einsum, tensordot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from string import ascii_letters
from typing import Any

import numpy as np

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.core.convert import is_tensor_like, static_ints
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.rules import rank_of
from asyncmon.graph.core.shape import Shape, merge_dim, num_elements
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.numerics.kernels import replaceable
from asyncmon.graph.numerics.parallel import CORES, is_splitting, parallel_for
from asyncmon.graph.ops.join import one_dtype
from asyncmon.graph.ops.shape_ops import like

# --- kernels --------------------------------------------------------------------------------------
# BLAS multiplies small matrices in the calling thread, and larger ones too where it is single-threaded.
# So threads that compute parts of one product do not disturb each other, nor the rest of the machine.
SPLIT_FROM = 1 << 23  # multiplications: fewer take less time than waking another thread
_LONG = 1 << 28  # multiplications: a longer product has more parts, as a thread may start late
ROUND = 16  # rows or columns: parts end at the end of a vector register
_LATE = 1 << 21  # multiplications that the calling thread completes before another thread wakes


@replaceable
def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """Return ``a @ b``, of matrices or of batches of them; split where the run splits products."""
    if is_splitting() and a.shape[-1] * b.shape[-1] * prod(a.shape[:-1]) >= SPLIT_FROM:
        return _split_product(a, b, out)
    if a.ndim == b.ndim == 2:
        return np.dot(a, b, out)
    return np.matmul(a, b, out=out)


def _split_product(a: Array, b: Array, out: Array | None) -> Array:
    if out is None:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = np.empty((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    total = out.size * a.shape[-1]
    parts = 4 * CORES if total >= _LONG else CORES
    if a.ndim == b.ndim > 2 and len(a) == len(b) >= parts:
        step = -(-len(a) // parts)
        slices = [slice(i, i + step) for i in range(0, len(a), step)]
        parallel_for(partial(np.matmul, a[part], b[part], out=out[part]) for part in slices)
    elif out.shape[-2] >= out.shape[-1]:
        slices = split_slices(out.shape[-2], parts, total)
        parallel_for(partial(np.matmul, a[..., part, :], b, out=out[..., part, :]) for part in slices)
    else:
        slices = split_slices(out.shape[-1], parts, total)
        parallel_for(partial(np.matmul, a, b[..., part], out=out[..., part]) for part in slices)
    return out


def split_slices(size: int, parts: int, total: int) -> list[slice]:
    """Split rows or columns; the first part is larger, as the calling thread starts first."""
    ahead = size * _LATE // total
    step = max(round((size - ahead) / (parts * ROUND)), 1) * ROUND
    first = max(size - (parts - 1) * step, size % step or step)
    return [slice(0, first), *(slice(i, i + step) for i in range(first, size, step))]


def half_product(a: Array, b: Array) -> Array:
    """Return :func:`product` of float16, computed in float32: numpy multiplies halves one by one."""
    return product(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)


def _matmul(
    a: Array, b: Array, out: Array | None = None, *, transpose_a: bool, transpose_b: bool
) -> Any:
    if transpose_a:
        a = a.swapaxes(-1, -2)
    if transpose_b:
        b = b.swapaxes(-1, -2)
    return half_product(a, b) if a.dtype.char == "e" else product(a, b, out)


def _flops(a: Spec, b: Spec, result: Spec, *, transpose_a: bool, transpose_b: bool) -> int:
    inner = (a.shape or ())[-2 if transpose_a else -1]
    return (num_elements(result.shape) or 0) * (inner or 0)


_DIRECT: dict[tuple[bool, bool], Callable[..., Array]] = {
    (False, False): lambda a, b, out=None: np.dot(a, b, out),
    (True, False): lambda a, b, out=None: np.dot(a.T, b, out),
    (False, True): lambda a, b, out=None: np.dot(a, b.T, out),
    (True, True): lambda a, b, out=None: np.dot(a.T, b.T, out),
}


def _direct(
    a: Spec, b: Spec, _result: Spec, *, transpose_a: bool, transpose_b: bool
) -> Callable[..., Array] | None:
    is_of_matrices = rank_of(a.shape) == rank_of(b.shape) == 2
    return _DIRECT[transpose_a, transpose_b] if is_of_matrices and a.dtype.numpy.char in "fd" else None


def _matmul_rule(a: Spec, b: Spec, *, transpose_a: bool, transpose_b: bool) -> Spec:
    rules.check_same_dtype("MatMul", a, b, ("a", "b"))
    rules.check_dtype(a.dtype, rules.NUMBERS, "a")
    for spec in (a, b):
        rules.with_rank_at_least(spec.shape, 2)
    if a.shape is None or b.shape is None:
        return Spec(a.dtype, None)
    rows, inner = a.shape[-2:] if not transpose_a else a.shape[:-3:-1]
    inner_b, columns = b.shape[-2:] if not transpose_b else b.shape[:-3:-1]
    merge_dim(inner, inner_b)
    batch = rules.broadcast(a.shape[:-2], b.shape[:-2]) or ()
    return Spec(a.dtype, (*batch, rows, columns))


def product_gradients(op: Operation, grad: Tensor) -> list[Tensor]:
    """Return the gradients of the two factors of a product, before sums over batch dimensions."""
    a, b = op.inputs
    flip_a, flip_b = op.attrs["transpose_a"], op.attrs["transpose_b"]

    def multiply(x: Tensor, y: Tensor, flip_x: bool, flip_y: bool) -> Tensor:
        return create_op("MatMul", (x, y), {"transpose_a": flip_x, "transpose_b": flip_y})

    return [
        multiply(b, grad, flip_b, True) if flip_a else multiply(grad, b, False, not flip_b),
        multiply(grad, a, True, flip_a) if flip_b else multiply(a, grad, not flip_a, False),
    ]


def _matmul_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    a, b = op.inputs
    of_a, of_b = product_gradients(op, grad)
    return [_sum_batch(of_a, a, b), _sum_batch(of_b, b, a)]


def _sum_batch(grad: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """Sum the gradient over the batch dimensions along which ``x`` is broadcast."""
    if x.spec.shape is not None and other.spec.shape is not None:
        batch, other_batch = x.spec.shape[:-2], other.spec.shape[:-2]
        if batch == other_batch and None not in batch:
            return grad
    return like("SumToShape", (grad,), x)


register(
    OpDef("MatMul", _matmul, _matmul_rule, _matmul_gradient, out=True, flops=_flops, direct=_direct)
)


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the product of matrices, or of batches of matrices that broadcast. TF1: ``tf.matmul``.

    The last two dimensions are a matrix, which may be transposed or replaced by its adjoint.
    ``a_is_sparse`` and ``b_is_sparse`` have no effect.
    """
    if transpose_a and adjoint_a:
        raise ValueError("Only one of `transpose_a` and `adjoint_a` can be True.")
    if transpose_b and adjoint_b:
        raise ValueError("Only one of `transpose_b` and `adjoint_b` can be True.")
    x, y = convert_pair(a, b, name or "MatMul")
    x = create_op("Conj", (x,)) if adjoint_a and x.dtype.is_complex else x
    y = create_op("Conj", (y,)) if adjoint_b and y.dtype.is_complex else y
    attrs = {"transpose_a": transpose_a or adjoint_a, "transpose_b": transpose_b or adjoint_b}
    return create_op("MatMul", (x, y), attrs, name)


# --- einsum: the equation -------------------------------------------------------------------------
# That of an einsum, or the axes of a tensordot of unknown rank.
_Equation = str | int | tuple[tuple[int, ...], tuple[int, ...]]


def _equation(equation: _Equation, *ranks: int) -> str:
    """Return the equation, which for axes depends on the ranks."""
    if isinstance(equation, str):
        return equation
    (rank_x, rank_y), axes = ranks, equation
    if isinstance(axes, int):
        if not 0 <= axes <= min(rank_x, rank_y):
            raise ValueError(f"`axes` must be from 0 to {min(rank_x, rank_y)}, got {axes}")
        axes = (tuple(range(rank_x - axes, rank_x)), tuple(range(axes)))
    of_x = [rules.normalize_axis(i, rank_x, "axes") for i in axes[0]]
    of_y = [rules.normalize_axis(i, rank_y, "axes") for i in axes[1]]
    letters = iter(ascii_letters)
    names_x = [next(letters) for _ in range(rank_x)]
    names_y = [names_x[of_x[of_y.index(i)]] if i in of_y else next(letters) for i in range(rank_y)]
    kept = [c for i, c in enumerate(names_x) if i not in of_x]
    kept += [c for i, c in enumerate(names_y) if i not in of_y]
    return f"{''.join(names_x)},{''.join(names_y)}->{''.join(kept)}"


def _parse(equation: str, ranks: list[int | None]) -> tuple[str, str]:
    """Return the equation with its output and with letters for ``...``, and these letters."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise ValueError(f"Got {len(ranks)} inputs for equation {equation!r}, expecting {len(inputs)}")
    letters = set(text) - set(",.->")
    if not all(c.isalpha() and c.isascii() for c in letters):
        raise ValueError(f"Indices have incorrect format: {equation!r}")
    spare = [c for c in reversed(ascii_letters) if c not in letters]
    extra = [_extra(labels, rank, equation) for labels, rank in zip(inputs, ranks, strict=True)]
    widest = "".join(spare[: max(extra, default=0)])
    pairs = zip(inputs, extra, strict=True)
    inputs = [labels.replace("...", widest[len(widest) - n :]) for labels, n in pairs]
    if not arrow:  # labels that occur once, in alphabetical order
        joined = "".join(inputs)
        right = "..." + "".join(sorted(c for c in letters if joined.count(c) == 1))
    output = right.replace("...", widest)
    if len(set(output)) != len(output) or not set(output) <= set("".join(inputs)):
        raise ValueError(f"The output of {equation!r} must name labels of the inputs, each once.")
    return f"{','.join(inputs)}->{output}", widest


def _extra(labels: str, rank: int | None, equation: str) -> int:
    """Return the number of dimensions of ``...`` in an input."""
    named, has_dots = len(labels.replace("...", "")), "..." in labels
    if rank is None and has_dots:
        raise ValueError(f"The rank of an input must be known to use '...' in {equation!r}.")
    extra = 0 if rank is None else rank - named
    if extra < 0 or (extra and not has_dots):
        wanted = f"{named} or more" if has_dots else named
        raise ValueError(f"Expected input of rank {wanted} for {labels!r} in {equation!r}, got {rank}")
    return extra


def _labels(equation: _Equation, ranks: Sequence[int]) -> tuple[list[str], str]:
    left, _, right = _equation(equation, *ranks).partition("->")
    return left.split(","), right


def _sizes(labels: list[str], shapes: Iterable[Shape], spread: str) -> dict[str, Any]:
    """Return the size of each label, None if unknown; labels in ``spread`` broadcast."""
    sizes: dict[str, Any] = {}
    for names, shape in zip(labels, shapes, strict=True):
        for name, size in zip(names, rules.with_rank(shape, len(names)), strict=True):
            if name in spread:
                (sizes[name],) = rules.broadcast((sizes.get(name, 1),), (size,)) or (None,)
            else:
                sizes[name] = merge_dim(sizes.get(name), size)
    return sizes


# --- einsum: kernels ------------------------------------------------------------------------------
def _einsum(*values: Array, equation: _Equation, spread: str) -> Array:
    labels, output = _labels(equation, [np.ndim(v) for v in values])
    sizes = _sizes(labels, map(np.shape, values), spread)
    operands = [_without_repeats(np.asarray(v), c, sizes) for v, c in zip(values, labels, strict=True)]
    while len(operands) > 1:
        (a, names_a), (b, names_b) = operands.pop(0), operands.pop(0)
        later = set(output).union(*(names for _, names in operands))
        operands.insert(0, _contract(a, names_a, b, names_b, later))
    return _arranged(*operands[0], output)


def _arranged(x: Array, names: str, wanted: Sequence[str]) -> Array:
    """Transpose an operand to the wanted labels and sum over the others."""
    gone = tuple(i for i, c in enumerate(names) if c not in wanted)
    x = np.add.reduce(x, axis=gone, dtype=x.dtype) if gone else x
    left = [c for c in names if c in wanted]
    return np.transpose(x, [left.index(c) for c in wanted])


def _without_repeats(x: Array, names: str, sizes: dict[str, int]) -> tuple[Array, str]:
    """Take the diagonals of repeated labels and remove dimensions of size 1 that broadcast."""
    if len(set(names)) != len(names):
        unique = "".join(dict.fromkeys(names))
        x, names = np.einsum(f"{names}->{unique}", x), unique
    flat = tuple(i for i, c in enumerate(names) if x.shape[i] == 1 and sizes[c] != 1)
    if flat:
        x, names = np.squeeze(x, flat), "".join(c for i, c in enumerate(names) if i not in flat)
    return x, names


def _contract(a: Array, names_a: str, b: Array, names_b: str, later: set[str]) -> tuple[Array, str]:
    """Multiply two operands by one batched matrix product that sums over labels not in ``later``."""
    batch = [c for c in names_a if c in names_b and c in later]
    inner = [c for c in names_a if c in names_b and c not in later]
    free_a = [c for c in names_a if c not in names_b and c in later]
    free_b = [c for c in names_b if c not in names_a and c in later]
    sizes = dict(zip(names_a, a.shape, strict=True)) | dict(zip(names_b, b.shape, strict=True))

    def matrices(x: Array, names: str, *groups: list[str]) -> Array:
        x = _arranged(x, names, [c for group in groups for c in group])
        return x.reshape([prod(sizes[c] for c in group) for group in groups])

    left, right = matrices(a, names_a, batch, free_a, inner), matrices(b, names_b, batch, inner, free_b)
    result = product(left, right) if batch else product(left[0], right[0])[None]
    names = "".join(batch + free_a + free_b)
    return result.reshape([sizes[c] for c in names]), names


def _einsum_grad(
    grad: Array, shape: Array, *others: Array, equation: _Equation, operand: int, spread: str
) -> Array:
    """Return the gradient of an operand of this shape, which may have labels of its own."""
    target, ranks = tuple(shape.tolist()), [np.ndim(o) for o in others]
    rest, output = _labels(equation, [*ranks[:operand], len(target), *ranks[operand:]])
    mine = rest.pop(operand)
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


# --- einsum: rules and functions ------------------------------------------------------------------
def _einsum_rule(*inputs: Spec, equation: _Equation, spread: str) -> Spec:
    for spec in inputs:
        rules.check_same_dtype("Einsum", inputs[0], spec, ("inputs", "inputs"))
    rules.check_dtype(inputs[0].dtype, rules.NUMBERS, "inputs")
    ranks = [-1 if spec.shape is None else len(spec.shape) for spec in inputs]
    if not isinstance(equation, str) and -1 in ranks:
        return Spec(inputs[0].dtype, None)
    labels, output = _labels(equation, ranks)
    sizes = _sizes(labels, (spec.shape for spec in inputs), spread)
    return Spec(inputs[0].dtype, tuple(sizes[c] for c in output))


def _operand_gradient(
    grad: Tensor, operands: Sequence[Tensor], operand: int, attrs: Mapping[str, Any]
) -> Tensor:
    others = [*operands[:operand], *operands[operand + 1 :]]
    inputs = (grad, create_op("Shape", (operands[operand],)), *others)
    return create_op("EinsumGrad", inputs, {**attrs, "operand": operand})


def _einsum_grad_rule(
    grad: Spec, shape: Spec, *others: Spec, equation: _Equation, operand: int, spread: str
) -> Spec:
    known = shape.known_dims()
    if known is None and isinstance(equation, str):
        known = (None,) * len(_labels(equation, ())[0][operand])
    return Spec(grad.dtype, known)


def _einsum_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    flow, _, *others = op.inputs
    attrs = dict(op.attrs)
    operand = attrs.pop("operand")
    operands = [*others[:operand], grad, *others[operand:]]
    positions = (i for i in range(len(operands)) if i != operand)
    flows = (_operand_gradient(flow, operands, i, attrs) for i in positions)
    return [create_op("Einsum", operands, attrs), None, *flows]


register(OpDef("Einsum", _einsum, _einsum_rule, aliases=True, gradient=lambda op, grad:
    [_operand_gradient(grad, op.inputs, i, op.attrs) for i in range(len(op.inputs))]))  # fmt: skip
register(OpDef("EinsumGrad", _einsum_grad, _einsum_grad_rule, _einsum_grad_gradient, aliases=True))


def einsum(equation: str, *inputs: Any, name: str | None = None) -> Tensor:
    """Return the sums of products of an equation in Einstein notation. TF1: ``tf.einsum``.

    Operands are contracted from left to right, each time by one batched matrix product. Without ``->``
    the result has the labels that occur once. A label repeated in an input means its diagonal; ``...``
    are dimensions that broadcast.
    """
    tensors = one_dtype(inputs, "einsum")
    full, spread = _parse(equation, [rank_of(tensor.spec.shape) for tensor in tensors])
    return create_op("Einsum", tensors, {"equation": full, "spread": spread}, name or "einsum")


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """Return the sum of products over axes of two tensors. TF1: ``tf.tensordot``.

    ``axes`` is the number of axes, the last of ``a`` and the first of ``b``, or two lists of axes.
    """
    x, y = convert_pair(a, b, name or "Tensordot")
    if is_tensor_like(axes):
        axes = convert_to_tensor(axes).spec.value
        if axes is None:
            raise ValueError("`axes` must be known when the graph is built.")
        axes = axes.tolist()
    if isinstance(axes, int) and axes < 0:
        raise ValueError(f"`axes` must be at least 0, got {axes}")
    if not isinstance(axes, int):
        if len(axes) != 2:
            raise ValueError(f"`axes` must be an integer or have length 2, got {axes!r}")
        axes = tuple(static_ints(v, "axes") for v in axes)
        if len(axes[0]) != len(axes[1]):
            raise ValueError(
                f"Different number of contraction axes `a` and `b`, {len(axes[0])} != {len(axes[1])}."
            )
    rules.check_same_dtype("Tensordot", x.spec, y.spec, ("a", "b"))
    if x.spec.shape is not None and y.spec.shape is not None:
        axes = _equation(axes, len(x.spec.shape), len(y.spec.shape))
    return create_op("Einsum", (x, y), {"equation": axes, "spread": ""}, name or "Tensordot")
