"""Instructions that are more than a call of a kernel: what goes on behind ``Kind.GENERAL``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core.op import VariableOpDef

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from asyncmon.graph.core.node import Operation
    from asyncmon.graph.execution.plan import Plan
    from asyncmon.graph.execution.run_state import Run

__all__ = [
    "awaiting_step",
    "awaiting_subgraph_step",
    "checked_step",
    "copy_step",
    "random_step",
    "subgraph_step",
]

Registers = list[Any]
Step = "Callable[[Run, Registers], None]"
Slots = "Sequence[tuple[int, int]]"


def random_step(
    kernel: Any, op: Operation, inputs: Sequence[int], outputs: Sequence[int], iteration: int
) -> Any:
    """Call a kernel with the generator of its op, for the iteration in that register."""
    key = op.rng_key
    assert key is not None

    def step(run: Run, registers: Registers) -> None:
        value = kernel(*[registers[i] for i in inputs], rng=run.rng(key, registers[iteration]))
        _store(registers, outputs, value)

    return step


def copy_step(
    op: Operation, update: Any, values: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]
) -> Any:
    """Do an in-place update on copies, for its result is needed before the run commits."""
    assert isinstance(op.op_def, VariableOpDef)
    blockwise = op.op_def.blockwise

    def step(_run: Run, registers: Registers) -> None:
        arrays = [np.array(registers[i]) for i in values]
        given = [registers[i] for i in inputs]
        if blockwise and not arrays[0].ndim:
            # Of 0-d arrays ufuncs make scalars, which cannot be written into.
            update(*[array.reshape(1) for array in arrays], *[np.reshape(x, 1) for x in given])
        else:
            update(*arrays, *given)
        for register, array in zip(outputs, arrays, strict=True):
            registers[register] = array

    return step


def subgraph_step(
    op: Operation,
    plans: Sequence[Plan],
    seen: Any,
    inputs: Sequence[int],
    outputs: Sequence[int],
    new: Any,
    iteration: int,
) -> Any:
    """Run an op made of subgraphs.

    ``kernel(run, op, plans, arrays, state, iteration)`` returns outputs and the new state, a dict from
    slots to values of the variables that the subgraphs touch. The iteration is that of the loop around.
    """
    kernel: Any = op.op_def.kernel

    def step(run: Run, registers: Registers) -> None:
        state = {slot: registers[i] for slot, i in seen}
        arrays = [registers[i] for i in inputs]
        values, after = kernel(run, op, plans, arrays, state, registers[iteration])
        _take(registers, outputs, values, new, after)

    return step


def awaiting_subgraph_step(
    op: Operation,
    plans: Sequence[Plan],
    seen: Any,
    inputs: Sequence[int],
    outputs: Sequence[int],
    new: Any,
    iteration: int,
) -> Any:
    """The same for a kernel that is ``async def``."""
    kernel: Any = op.op_def.kernel

    async def step(run: Run, registers: Registers) -> None:
        state = {slot: registers[i] for slot, i in seen}
        arrays = [registers[i] for i in inputs]
        values, after = await kernel(run, op, plans, arrays, state, registers[iteration])
        _take(registers, outputs, values, new, after)

    return step


def awaiting_step(op: Operation, inputs: Sequence[int], outputs: Sequence[int]) -> Any:
    """Await ``kernel(run, op, *arrays)``."""
    kernel: Callable[..., Coroutine[Any, Any, Any]] | None = op.op_def.kernel
    assert kernel is not None

    async def step(run: Run, registers: Registers) -> None:
        _store(registers, outputs, await kernel(run, op, *[registers[i] for i in inputs]))

    return step


def checked_step(awaited: Any, before: Any, after: Any) -> Any:
    """Await a step, and call these, if they are not None, before and after it."""
    if before is None and after is None:
        return awaited

    async def step(run: Run, registers: Registers) -> None:
        if before is not None:
            before(run, registers)
        await awaited(run, registers)
        if after is not None:
            after(run, registers)

    return step


def _store(registers: Registers, outputs: Sequence[int], value: Any) -> None:
    if len(outputs) == 1:
        registers[outputs[0]] = value
    elif outputs:
        for register, item in zip(outputs, value, strict=True):
            registers[register] = item


def _take(registers: Registers, outputs: Sequence[int], values: Any, new: Any, after: Any) -> None:
    for register, value in zip(outputs, values, strict=True):
        registers[register] = value
    for slot, register in new:
        registers[register] = after[slot]
