"""A parsed file with the parents, scopes and lines of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

Holder = cst.Module | cst.ClassDef | cst.FunctionDef | cst.Lambda
"""A node that has its own scope."""


@dataclass(eq=False)
class Scope:
    """The names that a module, class, function or lambda binds."""

    node: Holder
    parent: Scope | None
    names: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)

    def find(self, name: str) -> Scope | None:
        """Return the scope that binds a name, or None for a builtin."""
        scope: Scope | None = self
        while scope is not None:
            own = scope is self or not isinstance(scope.node, cst.ClassDef)
            if own and name in scope.names and name not in scope.outer:
                return scope
            scope = scope.parent
        return None


class Tree:
    """A module with its parents, lines and scopes."""

    def __init__(self, module: cst.Module) -> None:
        self._wrapper = MetadataWrapper(module, unsafe_skip_copy=True)  # parsed: no node is there twice
        self.module = self._wrapper.module
        self._parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._holders: dict[cst.CSTNode, Holder] = {}
        self.nodes: list[cst.CSTNode] = []
        self.scopes: dict[cst.CSTNode, Scope] = {}
        self.module.visit(_Collector(self))
        root = self.scopes[self.module]
        for scope in self.scopes.values():
            if scope is not root and scope.outer:
                root.names |= scope.outer - root.names
        self.functions = [node for node in self.nodes if isinstance(node, cst.FunctionDef)]
        self.classes = [node for node in self.nodes if isinstance(node, cst.ClassDef)]

    @cached_property
    def _positions(self) -> Mapping[cst.CSTNode, Any]:
        return self._wrapper.resolve(PositionProvider)

    def line(self, node: cst.CSTNode) -> int:
        """Return the line number of a node."""
        return int(self._positions[node].start.line)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the parent of a node, or None."""
        return self._parents.get(node)

    def holder(self, node: cst.CSTNode) -> Holder:
        """Return the function, lambda, class or module whose body contains a node."""
        if (known := self._holders.get(node)) is None:
            known = self._holders[node] = self._find_holder(node)
        return known

    def _find_holder(self, node: cst.CSTNode) -> Holder:
        child, above = node, self.parent(node)
        while above is not None:
            if isinstance(above, cst.Module):
                return above
            if isinstance(above, cst.FunctionDef | cst.Lambda | cst.ClassDef) and child is above.body:
                return above
            child, above = above, self.parent(above)
        return self.module

    def scope(self, node: cst.CSTNode) -> Scope:
        """Return the scope of the names in an expression."""
        return self.scopes[self.holder(node)]

    def binder(self, name: cst.Name) -> Scope | None:
        """Return the scope that binds a name; None for attributes, keywords, parameters, builtins."""
        above = self.parent(name)
        if isinstance(above, cst.Attribute) and above.attr is name:
            return None
        if isinstance(above, cst.Arg) and above.keyword is name:
            return None
        if isinstance(above, cst.Param) and above.name is name:
            return None
        return self.scope(name).find(name.value)

    def mentions(self, node: cst.CSTNode, names: tuple[str, ...]) -> bool:
        """Return whether an expression has one of these names or attributes."""
        text = self.module.code_for_node(node)
        return any(name in text for name in names)

    def in_import(self, node: cst.CSTNode) -> bool:
        """Return whether a dotted name is part of an import."""
        above = self.parent(node)
        while isinstance(above, cst.Attribute):
            above = self.parent(above)
        return isinstance(above, cst.ImportAlias | cst.ImportFrom)

    def top(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the statement of the module that holds a node."""
        while (above := self.parent(node)) is not None and above is not self.module:
            node = above
        return node

    def is_inside(self, node: cst.CSTNode | None, outer: cst.CSTNode) -> bool:
        """Return whether a node is another one, or below it."""
        while node is not None and node is not outer:
            node = self.parent(node)
        return node is outer

    def is_method(self, function: cst.CSTNode) -> cst.ClassDef | None:
        """Return the class of a method, or None for another function."""
        holder = self.holder(function)
        if isinstance(holder, cst.ClassDef) and isinstance(function, cst.FunctionDef):
            return holder
        return None


_LAYOUT = frozenset(
    [
        cst.AssignEqual, cst.Colon, cst.Comma, cst.Dot, cst.EmptyLine, cst.LeftCurlyBrace,
        cst.LeftParen, cst.LeftSquareBracket, cst.ParenthesizedWhitespace, cst.RightCurlyBrace,
        cst.RightParen, cst.RightSquareBracket, cst.Semicolon, cst.SimpleWhitespace,
        cst.TrailingWhitespace,
    ]
)  # fmt: skip
"""Nodes without names or expressions below them: more than half of all."""


class _Collector(cst.CSTVisitor):
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.stack: list[Scope] = []
        self.path: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.path.append(node)
        if type(node) in _LAYOUT:
            return False
        self.tree.nodes.append(node)
        if len(self.path) > 1:
            self.tree._parents[node] = self.path[-2]
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self.stack[-1].names.add(node.name.value)
        if isinstance(node, cst.Module | cst.FunctionDef | cst.ClassDef | cst.Lambda):
            scope = Scope(node, self.stack[-1] if self.stack else None)
            self.tree.scopes[node] = scope
            self.stack.append(scope)
        elif isinstance(node, cst.Param):
            self.stack[-1].names.add(node.name.value)
        elif isinstance(node, cst.Global | cst.Nonlocal):
            self.stack[-1].outer |= {item.name.value for item in node.names}
        else:
            self.stack[-1].names.update(bound_names(node))
        return True

    def on_leave(self, node: cst.CSTNode) -> None:
        self.path.pop()
        if isinstance(node, cst.Module | cst.FunctionDef | cst.ClassDef | cst.Lambda):
            self.stack.pop()


def bound_names(node: cst.CSTNode) -> list[str]:
    """Return the names that a node binds, without those of its children."""
    if isinstance(node, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.For | cst.CompFor):
        return names_in(node.target)
    if isinstance(node, cst.NamedExpr):
        return names_in(node.target)
    if isinstance(node, cst.AsName):
        return names_in(node.name)
    if isinstance(node, cst.ImportAlias) and node.asname is None:
        name: cst.BaseExpression = node.name
        while isinstance(name, cst.Attribute):
            name = name.value
        return names_in(name)
    return []


def names_in(target: cst.CSTNode) -> list[str]:
    """Return the names in an assignment target."""
    if isinstance(target, cst.Name):
        return [target.value]
    if isinstance(target, cst.Tuple | cst.List):
        return [name for item in target.elements for name in names_in(item.value)]
    return []


def dotted(node: cst.CSTNode | None) -> str:
    """Return ``a.b.c`` for names joined by dots, "" for other expressions."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr.value}" if before else ""
    return ""


def is_guard(node: cst.CSTNode) -> bool:
    """Return whether a statement is ``if __name__ == "__main__":``."""
    test = node.test if isinstance(node, cst.If) else None
    return isinstance(test, cst.Comparison) and dotted(test.left) == "__name__"


PROPERTY = frozenset({"property", "cached_property", "setter"})


def decorators(node: cst.FunctionDef) -> frozenset[str]:
    """Return the last names of the decorators of a function."""
    found = set()
    for decorator in node.decorators:
        call = decorator.decorator
        name = dotted(call.func if isinstance(call, cst.Call) else call)
        found.add(name.rpartition(".")[2])
    return frozenset(found)
