"""Instructions beyond the call of a kernel, and awaited nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.execution.feeds import missing_feed
from asyncmon.graph.execution.program import AwaitedStep, Instruction, Registers, Step, raise_located
from asyncmon.graph.execution.run import Run

Slots = Sequence[tuple[int, int]]

_OF_SCALARS = {  # bit-identical for numpy scalars, in a tenth of the time
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.negative: operator.neg,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}


def of_scalars(function: Any, inputs: Sequence[Tensor]) -> Any:
    """Return a kernel, or its faster form if all inputs are numpy scalars."""
    if function in _OF_SCALARS:
        for tensor in inputs:
            if tensor.spec.shape != () or tensor.spec.dtype.numpy.kind not in "biuf":
                return function
        return _OF_SCALARS[function]
    return function


def random_step(
    kernel: Any, op: Operation, inputs: Sequence[int], outputs: Sequence[int], iteration: int
) -> Step:
    """Call a kernel with the generator of its op, for the iteration in that register."""
    key = op.rng_key
    assert key is not None, "create_op derives it"

    def step(run: Run, registers: Registers) -> None:
        value = kernel(*[registers[i] for i in inputs], rng=run.rng(key, registers[iteration]))
        _store(registers, outputs, value)

    return step


def copy_step(
    update: Any, refs: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], *, blockwise: bool
) -> Step:
    """Apply an update to copies: its result is needed before the commit."""

    def step(_run: Run, registers: Registers) -> None:
        arrays = [np.array(registers[i]) for i in refs]
        given = [registers[i] for i in inputs]
        if blockwise and not arrays[0].ndim:
            # Ufuncs turn 0-d arrays into scalars, which are read-only.
            update(*[array.reshape(1) for array in arrays], *[np.reshape(x, 1) for x in given])
        else:
            update(*arrays, *given)
        for register, array in zip(outputs, arrays, strict=True):
            registers[register] = array

    return step


def missing_step(tensor: Tensor) -> Step:
    """Raise the error for a placeholder in a branch or loop body that runs: it cannot be fed."""

    def step(_run: Run, _registers: Registers) -> None:
        raise missing_feed(tensor)

    return step


def awaited_step(op: Operation, inputs: Sequence[int]) -> AwaitedStep:
    """Await ``kernel(run, op, *arrays)``."""
    kernel: Any = op.op_def.kernel
    return lambda run, registers: kernel(run, op, *[registers[i] for i in inputs])


def threaded_step(op: Operation, inputs: Sequence[int]) -> AwaitedStep:
    """Await the call of a node's kernel in a thread."""
    kernel: Any = op.op_def.kernel

    @np.errstate(all="ignore")
    def call(arrays: Sequence[Any]) -> Any:
        return kernel(*arrays, **op.attrs)

    return lambda run, registers: run.in_thread(partial(call, [registers[i] for i in inputs]), run)


def subgraph_step(
    kernel: Any,
    op: Operation,
    plans: Sequence[Any],
    state: Slots,
    inputs: Sequence[int],
    written: Slots,
    iteration: int,
) -> AwaitedStep:
    """Await the kernel of a :class:`~asyncmon.graph.core.op.ControlOpDef`.

    Args:
        kernel: the kernel.
        op: the node, with its ``inputs``.
        plans: the plans of its subgraphs, with the read variables ``state`` and the ``written`` ones.
        iteration: the register with the iteration of the loop around.
    """

    async def step(run: Run, registers: Registers) -> Any:
        before = {slot: registers[i] for slot, i in state}
        arrays = [registers[i] for i in inputs]
        values, after = await kernel(run, op, plans, arrays, before, registers[iteration])
        for slot, register in written:
            registers[register] = after[slot]
        return values[0] if len(values) == 1 else values

    return step


def not_waiting(awaited: AwaitedStep, outputs: Sequence[int]) -> Step:
    """Return an awaited step that never suspends as a plain function, which sets the outputs."""

    def step(run: Run, registers: Registers) -> None:
        try:
            awaited(run, registers).send(None)
        except StopIteration as end:
            _store(registers, outputs, end.value)
            return
        raise AssertionError("a node waits that is not awaited")

    return step


def located_step(
    op: Operation, code: Sequence[Instruction], outputs: Sequence[int]
) -> Callable[[Run, Registers], Coroutine[Any, Any, None]]:
    """Execute the code of an awaited node: its step, and checks of shapes around it.

    Args:
        op: the node, for errors and traces.
        code: ``GENERAL`` instructions.
        outputs: the node's registers, which it sets.
    """

    steps = [instruction[1] for instruction in code]

    async def step(run: Run, registers: Registers) -> None:
        start = 0.0 if run.trace is None else perf_counter()
        try:
            for one in steps:
                waits = one(run, registers)
                if waits is not None:
                    _store(registers, outputs, await waits)
        except Exception as error:
            raise_located(error, op)
        if run.trace is not None:
            run.note(op, start, [registers[i] for i in outputs])

    return step


def _store(registers: Registers, outputs: Sequence[int], value: Any) -> None:
    if len(outputs) == 1:
        registers[outputs[0]] = value
    elif outputs:
        for register, item in zip(outputs, value, strict=True):
            registers[register] = item
