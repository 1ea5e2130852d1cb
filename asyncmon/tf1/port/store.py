"""The kinds found so far in a file, by name, attribute and function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict

import libcst as cst

from asyncmon.tf1.port import catalogue
from asyncmon.tf1.port.kinds import NOTHING, Foreign, Items, Kind, Kinds, Local, Real, each, one
from asyncmon.tf1.port.scopes import Scope, Tree
from asyncmon.tf1.port.siblings import Siblings


class Store(ABC):
    """Stores the kinds of names, attributes and results; a subclass infers them.

    Args:
        tree: the file.
        siblings: the other files.
    """

    def __init__(self, tree: Tree, siblings: Siblings) -> None:
        self.tree = tree
        self.siblings = siblings
        self.names: defaultdict[tuple[Scope, str], set[Kind]] = defaultdict(set)
        self.fields: defaultdict[tuple[cst.CSTNode, str], set[Kind]] = defaultdict(set)
        self.returns: defaultdict[cst.CSTNode, set[Kind]] = defaultdict(set)
        self.yields: defaultdict[cst.CSTNode, set[Kind]] = defaultdict(set)
        self.bases: dict[cst.ClassDef, Kinds] = {}
        self.evidence = _evidence(tree)
        self.hints = False
        """Whether names of unknown kind get their conventional meaning."""
        self.generators = {
            holder
            for node in tree.nodes
            if isinstance(node, cst.Yield) and isinstance(holder := tree.holder(node), cst.FunctionDef)
        }

    @abstractmethod
    def kinds(self, node: cst.CSTNode) -> Kinds:
        """Return the possible kinds of an expression."""

    @abstractmethod
    def iterated(self, node: cst.CSTNode) -> Kinds:
        """Return the kinds of the elements that an iteration yields."""

    @abstractmethod
    def assign(self, target: cst.CSTNode, kinds: Kinds) -> None:
        """Add kinds to an assignment target."""

    def bind(self, scope: Scope, name: str, kinds: Kinds) -> None:
        """Add kinds to a name."""
        found = scope.find(name)
        if found is not None:
            self.names[found, name] |= kinds

    def item(self, kinds: Kinds, index: int, count: int | None = None) -> Kinds:
        """Return the kinds of an item of a tuple."""
        found: Kinds = NOTHING
        for kind in kinds:
            if isinstance(kind, Items):
                if count in (None, len(kind.of)) and index < len(kind.of):
                    found |= kind.of[index]
            else:
                found |= each(one(kind))
        return found

    # -- classes of the file

    def ancestors(self, node: cst.ClassDef) -> list[cst.ClassDef]:
        """Return a class and its bases in the file."""
        found = [node]
        for current in found:
            for base in self.bases.get(current, NOTHING):
                if isinstance(base, Local) and base.of not in found:
                    found.append(base.of)
        return found

    def family(self, node: cst.ClassDef) -> list[cst.ClassDef]:
        """Return a class, its bases and their subclasses, in the file."""
        mine = set(self.ancestors(node))
        return [c for c in self.tree.classes if c in mine or mine & set(self.ancestors(c))]

    def real_bases(self, node: cst.ClassDef) -> list[type]:
        """Return the classes of asyncmon that a class of the file derives from."""
        found: list[type] = []
        for current in self.ancestors(node):
            for base in self.bases.get(current, NOTHING):
                if isinstance(base, Real) and isinstance(base.value, type):
                    found.append(base.value)
                elif isinstance(base, Foreign):
                    found += self.siblings.bases(base.path)
        return found

    def sibling_methods(self, node: cst.ClassDef, name: str) -> list[str]:
        """Return the paths of a method in the classes of other files that a class derives from."""
        paths = [
            f"{base.path}().{name}"
            for current in self.ancestors(node)
            for base in self.bases.get(current, NOTHING)
            if isinstance(base, Foreign)
        ]
        return [path for path in paths if self.siblings.knows(path)]

    def method(
        self, node: cst.ClassDef, name: str, *, above: bool = False
    ) -> cst.FunctionDef | type | None:
        """Return a method's function in the file, or the class of asyncmon that has it."""
        for current in self.ancestors(node)[1 if above else 0 :]:
            for function in self.tree.functions:
                if function.name.value == name and self.tree.is_method(function) is current:
                    return function
        for base in self.real_bases(node):
            if catalogue.method(base, name) is not None:
                return base
        return None


def _evidence(tree: Tree) -> dict[tuple[Scope, str], Kinds]:
    found: dict[tuple[Scope, str], Kinds] = {}
    for node in tree.nodes:
        if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
            scope = tree.scope(node).find(node.value.value)
            name = catalogue.EVIDENCE.get(node.attr.value)
            if scope is not None and name is not None:
                found[scope, node.value.value] = catalogue.instance(name)
    return found
