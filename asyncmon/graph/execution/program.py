"""Instructions, and the loop that executes them.

Values are in numbered registers. An instruction is ``(kind, function, a, b, out, op)``; code is a list
in which every register is set before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from enum import IntEnum
from typing import Any, NoReturn

from asyncmon.errors import InvalidArgumentError, OpError
from asyncmon.graph.core.node import Operation
from asyncmon.system.error_text import add_note, text_of

Registers = list[Any]
Instruction = tuple[int, Any, Any, Any, Any, "Operation | None"]
"""Kind, function (None in a ``FREE``), two inputs, output, node: the kind says what each is."""

Step = Callable[[Any, Registers], None]
"""Called with the run and its registers; ``AwaitedStep``: awaited, and returns the node's outputs."""
AwaitedStep = Callable[[Any, Registers], Coroutine[Any, Any, Any]]


class Kind(IntEnum):
    """What an instruction does with its function ``f`` and its registers."""

    FREE = 0  # free the registers in a
    UNARY = 1  # out = f(a)
    BINARY = 2  # out = f(a, b)
    NARY = 3  # out = f(*a)
    MULTI = 4  # *out = f(*a)
    GENERAL = 5  # f(run, registers), which reads the registers in a
    UNARY_INTO = 6  # out = f(a, out=out): the array in out is written, unless it is None
    BINARY_INTO = 7  # out = f(a, b, out=out)
    NARY_INTO = 8  # out = f(*a, out=out)


# Bound once: enum members are slow to look up, and a plan may have 100,000 instructions.
_OF_ONE = (Kind.UNARY, Kind.UNARY_INTO)
_OF_TWO = (Kind.BINARY, Kind.BINARY_INTO)
_MULTI = Kind.MULTI


def inputs_of(instruction: Instruction) -> tuple[int, ...]:
    """Return the registers that an instruction reads or frees."""
    kind, _function, a, b, _out, _op = instruction
    if kind in _OF_TWO:
        return (a, b)
    if kind in _OF_ONE:
        return (a,)
    return tuple(a)


def outputs_of(instruction: Instruction) -> tuple[int, ...]:
    """Return the registers that an instruction sets; none for ``GENERAL``."""
    kind, out = instruction[0], instruction[4]
    return tuple(out) if kind == _MULTI else () if out is None else (out,)


def execute(code: Iterable[Instruction], registers: Registers, run: Any) -> None:
    """Execute instructions, for a run or None. The caller has disabled floating point warnings."""
    op = None
    try:
        for kind, function, a, b, out, op in code:  # noqa: B007  # op: for the error
            if kind == 7:
                registers[out] = function(registers[a], registers[b], out=registers[out])
            elif kind == 6:
                registers[out] = function(registers[a], out=registers[out])
            elif kind == 2:
                registers[out] = function(registers[a], registers[b])
            elif kind == 1:
                registers[out] = function(registers[a])
            elif kind == 3:
                registers[out] = function(*[registers[i] for i in a])
            elif kind == 8:
                registers[out] = function(*[registers[i] for i in a], out=registers[out])
            elif kind == 0:
                for i in a:
                    registers[i] = None
            elif kind == 5:
                function(run, registers)
            else:
                values = function(*[registers[i] for i in a])
                for i, value in zip(out, values, strict=True):
                    registers[i] = value
    except Exception as error:
        raise_located(error, op)


def raise_located(error: Exception, op: Operation | None) -> NoReturn:
    """Re-raise the current error with the name of its node."""
    found = located(error, op)
    try:
        if found is error:
            raise error
        raise found from error
    finally:
        del error, found  # cycles with this frame would keep all arrays alive


def located(error: Exception, op: Operation | None) -> Exception:
    """Add the node to an error. Errors of numpy about values become InvalidArgumentError."""
    if op is None or getattr(error, "_asyncmon_located", False):
        return error
    where = f"at node {op.name!r} ({op.type})"
    if (
        isinstance(error, ValueError | TypeError | IndexError | ZeroDivisionError)
        and not op.op_def.foreign
    ):
        error = InvalidArgumentError(f"{text_of(error)} [{where}]")
    else:
        is_located = isinstance(error, OpError) or op.created_at is None  # by the session
        add_note(error, f"asyncmon: {where}" + ("" if is_located else f", created at {op.created_at}"))
    if isinstance(error, OpError) and error.op is None:
        error.op = op
    error.__dict__["_asyncmon_located"] = True  # only the innermost program adds it
    return error
