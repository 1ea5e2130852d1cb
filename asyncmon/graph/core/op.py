"""The op table: an op is one record, found by its type name.

A record has functions for the values (``kernel``), for the specs of the outputs (``infer``) and for the
gradients (``gradient``). The plan handles order, transactions, memory and threads for all ops. There
are five kinds of records:

* :class:`OpDef`: a pure function of arrays. Most ops are one.
* :class:`RandomOpDef`: draws random numbers.
* :class:`VariableOpDef`: reads or writes variables.
* :class:`AwaitedOpDef`: a coroutine.
* :class:`ControlOpDef`: runs subgraphs.

A pure op::

    def _hypot_rule(x, y):
        if x.dtype is not y.dtype or x.shape != y.shape:
            raise ValueError(f"Hypot needs two tensors of one dtype and shape, got {x} and {y}")
        return Spec(x.dtype, x.shape)

    def _hypot_gradient(op, grad):
        x, y = op.inputs                       # tensors: a gradient is made of ops
        share = grad / op.outputs[0]
        return [share * x, share * y]          # one for each input, None for none

    register(OpDef("Hypot", np.hypot, _hypot_rule, _hypot_gradient, elementwise=True))

    def hypot(x, y, name=None):
        return create_op("Hypot", (x, y), None, name)

The update of an optimizer::

    def _descend(var, accum, rate, grad, *, momentum):
        accum *= momentum
        accum += grad
        var -= rate * accum

    def _descend_rule(var, accum, rate, grad, *, momentum):
        return Spec(var.dtype, var.shape)

    register(VariableOpDef("Descend", None, _descend_rule, refs=2, update=_descend, blockwise=True))

    def descend(var, accum, rate, grad, momentum, name=None):
        return create_op("Descend", (var, accum, rate, grad), {"momentum": momentum}, name)

Nodes (:mod:`asyncmon.graph.core.build`): ``create_op(type, inputs, attrs, name)`` adds an op with one
output, ``create_ops(...)`` one with several, ``create_operation(...)`` returns the node itself. Inputs
are converted to tensors; ``convert_pair(x, y, label)`` converts two operands so that a Python number
takes the dtype of the other one. ``kernel`` and ``infer`` get all attributes as keywords.

A kernel gets and returns numpy arrays. A 0-d value may be a numpy scalar (``np.float32``), so use
functions (``np.add(x, y)``, ``np.shape(x)``) not methods. A kernel never writes into its inputs.
Floating point warnings are off while kernels run.

Operators of :class:`~asyncmon.graph.core.node.Tensor` add these types: ``AddV2 Sub Mul RealDiv
FloorDiv FloorMod Pow MatMul Neg Abs Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalXor
LogicalNot StridedSlice BooleanMask`` (``RealDiv`` takes integers too and gives float64 for them,
float32 up to 16 bits, as ``tf.truediv`` does). A list that contains tensors is converted with ``Pack``
(attribute ``axis``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.shape import Shape


@dataclass(slots=True, unsafe_hash=True)  # never changed; frozen, it takes four times as long to make
class Spec:
    """The static properties of a tensor.

    Attributes:
        dtype: the element type.
        shape: the static shape, which may be partially known.
        value: the array of a constant.
        dims: the elements of an integer scalar (as a 1-tuple) or vector, None for an unknown one. Rules
            of ops on shapes propagate them, so that a shape that is split and packed again keeps its
            known dimensions.
    """

    dtype: DType
    shape: Shape
    value: NDArray[Any] | None = field(default=None, compare=False, repr=False)
    dims: tuple[int | None, ...] | None = field(default=None, compare=False, repr=False)

    def known_dims(self) -> tuple[int | None, ...] | None:
        """Return the elements of an integer scalar or vector; None if all of them are unknown."""
        if self.value is not None and self.value.ndim <= 1 and self.dtype.is_integer:
            return tuple(int(d) for d in np.atleast_1d(self.value))
        return self.dims


def constant_of(spec: Spec) -> NDArray[Any] | None:
    """Return the value if it is completely known."""
    known = spec.known_dims()
    if spec.value is not None or known is None or None in known:
        return spec.value
    return np.array(known).reshape(spec.shape or ())  # type: ignore[arg-type]  # no None left


NOT_DIFFERENTIABLE: Final = None
"""The ``gradient`` of an op that cannot be differentiated: gradients() raises LookupError."""


def ZERO(op: Any, *grads: Any) -> list[None]:
    """The ``gradient`` of an op that stops gradients."""
    return [None] * len(op.inputs)


def SAME(op: Any, grad: Any) -> list[Any]:
    """The ``gradient`` of an identity: a tensor or slices, unchanged."""
    return [grad]


@dataclass(frozen=True, slots=True, eq=False)
class OpRecord:
    """The fields of all kinds of records.

    Attributes:
        name: the op type, ``"MatMul"``.
        kernel: computes the outputs: an array, or a tuple for several outputs. Its arguments depend on
            the kind.
        infer: ``infer(*specs, **attrs)`` -> a new Spec or a tuple of them (the spec of an input would
            also pass on its value); ValueError or TypeError with a full sentence if inputs do not fit.
        gradient: ``gradient(op, *grads)`` -> one Tensor or None per input, built of ops; or
            :data:`NOT_DIFFERENTIABLE`, :func:`ZERO`, :func:`SAME`. With several outputs, a grad is None
            for an output without gradient.

    Each kind sets these:
        refs: the number of leading inputs that are variables.
        run_rule: replaces ``infer`` when shapes are fed, if ``infer`` rejects inputs that can run.
        stateful: a node runs each time, even if its result is constant or unused.
        foreign: it calls user code, whose errors are not wrapped. It never runs twice.
        awaits: the kernel is ``async def``.
        changes: it changes state of the session: variables, queues.
    """

    name: str
    kernel: Callable[..., Any] | None
    infer: Callable[..., Spec | tuple[Spec, ...]]
    gradient: Callable[..., Any] | None = NOT_DIFFERENTIABLE

    refs: int = field(default=0, init=False)
    run_rule: Callable[..., Spec | tuple[Spec, ...]] | None = field(default=None, init=False)
    stateful: bool = field(default=True, init=False)
    foreign: bool = field(default=False, init=False)
    awaits: bool = field(default=False, init=False)
    changes: bool = field(default=False, init=False)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpDef(OpRecord):
    """A pure op: ``kernel(*arrays, **attrs)``. With ``kernel=None`` its output must be fed.

    Attributes:
        elementwise: each output element depends on the input elements it broadcasts from. The kernel
            accepts ``out=``, which may be one of its inputs.
        out: the kernel accepts ``out=``, an array of the output's shape and dtype that overlaps no
            input.
        aliases: the output may be an input, or a view of one.
        stateful: see :class:`OpRecord`.
        foreign: likewise.
        run_rule: likewise.
        flops: ``flops(*specs, **attrs)``, of all inputs and outputs -> the number of multiplications
            of a product that the kernel splits over threads.
        direct: ``direct(*specs, **attrs)``, likewise -> a kernel for a small product of these specs,
            which asks for no replacement and no split; None: there is none.
    """

    elementwise: bool = False
    out: bool = False
    aliases: bool = False
    stateful: bool = False
    foreign: bool = False
    run_rule: Callable[..., Spec | tuple[Spec, ...]] | None = None
    flops: Callable[..., int] | None = None
    direct: Callable[..., Callable[..., Any] | None] | None = None


class RandomOpDef(OpRecord):
    """A random op: ``kernel(*arrays, rng=generator, **attrs)``.

    Its nodes have the attribute ``seed`` (int or None), which ``infer`` takes with a default and the
    kernel does not get: the key of the ``numpy.random.Generator`` is derived from it and the seed of
    the graph. The generator is valid during the call. Its state belongs to the session; a failed run
    does not advance it.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VariableOpDef(OpRecord):
    """An op on variables, its first ``refs`` inputs: a ``Variable`` each, or its ref tensor.

    A writing op has one or both of two forms; the plan takes the cheaper one. Its single output is the
    new value of the first ref, whose spec ``infer`` returns.

    * ``kernel(*ref_values, *inputs, **attrs)`` -> the new value, or a tuple with one per ref.
    * ``update(*ref_arrays, *inputs, **attrs)`` writes the arrays of the refs in place. These are copies
      if a snapshot holds the arrays of the state, or if the run uses the new value. It must not fail or
      keep a reference to an argument.

    Attributes:
        refs: the number of variables.
        update: the in-place form.
        blockwise: ``update`` is elementwise. It is called with matching flat slices of the refs and of
            all inputs with the shape of the first ref, in cache-sized blocks on several cores, and with
            all other inputs (scalars) whole. Temporaries stay small.
        changes: False for a read: ``kernel(value, *inputs, **attrs)`` gets the value of the variable,
            None if it is not initialised. Without a kernel, the output is the initialised value.
        initializes: the refs are not read, so they need not be initialised.
        aliases: the new value may be an input of the kernel.
    """

    refs: int = 1
    update: Callable[..., None] | None = None
    blockwise: bool = False
    changes: bool = True
    initializes: bool = False
    aliases: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AwaitedOpDef(OpRecord):
    """An async op: ``async def kernel(run, op, *arrays)``, with the run and the node.

    Attributes:
        nowait: the kernel does not depend on its task, so it may start without one; a task is created
            when it first waits.
        changes: see :class:`OpRecord`.
        foreign: likewise.
    """

    nowait: bool = False
    changes: bool = False
    foreign: bool = False
    awaits: bool = field(default=True, init=False)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ControlOpDef(OpRecord):
    """An op that runs the subgraphs in its attribute ``branches``.

    ``async def kernel(run, op, plans, arrays, state, iteration)`` returns outputs and the new state:
    a dict from slots to the values of the variables that the subgraphs read and write.

    Attributes:
        live: ``live(op, used)`` -> an :class:`asyncmon.graph.execution.records.Live`: the part that a
            plan computes if only these outputs are used, and its kernel. By default everything.
        loops: the number of runs of the subgraphs depends on values.
        awaits: an op of the subgraphs may wait; otherwise the kernel never waits.
    """

    live: Callable[..., Any] | None = None
    loops: bool = False
    awaits: bool = False


class _Table(dict[str, OpRecord]):
    def __missing__(self, name: str) -> OpRecord:
        raise ValueError(f"Op type {name!r} is not registered. Import the module that defines it.")


table = _Table()
"""All ops, by type name. Looking up an unknown name raises ValueError."""


def register(record: OpRecord) -> OpRecord:
    """Add a record to the table. ValueError if the name is taken."""
    if record.name in table:
        raise ValueError(f"Op type {record.name!r} is registered already; give this one another name.")
    table[record.name] = record
    return record
