"""Catch Ctrl-C in a coroutine, where it arrives as a cancellation."""

from __future__ import annotations

import libcst as cst

from asyncmon.tf1.port.entry import Entry
from asyncmon.tf1.port.plan import Planner
from asyncmon.tf1.port.scopes import dotted

_CANCELLED = "asyncio.CancelledError"


def catches(planner: Planner, entry: Entry, handler: cst.ExceptHandler) -> bool:
    """Return whether a handler catches KeyboardInterrupt of statements that await."""
    names = [dotted(one) for one in _types(handler.type)]
    above = planner.tree.parent(handler)
    if "KeyboardInterrupt" not in names or _CANCELLED in names or not isinstance(above, cst.Try):
        return False
    holder = planner.tree.holder(above)
    moves = isinstance(holder, cst.Module) and bool(entry.name)
    return (moves or holder in planner.plan.functions) and any(
        planner.tree.holder(node) is holder and planner.tree.is_inside(node, above.body)
        for node in planner.awaiting()
    )


def with_cancellation(handler: cst.ExceptHandler) -> cst.ExceptHandler:
    """Return a handler that catches cancellations, too."""
    added = cst.Element(cst.parse_expression(_CANCELLED))
    kept = [cst.Element(one) for one in _types(handler.type)]
    made = cst.Tuple([*kept, added])
    return handler.with_changes(type=made, whitespace_after_except=cst.SimpleWhitespace(" "))


def _types(node: cst.BaseExpression | None) -> list[cst.BaseExpression]:
    if isinstance(node, cst.Tuple):
        return [item.value for item in node.elements]
    return [] if node is None else [node]
