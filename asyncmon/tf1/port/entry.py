"""The entry point of a module that awaits: ``asyncio.run`` or ``async def main()``; Ctrl-C in it."""

from __future__ import annotations

from typing import Any

import libcst as cst

from asyncmon.tf1.port import blocking
from asyncmon.tf1.port.calls import local_target
from asyncmon.tf1.port.kinds import Func
from asyncmon.tf1.port.plan import Planner
from asyncmon.tf1.port.scopes import bound_names, dotted, is_guard

_CANCELLED = "asyncio.CancelledError"
_NAMES = ("main", "async_main", "run_main", "main_")


class Entry:
    """Finds the statements of a module that await, and moves them into a coroutine.

    A single call of a function of the file is wrapped in ``asyncio.run``. Otherwise the body of
    ``if __name__ == "__main__":`` becomes ``main``, or all statements from the first one that awaits.
    Names that functions outside of ``main`` read, or that any function declares global, are declared
    global in ``main``.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.tree = planner.tree
        self.sites = planner.plan.sites
        self.body = list(self.tree.module.body)
        self.name = ""
        self.run: cst.CSTNode | None = None
        self.guard: cst.If | None = None
        if not self.sites:
            return
        holding = set(map(self.tree.top, self.sites))
        tops = [index for index, node in enumerate(self.body) if node in holding]
        self.first = tops[0]
        self.run = self._single_call()
        if self.run is not None:
            return
        guard = self.body[self.first]
        if len(tops) == 1 and isinstance(guard, cst.If) and is_guard(guard) and guard.orelse is None:
            self.guard = guard
        taken = self.tree.scopes[self.tree.module].names
        self.name = next(name for name in _NAMES if name not in taken)
        self._check()

    def _single_call(self) -> cst.CSTNode | None:
        """Return the only site if it is a call of a function of the file, outside of loops."""
        if len(self.sites) > 1:
            return None
        (site,) = self.sites
        if not isinstance(site, cst.Call):
            return None
        kinds = self.planner.flow.kinds(site.func)
        if not any(isinstance(kind, Func) and local_target(self.planner.flow, kind) for kind in kinds):
            return None
        node: cst.CSTNode | None = site
        while node is not None:
            if isinstance(node, cst.For | cst.While | cst.With | cst.ListComp | cst.DictComp):
                return None
            node = self.tree.parent(node)
        return site

    def _moved(self) -> list[cst.CSTNode]:
        return [self.guard] if self.guard is not None else list(self.body[self.first :])

    def _check(self) -> None:
        moved = set(self._moved())
        for node in self.tree.nodes:
            if self.tree.top(node) not in moved:
                continue
            if isinstance(node, cst.ImportStar):
                self.planner.note(node, f"`import *` is inside of `{self.name}` now: name what is used")
            if isinstance(node, cst.Call) and isinstance(self.tree.holder(node), cst.Module):
                kinds = self.planner.flow.kinds(node.func)
                if blocking.form(kinds, node) and self.planner.reach(node):
                    self.planner.plan.awaited.add(node)
            if isinstance(node, cst.Call) and dotted(node.func).endswith("app.run"):
                text = (
                    f"`{dotted(node.func)}` is inside of `{self.name}` now, which has a loop of its own"
                )
                self.planner.note(node, text)

    # -- the new text

    def wrapped(self, parts: list[list[Any]]) -> list[list[Any]]:
        """Return the statements of the module, part by part, with awaiting ones moved to ``main``."""
        call = cst.parse_statement(f"asyncio.run({self.name}())")
        gap = [cst.EmptyLine(indent=False), cst.EmptyLine(indent=False)]
        declared = self._declared()
        if self.guard is not None:
            index = self.first
            (guard,) = parts[index]
            main = self._main(guard.body, declared).with_changes(leading_lines=guard.leading_lines)
            body = cst.IndentedBlock(body=[call])
            parts[index] = [main, guard.with_changes(body=body, leading_lines=gap)]
            return parts
        statements = [node for part in parts[self.first :] for node in part]
        lines = list(statements[0].leading_lines)
        statements[0] = statements[0].with_changes(leading_lines=[])
        main = self._main(cst.IndentedBlock(body=statements), declared)
        main = main.with_changes(leading_lines=_two_blank(lines, first=self.first == 0))
        call = call.with_changes(leading_lines=gap)
        return [*parts[: self.first], [main, call]]

    def _main(self, block: Any, declared: list[str]) -> cst.FunctionDef:
        if declared:
            line = cst.parse_statement(f"global {', '.join(declared)}")
            block = block.with_changes(body=[line, *block.body])
        main = cst.FunctionDef(
            name=cst.Name(self.name),
            params=cst.Parameters(),
            body=block,
            asynchronous=cst.Asynchronous(),
        )
        return cst.ensure_type(main.visit(Blank()), cst.FunctionDef)

    def _declared(self) -> list[str]:
        """Return the names bound in ``main`` that must be declared global."""
        tree = self.tree
        root = tree.scopes[tree.module]
        moved = set(self._moved())
        mine: set[str] = set()
        others: set[str] = set()
        rebound: set[str] = set()
        for node in tree.nodes:
            inside = self.tree.top(node) in moved
            if isinstance(tree.holder(node), cst.Module):
                names = bound_names(node) if not isinstance(node, cst.CompFor) else []
                if isinstance(node, cst.FunctionDef | cst.ClassDef):
                    names = [node.name.value]
                if inside:
                    mine.update(names)
                else:
                    rebound.update(names)
            elif isinstance(node, cst.Name) and not inside and tree.binder(node) is root:
                others.add(node.value)
            if isinstance(node, cst.Global):
                others |= {item.name.value for item in node.names}
        others |= {name for name in mine & rebound if not self._is_bound_first(name, moved)}
        return sorted(mine & others)

    def _is_bound_first(self, name: str, moved: set[cst.CSTNode]) -> bool:
        """Return whether the moved statements use a name only inside of loops over it."""
        root = self.tree.scopes[self.tree.module]
        for node in self.tree.nodes:
            if not isinstance(node, cst.Name) or node.value != name or self.tree.top(node) not in moved:
                continue
            if self.tree.binder(node) is root and not self._in_loop_over(name, node):
                return False
        return True

    def _in_loop_over(self, name: str, node: cst.CSTNode) -> bool:
        child, above = node, self.tree.parent(node)
        while above is not None:
            inside = isinstance(above, cst.For | cst.CompFor) and child is not above.iter
            if inside and name in bound_names(above) and child is not getattr(above, "orelse", None):
                return True
            child, above = above, self.tree.parent(above)
        return False


class Blank(cst.CSTTransformer):
    """Removes the indentation of blank lines."""

    def leave_EmptyLine(self, original: cst.EmptyLine, updated: cst.EmptyLine) -> cst.EmptyLine:
        if updated.comment is None:
            return updated.with_changes(indent=False, whitespace=cst.SimpleWhitespace(""))
        return updated


def _two_blank(lines: list[cst.EmptyLine], *, first: bool) -> list[cst.EmptyLine]:
    while lines and lines[0].comment is None:
        lines.pop(0)
    blank = [] if first else [cst.EmptyLine(indent=False), cst.EmptyLine(indent=False)]
    return [*blank, *lines]


# --- Ctrl-C, which arrives in a coroutine as a cancellation ----------------------------------------
def catches_interrupts(planner: Planner, entry: Entry, handler: cst.ExceptHandler) -> bool:
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
