"""The op table: an op is one entry, found by its type name.

An entry says how values are computed (``kernel``), what comes out as far as it is known without values
(``infer``) and how gradients flow (``gradient``). Everything else - planning, scheduling, transactions,
buffers - is done once, for all ops, by the plan.

A worked entry::

    def _matmul(a, b, *, transpose_a, transpose_b, out=None):
        a = a.swapaxes(-1, -2) if transpose_a else a
        b = b.swapaxes(-1, -2) if transpose_b else b
        return np.matmul(a, b, out=out)

    def _matmul_shape(a, b, *, transpose_a, transpose_b):
        ...                                    # ValueError with a full sentence where they do not fit
        return Spec(a.dtype, (rows, columns))

    def _matmul_gradient(op, grad):
        a, b = op.inputs                       # Tensors; build the gradient out of ops
        ...
        return [grad_a, grad_b]                # one per input, None where none flows

    register(OpDef("MatMul", _matmul, _matmul_shape, _matmul_gradient, out=True))

    def matmul(a, b, transpose_a=False, transpose_b=False, name=None):
        attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b}
        return create_op("MatMul", (a, b), attrs, name)

Building nodes (:mod:`asyncmon.graph.core.build`):
``create_op(type, inputs, attrs, name) -> Tensor`` for
an op with one output, ``create_ops(...) -> tuple[Tensor, ...]`` for one with several,
``create_operation(...) -> Operation`` for the node itself (an op without outputs). Inputs that are
not tensors are converted; ``convert_pair(x, y, label)`` converts two operands where a Python number
takes the dtype of the other one. Attributes are passed to ``kernel`` and ``infer`` as keywords, all of
them, by name.

Values. A kernel gets and returns numpy arrays; a 0-d value may come and go as a numpy scalar
(``np.float32``), so use functions (``np.add(x, y)``, ``np.shape(x)``) rather than methods where that
matters. A kernel never writes into its inputs. Floating point warnings are off while kernels run.

State ops. The first ``refs`` inputs are variables (pass the ``Variable``, or its ref tensor). One of
two ways, or both; the plan then takes the cheaper one:

* ``kernel(*ref_values, *inputs, **attrs) -> new value`` (or a tuple, one per ref): the plan stores it.
* ``update(*ref_arrays, *inputs, **attrs) -> None`` writes the ref arrays in place. The plan calls it in
  the apply phase, right on the state, when nobody else can see those arrays (no snapshot is alive,
  and the new value is not used in the same run); otherwise on a copy. It must not fail and keeps no
  reference to what it got. With ``blockwise=True`` it is called on matching flat slices of the refs
  and of every input with the shape of the first ref, one cache-sized block after the other and on
  several cores, with all other inputs (scalars) whole: so it must be elementwise. Write temporaries
  freely; blocks are small. An input that is a product of matrices (``factors``) and used by this op
  alone may be computed for each block (:mod:`asyncmon.graph.execution.late_products`).

The (single) output of a state op is the new value of its first ref, with that ref's spec as ``infer``
says. An optimizer's entry, whole::

    def _momentum(var, accum, lr, grad, momentum, *, use_nesterov):
        accum *= momentum
        accum += grad
        var -= lr * (grad + momentum * accum if use_nesterov else accum)

    register(OpDef("ApplyMomentum", None, _shape, refs=2, update=_momentum, blockwise=True))

    create_op("ApplyMomentum", (var, slot, lr, grad, momentum), {"use_nesterov": False})

Random ops set ``random=True``: ``create_op`` derives the key from the graph's seed and the attribute
``seed`` (int or None), and the kernel gets ``rng=`` (a ``numpy.random.Generator``, for this call only)
as a keyword, and no ``seed``. The generator's state belongs to the session: a run that fails draws
nothing.

Operators of :class:`~asyncmon.graph.core.node.Tensor` build these types:
 ``AddV2 Sub Mul RealDiv FloorDiv
FloorMod Pow MatMul Neg Abs Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalXor
LogicalNot`` (``RealDiv`` takes integers too and gives float64 for them, float32 up to 16 bits, as
``tf.truediv`` does). A list that contains tensors is converted with ``Pack`` (attribute ``axis``).
``StridedSlice`` is defined beside the operator, in :mod:`asyncmon.graph.core.indexing`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from asyncmon.graph.core.dtypes import DType
    from asyncmon.graph.core.node import Operation

__all__ = ["OpDef", "Shape", "Spec", "lookup", "register", "table"]

Shape = tuple[int | None, ...] | None
"""``None``: rank unknown. A ``None`` inside: that dimension is unknown."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What is known of a tensor before it is computed: dtype and shape.

    ``value`` is there for constants, so that a rule may look at, say, the target of a reshape. ``dims``
    holds the elements of an integer scalar (as a 1-tuple) or vector as far as they are known, so that a
    shape that was taken apart and packed again keeps its known dimensions; a rule that can say them
    passes ``dims=``.
    """

    dtype: DType
    shape: Shape
    value: NDArray[Any] | None = field(default=None, compare=False, repr=False)
    dims: tuple[int | None, ...] | None = field(default=None, compare=False, repr=False)

    def known_dims(self) -> tuple[int | None, ...] | None:
        """Return the integers this tensor holds, as far as they are known; None if nothing is."""
        if self.value is not None and self.value.ndim <= 1 and self.dtype.is_integer:
            return tuple(int(d) for d in np.atleast_1d(self.value))
        return self.dims


@dataclass(frozen=True, slots=True)
class OpDef:
    """One entry of the table. The module's docstring shows how to write one.

    Attributes:
        name: the op type, ``"MatMul"``.
        kernel: ``kernel(*arrays, **attrs)`` -> array, or a tuple for several outputs; pure. None for
            ops that the plan itself runs.
        infer: ``infer(*specs, **attrs)`` -> Spec or a tuple of them; ValueError or TypeError with a
            full sentence where inputs do not fit.
        gradient: ``gradient(op, *grads)`` -> one Tensor or None per input, built of ops. A grad is None
            where nothing flows back into that output (only for ops with several outputs).
        elementwise: each output element depends on the input elements it broadcasts from. The kernel
            accepts ``out=``, which may be one of its inputs.
        out: the kernel accepts ``out=``, an array of the output's shape and dtype that overlaps no
            input.
        aliases: the output may be an input, or a view of one.
        stateful: never folded into a constant, never deduplicated.
        random: the kernel gets ``rng=``.
        refs: how many leading inputs are variables that this op writes.
        update: the in-place form of a state op.
        blockwise: ``update`` works on flat slices.
        initializes: the refs need not be initialised, for they are not read.
        peeks: the refs are not written; the plan itself answers from the state.
        needs_run: ``kernel(run, op, *arrays)`` gets the run it is part of; for ops with subgraphs.
        changes: it changes what a session holds beside variables, such as a queue.
        foreign: the kernel does something outside of the engine, such as calling code of the user's:
            its errors are left as they are, and nothing is computed a second time.
        prompt: an awaiting kernel that does not look at the task it runs in, so that it may be begun
            without one: where it has not to wait, none is made.
        bind: ``bind(op)`` -> what this node is computed with where its static shapes allow something
            faster than the kernel: called with the same arrays, without attributes. None if not.
        multiplications: ``multiplications(*specs, **attrs)``, of all inputs and outputs -> how many
            there are in a product that the kernel cuts up where it is large.
        factors: ``factors(*arrays, **attrs)`` -> the two matrices that the output is the product of,
            for those who compute it row by row; where inputs have two dimensions.
        awaits: ``kernel(run, op, *arrays)`` is ``async def``; see :mod:`asyncmon.graph.awaiting`.
    """

    name: str
    kernel: Callable[..., Any] | None
    infer: Callable[..., Spec | tuple[Spec, ...]]
    gradient: Callable[..., Any] | None = None
    elementwise: bool = False
    out: bool = False
    aliases: bool = False
    stateful: bool = False
    random: bool = False
    refs: int = 0
    update: Callable[..., None] | None = None
    blockwise: bool = False
    initializes: bool = False
    peeks: bool = False
    needs_run: bool = False
    changes: bool = False
    awaits: bool = False
    prompt: bool = False
    foreign: bool = False
    bind: Callable[[Operation], Callable[..., Any] | None] | None = None
    multiplications: Callable[..., int] | None = None
    factors: Callable[..., tuple[Any, Any]] | None = None


table: dict[str, OpDef] = {}
"""All ops, by type name."""


def register(op_def: OpDef) -> OpDef:
    """Add an entry to the table.

    Raises:
        ValueError: the name is taken.
    """
    if op_def.name in table:
        raise ValueError(f"Op type {op_def.name!r} is registered already; give this one another name.")
    table[op_def.name] = op_def
    return op_def


def lookup(name: str) -> OpDef:
    """Return the entry of an op type.

    Raises:
        ValueError: there is none.
    """
    try:
        return table[name]
    except KeyError:
        raise ValueError(
            f"Op type {name!r} is not registered. Import the module that defines it."
        ) from None
