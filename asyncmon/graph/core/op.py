"""The op table: an op is one record, found by its type name.

A record says how values are computed (``kernel``), what is known of the outputs without values
(``infer``) and how gradients flow (``gradient``). The plan does everything else for all ops: order,
transactions, memory, threads. There are five kinds of record, and the plan has one way to run each:

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
        return [share * x, share * y]          # one for each input, None where none flows

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

Building nodes (:mod:`asyncmon.graph.core.build`): ``create_op(type, inputs, attrs, name) -> Tensor``
for an op with one output, ``create_ops(...) -> tuple[Tensor, ...]`` for one with several,
``create_operation(...) -> Operation`` for the node itself (an op without outputs). Inputs that are not
tensors are converted; ``convert_pair(x, y, label)`` converts two operands where a Python number takes
the dtype of the other one. All attributes are passed to ``kernel`` and ``infer`` as keywords.

Values. A kernel gets and returns numpy arrays. A 0-d value may be a numpy scalar (``np.float32``), so
use functions (``np.add(x, y)``, ``np.shape(x)``) rather than methods where that matters. A kernel never
writes into its inputs. Floating point warnings are off while kernels run.

Operators of :class:`~asyncmon.graph.core.node.Tensor` build these types: ``AddV2 Sub Mul RealDiv
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
    """What is known of a tensor before it is computed.

    Attributes:
        dtype: the element type.
        shape: as far as it is known.
        value: the array, of a constant.
        dims: the elements of an integer scalar (as a 1-tuple) or vector, None for an unknown one. The
            rules of ops on shapes give them, so that a shape that is taken apart and packed again keeps
            its known dimensions.
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


def constant_of(spec: Spec) -> NDArray[Any] | None:
    """Return the value where all of it is known."""
    known = spec.known_dims()
    if spec.value is not None or known is None or None in known:
        return spec.value
    return np.array(known).reshape(spec.shape or ())  # type: ignore[arg-type]  # no None left


WAITS: Final = object()
"""What the ``attempt`` of an awaited op returns where the op would have to wait."""

NOT_DIFFERENTIABLE: Final = None
"""The ``gradient`` of an op whose gradient is an error to ask for."""


def ZERO(op: Any, *grads: Any) -> list[None]:
    """The ``gradient`` of an op that nothing flows back through."""
    return [None] * len(op.inputs)


def SAME(op: Any, grad: Any) -> list[Any]:
    """The ``gradient`` of an op that hands its one input on: as it is, be it a tensor or slices."""
    return [grad]


@dataclass(frozen=True, slots=True, eq=False)
class OpRecord:
    """What the records of all kinds have.

    Attributes:
        name: the op type, ``"MatMul"``.
        kernel: computes the outputs: an array, or a tuple for several outputs. Each kind says what it
            is called with.
        infer: ``infer(*specs, **attrs)`` -> a fresh Spec (an input's own would say that the output has
            its value) or a tuple of them; ValueError or TypeError with a full sentence where inputs do
            not fit.
        gradient: ``gradient(op, *grads)`` -> one Tensor or None per input, built of ops; or
            :data:`NOT_DIFFERENTIABLE`, :func:`ZERO`, :func:`SAME`. A grad is None where nothing flows
            back into that output (only for ops with several outputs).

    Each kind has its own values of these:
        refs: how many leading inputs are variables rather than values.
        run_rule: stands for ``infer`` once shapes are fed, where that refuses what can run.
        stateful: a node is run each time, also where its result is constant or not used.
        foreign: it calls code of the user's, whose errors are left as they are. Never run twice.
        awaits: the kernel is ``async def``.
        changes: it changes what a session holds: variables, queues.
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
    """A pure op: ``kernel(*arrays, **attrs)``. ``kernel=None``: its output can only be fed.

    Attributes:
        elementwise: each output element depends on the input elements it broadcasts from. The kernel
            accepts ``out=``, which may be one of its inputs.
        out: the kernel accepts ``out=``, an array of the output's shape and dtype that overlaps no
            input.
        aliases: the output may be an input, or a view of one.
        stateful: see :class:`OpRecord`.
        foreign: likewise.
        run_rule: likewise.
        flops: ``flops(*specs, **attrs)``, of all inputs and outputs -> the multiplications of a matrix
            product that the kernel splits up where it is large.
    """

    elementwise: bool = False
    out: bool = False
    aliases: bool = False
    stateful: bool = False
    foreign: bool = False
    run_rule: Callable[..., Spec | tuple[Spec, ...]] | None = None
    flops: Callable[..., int] | None = None


class RandomOpDef(OpRecord):
    """An op that draws: ``kernel(*arrays, rng=generator, **attrs)``.

    Its nodes have the attribute ``seed`` (int or None), which ``infer`` takes with a default and the
    kernel does not get: the key of the ``numpy.random.Generator`` is derived from it and the graph's
    seed. The generator is for this call only. Its state belongs to the session: a run that fails draws
    nothing.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VariableOpDef(OpRecord):
    """An op on variables, its first ``refs`` inputs: pass the ``Variable``, or its ref tensor.

    A writing op has one of two forms, or both; the plan then takes the cheaper one. Its (single) output
    is the new value of the first ref, with that ref's spec as ``infer`` says.

    * ``kernel(*ref_values, *inputs, **attrs)`` -> the new value, or a tuple with one per ref.
    * ``update(*ref_arrays, *inputs, **attrs)`` writes the refs' arrays in place: those of the state
      where nothing else refers to them (no snapshot is alive, and the run does not use the new value),
      otherwise copies. It must not fail and keeps no reference to an argument.

    Attributes:
        refs: how many variables there are.
        update: the form in place.
        blockwise: ``update`` is elementwise, and is called on matching flat slices of the refs and of
            every input with the shape of the first ref, one cache-sized block after the other and on
            several cores, with all other inputs (scalars) whole. Temporaries are small.
        changes: False for a read: ``kernel(value, *inputs, **attrs)`` gets the value of the one
            variable, None where it is not initialised. Without a kernel the output is that value,
            which must be there.
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
    """A coroutine: ``async def kernel(run, op, *arrays)``, with the run and the node it is called for.

    Attributes:
        nowait: the kernel makes no use of the task it runs in, so it may be started without one. A task
            is made where it waits.
        attempt: ``attempt(run, op, *arrays)`` -> the outputs, or :data:`WAITS` where it would have to
            wait; it has done nothing then, and the kernel is awaited.
        changes: see :class:`OpRecord`.
        foreign: likewise.
    """

    nowait: bool = False
    attempt: Callable[..., Any] | None = None
    changes: bool = False
    foreign: bool = False
    awaits: bool = field(default=True, init=False)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ControlOpDef(OpRecord):
    """An op that runs the subgraphs in its attribute ``branches``.

    ``async def kernel(run, op, plans, arrays, state, iteration)`` returns outputs and the new state:
    a dict from slots to the values of the variables that the subgraphs read and write.

    Attributes:
        live: ``live(op, used)`` -> an :class:`asyncmon.graph.execution.records.Live`, what a plan
            computes where only these of its outputs are used, and the kernel for that. By default all.
        loops: how often the subgraphs are run is not known beforehand.
        awaits: something in the subgraphs waits, else the kernel never does.
    """

    live: Callable[..., Any] | None = None
    loops: bool = False
    awaits: bool = False


class _Table(dict[str, OpRecord]):
    def __missing__(self, name: str) -> OpRecord:
        raise ValueError(f"Op type {name!r} is not registered. Import the module that defines it.")


table = _Table()
"""All ops, by type name. A name that is not there is a ValueError."""


def register(record: OpRecord) -> OpRecord:
    """Add a record to the table.

    Raises:
        ValueError: the name is taken.
    """
    if record.name in table:
        raise ValueError(f"Op type {record.name!r} is registered already; give this one another name.")
    table[record.name] = record
    return record
