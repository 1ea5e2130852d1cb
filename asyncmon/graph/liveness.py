"""What the code of a plan need not compute, and when it can forget a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncmon.graph.plan import Kind

if TYPE_CHECKING:
    from collections.abc import Collection

    from asyncmon.graph.plan import Instruction

__all__ = ["with_frees", "without_dead_code"]


def without_dead_code(code: list[Instruction], needed: Collection[int]) -> list[Instruction]:
    """Leave out pure instructions whose results nobody uses. Constant folding leaves some behind."""
    used = set(needed)
    kept = []
    for instruction in reversed(code):
        kind, _function, _a, _b, out, op = instruction
        outputs = out if kind == Kind.MULTI else (out,)
        pure = kind != Kind.GENERAL and op is not None and not op.op_def.stateful and not op.op_def.refs
        if pure and not any(register in used for register in outputs):
            continue
        used.update(_inputs(instruction))
        kept.append(instruction)
    kept.reverse()
    return kept


def with_frees(code: list[Instruction], large: set[int]) -> list[Instruction]:
    """Forget each of these registers right after its last use."""
    result: list[Instruction] = []
    for instruction in reversed(code):
        last = tuple(dict.fromkeys(i for i in _inputs(instruction) if i in large))
        if last:
            result.append((int(Kind.FREE), None, last, None, None, None))
            large.difference_update(last)
        result.append(instruction)
    result.reverse()
    return result


def _inputs(instruction: Instruction) -> tuple[int, ...]:
    kind, _function, a, b, _out, _op = instruction
    if kind == Kind.UNARY:
        return (a,)
    if kind == Kind.BINARY:
        return (a, b)
    return tuple(a)
