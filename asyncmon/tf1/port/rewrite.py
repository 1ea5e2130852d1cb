"""Apply a plan to the text. Code that does not change keeps its formatting."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import libcst as cst

import asyncmon.tf1 as tf
from asyncmon.tf1.port import blocking, catalogue, imports
from asyncmon.tf1.port.entry import Blank, Entry, catches_interrupts, with_cancellation
from asyncmon.tf1.port.kinds import Foreign, Func, Instance, Method, Real, Symbol
from asyncmon.tf1.port.plan import ENTERING, Planner, is_manager
from asyncmon.tf1.port.scopes import bound_names, dotted
from asyncmon.tf1.port.threads import Threads

ASYNC = cst.Asynchronous()

KEYWORDS = {"threads": "tasks", "ignore_live_threads": "ignore_live_tasks"}
"""Renamed arguments of ``Coordinator.join`` and ``Supervisor.stop``."""

NO_OPS = frozenset({"disable_v2_behavior", "disable_eager_execution", "disable_v2_tensorshape"})

_NEW = """async def __new__(cls, *args, **kwargs):
    self = super().__new__(cls)
    await self.__init__(*args, **kwargs)
    return self
"""
"""Added to a class whose ``__init__`` awaits, for ``await Class(...)``."""


class Rewriter(cst.CSTTransformer):
    """Applies a plan to the tree."""

    def __init__(self, planner: Planner, threads: Threads, entry: Entry) -> None:
        super().__init__()
        self.planner = planner
        self.plan = planner.plan
        self.flow = planner.flow
        self.tree = planner.tree
        self.threads = threads
        self.entry = entry
        self.top: dict[cst.CSTNode, Any] = {}
        self.private = self._private()
        """Names of private modules that become names below ``tf``."""
        self.needed: set[str] = set()
        """Modules to import."""

    def _private(self) -> dict[str, str]:
        root = self.tree.scopes[self.tree.module]
        found: dict[str, str] = {}
        for node in self.tree.nodes:
            above = self.tree.parent(node)
            if not isinstance(node, cst.ImportAlias) or above is None:
                continue
            if self.tree.scope(node) is root and (pair := imports.private_alias(above, node)):
                found[pair[0]] = pair[1]
        if not self.planner_root(found):
            return {}
        for node in self.tree.nodes:
            if isinstance(node, cst.Name) and node.value in found and not self.tree.in_import(node):
                outer = self.tree.parent(node)
                plain = isinstance(outer, cst.Attribute) and outer.value is node
                if (
                    not plain
                    and not isinstance(outer, cst.AsName)
                    and self.tree.binder(node) is not None
                ):
                    del found[node.value]
        return found

    # -- expressions

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        if original in self.threads.created:
            self.needed.add("asyncio")
            return self.threads.task(original, updated)
        made = self._renamed_call(original, updated)
        if original in self.threads.joined:
            if made.args:
                self.needed.add("asyncio")
            return self._awaited(original, self.threads.join(made))
        if original in self.threads.waited:
            self.needed.add("asyncio")
            func = cst.parse_expression(blocking.TO_THREAD)
            called = cst.Call(func=func, args=[cst.Arg(made.func), *made.args])
            return self._awaited(original, called)
        if original in self.threads.alive:
            return self.threads.is_alive(made)
        if original in self.plan.nexts:
            made = made.with_changes(func=cst.Name("anext"))
        if original in self.plan.awaited:
            if original is self.entry.run:
                self.needed.add("asyncio")
                return cst.Call(func=cst.parse_expression("asyncio.run"), args=[cst.Arg(made)])
            return self._awaited(original, made)
        if original in self.plan.started:
            start = cst.Call(func=cst.Attribute(value=made, attr=cst.Name("start")))
            return self._awaited(original, start)
        return made

    def _renamed_call(self, original: cst.Call, call: cst.Call) -> cst.Call:
        kinds = self.flow.kinds(original.func)
        paths = {kind.path for kind in kinds if isinstance(kind, Foreign)}
        made = blocking.form(kinds, original) if original in self.plan.awaited else ""
        if made:
            self.needed.add("asyncio")
            args = call.args if made == blocking.SLEEP else [cst.Arg(call.func), *call.args]
            return call.with_changes(func=cst.parse_expression(made), args=args)
        if "absl.app.run" in paths and (name := self.planner_root()) and self._runs_async(original):
            return call.with_changes(func=cst.parse_expression(f"{name}.app.run"))
        if any(isinstance(kind, Real | Method) for kind in kinds) and any(
            arg.keyword is not None and catalogue.is_sum(arg) for arg in original.args
        ):
            return call.with_changes(args=_without(call.args, "aggregation_method"))
        if any(isinstance(k, Method) and k.name in ("join", "stop", "Stop") for k in kinds):
            args = [_renamed_keyword(arg) for arg in call.args]
            return call.with_changes(args=args)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "create_tasks":
            return call.with_changes(args=_without(call.args, "daemon"))
        return call

    def _runs_async(self, call: cst.Call) -> bool:
        given = self.flow.kinds(call.args[0].value) if call.args else ()
        return any(self.planner.is_coroutine(kind.node) for kind in given if isinstance(kind, Func))

    def planner_root(self, without: Collection[str] = ()) -> str:
        """Return the module's name for ``asyncmon.tf1``, or ""."""
        root = self.tree.scopes[self.tree.module]
        for (scope, name), kinds in self.flow.names.items():
            ours = any(isinstance(k, Real) and k.value is tf for k in kinds)
            if scope is root and ours and name not in without:
                return name
        return ""

    def _awaited(self, original: cst.Call, call: cst.BaseExpression) -> cst.BaseExpression:
        outer = self.tree.parent(original)
        tight = (
            isinstance(outer, cst.Attribute)
            or (isinstance(outer, cst.Subscript) and outer.value is original)
            or (isinstance(outer, cst.Call) and outer.func is original)
        )
        lpar: Sequence[Any] = getattr(call, "lpar", ())
        rpar: Sequence[Any] = getattr(call, "rpar", ())
        if tight and not lpar:
            lpar, rpar = [cst.LeftParen()], [cst.RightParen()]
        if isinstance(call, cst.Call):
            call = call.with_changes(lpar=[], rpar=[])
        return cst.Await(expression=call, lpar=lpar, rpar=rpar)

    def leave_Attribute(self, original: cst.Attribute, updated: cst.Attribute) -> cst.BaseExpression:
        name = original.attr.value
        if self.tree.in_import(original):
            return updated
        if any(
            isinstance(k, Real) and catalogue.is_alias(k.value, name)
            for k in self.flow.kinds(original.value)
        ):
            return updated.value
        inner = original.value
        if isinstance(inner, cst.Name) and inner.value in self.private and self.tree.binder(inner):
            home = f"{self.planner_root(self.private)}.{self.private[inner.value]}".rstrip(".")
            updated = updated.with_changes(value=cst.parse_expression(home))
        compat = name == "v1" and dotted(original).endswith(".compat.v1")
        if compat and any(isinstance(k, Real) and k.value is tf for k in self.flow.kinds(original)):
            inner = updated.value
            assert isinstance(inner, cst.Attribute), "it is name.compat.v1"
            return inner.value
        if name in catalogue.RENAMED and self._is_ours(original.value, name):
            return updated.with_changes(attr=updated.attr.with_changes(value=catalogue.RENAMED[name]))
        return updated

    def _is_ours(self, node: cst.BaseExpression, name: str) -> bool:
        kinds = self.flow.kinds(node)
        if not kinds:
            return not name.startswith("__")
        return any(
            isinstance(kind, Real | Symbol)
            or (
                isinstance(kind, Instance)
                and isinstance(kind.of, type)
                and catalogue.renamed(kind.of, name) != name
            )
            for kind in kinds
        )

    def leave_Arg(self, original: cst.Arg, updated: cst.Arg) -> cst.Arg:
        value = updated.value
        if original.value in self.plan.collected and isinstance(value, cst.GeneratorExp):
            value = cst.ListComp(elt=value.elt, for_in=value.for_in)
        elif original.value in self.plan.collected:
            each = cst.CompFor(target=cst.Name("item"), iter=value, asynchronous=ASYNC)
            value = cst.ListComp(cst.Name("item"), each)
        return updated.with_changes(value=value)

    # -- loops, blocks, functions

    def leave_CompFor(self, original: cst.CompFor, updated: cst.CompFor) -> cst.CompFor:
        if original in self.plan.loops:
            return updated.with_changes(asynchronous=ASYNC)
        return updated

    def leave_For(self, original: cst.For, updated: cst.For) -> Any:
        if original in self.threads.dropped:
            return cst.RemoveFromParent()
        if original in self.plan.loops:
            return updated.with_changes(asynchronous=ASYNC)
        return updated

    def leave_With(self, original: cst.With, updated: cst.With) -> cst.With:
        if original not in self.plan.withs:
            return updated
        flags = [self.planner.is_entered(item.item) for item in original.items]
        if all(flags):
            return updated.with_changes(asynchronous=ASYNC)
        groups: list[tuple[bool, list[cst.WithItem]]] = []
        for flag, item in zip(flags, updated.items, strict=True):
            if not groups or groups[-1][0] != flag:
                groups.append((flag, []))
            groups[-1][1].append(item)
        body = updated.body
        made = updated
        for flag, items in reversed(groups):
            items[-1] = items[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            made = cst.With(items=items, body=body, asynchronous=ASYNC if flag else None)
            body = cst.IndentedBlock(body=[made])
        made = cst.ensure_type(made.visit(Blank()), cst.With)
        return made.with_changes(leading_lines=updated.leading_lines)

    def leave_ExceptHandler(
        self, original: cst.ExceptHandler, updated: cst.ExceptHandler
    ) -> cst.ExceptHandler:
        if not catches_interrupts(self.planner, self.entry, original):
            return updated
        self.needed.add("asyncio")
        return with_cancellation(updated)

    def leave_FunctionDef(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> Any:
        if original not in self.plan.functions or original.asynchronous is not None:
            return updated
        name = original.name.value
        if name in ENTERING:
            name = name.replace("__", "__a", 1)
        updated = updated.with_changes(asynchronous=ASYNC, name=updated.name.with_changes(value=name))
        if is_manager(original):
            self.needed.add("contextlib")
            updated = updated.with_changes(decorators=[_async_manager(d) for d in updated.decorators])
        if original.name.value == "__init__" and self._needs_new(original):
            new = cst.parse_statement(_NEW, self.tree.module.config_for_parsing)
            assert isinstance(new, cst.FunctionDef), "it is a function"
            new = new.with_changes(leading_lines=updated.leading_lines)
            return cst.FlattenSentinel(
                [new, updated.with_changes(leading_lines=[cst.EmptyLine(indent=False)])]
            )
        return updated

    def _needs_new(self, init: cst.FunctionDef) -> bool:
        owner = self.tree.is_method(init)
        assert owner is not None, "it is a method"
        if self.flow.method(owner, "__new__") in self.tree.functions:
            return False
        above = self.flow.method(owner, "__init__", above=True)
        return above not in self.plan.functions

    # -- statements

    def leave_SimpleStatementLine(
        self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine
    ) -> Any:
        body: list[cst.BaseSmallStatement] = []
        for before, after in zip(original.body, updated.body, strict=True):
            if before in self.threads.dropped or self._is_no_op(before):
                continue
            if isinstance(before, cst.Import | cst.ImportFrom):
                made, _ = imports.rewritten(before)
                kept = [small for small in made if not self._is_private(small)]
                body += [after] if kept == [before] else kept
            else:
                body.append(after)
        if not body:
            return cst.RemoveFromParent()
        if len(body) == len(updated.body):
            return updated.with_changes(body=body)
        if not any(isinstance(node, cst.Import | cst.ImportFrom) for node in body):
            return updated.with_changes(body=[*body[:-1], _last(body[-1])])
        first = updated.with_changes(body=[_last(body[0])])
        rest = [cst.SimpleStatementLine(body=[_last(node)]) for node in body[1:]]
        return cst.FlattenSentinel([first, *rest])

    def _is_private(self, node: cst.BaseSmallStatement) -> bool:
        """Return whether an import only binds the name of a private module that is not used now."""
        if not isinstance(node, cst.Import | cst.ImportFrom) or isinstance(node.names, cst.ImportStar):
            return False
        name, path = [], dotted(node.module) if isinstance(node, cst.ImportFrom) else ""
        name = [dotted(a.asname.name if a.asname else a.name) for a in node.names]
        ours = path.startswith("asyncmon.tf1") or all(
            dotted(a.name).startswith("asyncmon.tf1") for a in node.names
        )
        return ours and len(name) == 1 and name[0] in self.private

    def _is_no_op(self, node: cst.BaseSmallStatement) -> bool:
        call = node.value if isinstance(node, cst.Expr) else None
        return (
            isinstance(call, cst.Call)
            and dotted(call.func).rpartition(".")[2] in NO_OPS
            and any(isinstance(k, Real | Foreign) for k in self.flow.kinds(call.func))
        )

    def leave_IndentedBlock(
        self, original: cst.IndentedBlock, updated: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if updated.body:
            return updated
        return updated.with_changes(body=[cst.SimpleStatementLine(body=[cst.Pass()])])

    def on_leave(self, original: Any, updated: Any) -> Any:
        made = super().on_leave(original, updated)
        if self.tree.parent(original) is self.tree.module:
            self.top[original] = made
        return made

    def leave_Module(self, original: cst.Module, updated: cst.Module) -> cst.Module:
        parts = [_flat(self.top[statement]) for statement in original.body]
        if self.entry.name:
            self.needed.add("asyncio")
            parts = self.entry.wrapped(parts)
        updated = updated.with_changes(body=[node for part in parts for node in part])
        have = {name for node in original.body for name in _imported(node)}
        for name in sorted(self.needed - have):
            updated = _with_import(updated, name)
        return updated


def _flat(made: Any) -> list[Any]:
    if isinstance(made, cst.FlattenSentinel):
        return list(made)
    return [] if isinstance(made, cst.RemovalSentinel) else [made]


def _imported(node: cst.CSTNode) -> list[str]:
    if not isinstance(node, cst.SimpleStatementLine):
        return []
    return [
        dotted(alias.name)
        for small in node.body
        if isinstance(small, cst.Import)
        for alias in small.names
        if alias.asname is None and bound_names(alias)
    ]


def _with_import(module: cst.Module, name: str) -> cst.Module:
    """Import a module before the first import of the file, and after those of the future."""
    statement = cst.parse_statement(f"import {name}\n")
    body = list(module.body)
    place = 0
    for index, node in enumerate(body):
        small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
        docstring = (
            index == 0 and isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString)
        )
        if docstring or (isinstance(small, cst.ImportFrom) and dotted(small.module) == "__future__"):
            place = index + 1
    if place < len(body):
        following = body[place]
        small = following.body[0] if isinstance(following, cst.SimpleStatementLine) else None
        if isinstance(small, cst.Import | cst.ImportFrom):
            statement = statement.with_changes(leading_lines=following.leading_lines)
            body[place] = following.with_changes(leading_lines=[])
    body.insert(place, statement)
    return module.with_changes(body=body)


def _last(node: cst.BaseSmallStatement) -> cst.BaseSmallStatement:
    return node.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)


def _renamed_keyword(arg: cst.Arg) -> cst.Arg:
    if arg.keyword is not None and (name := KEYWORDS.get(arg.keyword.value)):
        return arg.with_changes(keyword=arg.keyword.with_changes(value=name))
    return arg


def _without(args: Sequence[cst.Arg], keyword: str) -> list[cst.Arg]:
    kept = [arg for arg in args if arg.keyword is None or arg.keyword.value != keyword]
    if kept and len(kept) < len(args):
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return kept


def _async_manager(decorator: cst.Decorator) -> cst.Decorator:
    if dotted(decorator.decorator).rpartition(".")[2] != "contextmanager":
        return decorator
    return decorator.with_changes(decorator=cst.parse_expression("contextlib.asynccontextmanager"))
