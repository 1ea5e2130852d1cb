"""Data flow through a file: the possible kinds of each name, attribute, parameter and result.

It starts from known constructors (``tf.Session``, ``tf.train.Supervisor``, ...) and follows
assignments, calls, returns and attributes of the file's classes to a fixed point. A second pass gives
names of unknown kind their conventional meaning (``sess``, ...).
"""

from __future__ import annotations

import builtins
from types import ModuleType

import libcst as cst

from asyncmon.tf1.port import catalogue, imports
from asyncmon.tf1.port.calls import bind_call, call_results
from asyncmon.tf1.port.kinds import (
    NOTHING,
    SYMBOL,
    VALUE,
    Foreign,
    Func,
    Generator,
    Instance,
    Kind,
    Kinds,
    Local,
    Manager,
    Method,
    Opened,
    Real,
    Super,
    Symbol,
    Thread,
    Value,
    each,
    elements,
    items,
    one,
    union,
)
from asyncmon.tf1.port.scopes import PROPERTY, Tree, decorators, dotted
from asyncmon.tf1.port.siblings import Siblings
from asyncmon.tf1.port.store import Store

_ROUNDS = 30
_LITERALS = (
    cst.BaseNumber | cst.BaseString | cst.FormattedString | cst.Comparison | cst.ConcatenatedString
)


_FACTS = (
    cst.Import | cst.ImportFrom | cst.FunctionDef | cst.ClassDef | cst.Assign | cst.AnnAssign
    | cst.AugAssign | cst.NamedExpr | cst.For | cst.CompFor | cst.WithItem | cst.Return | cst.Lambda
    | cst.Yield | cst.Call
)  # fmt: skip


class Flow(Store):
    """Infers the kinds of expressions; see the module."""

    def __init__(self, tree: Tree, siblings: Siblings) -> None:
        super().__init__(tree, siblings)
        facts = [node for node in tree.nodes if isinstance(node, _FACTS)]
        for self.hints in (False, True):
            for _ in range(_ROUNDS):
                before = self._size()
                for node in facts:
                    self._learn(node)
                if self._size() == before:
                    break

    def _size(self) -> int:
        stores = (self.names, self.fields, self.returns, self.yields)
        known = sum(len(kinds) for store in stores for kinds in store.values())
        return known + sum(map(len, self.bases.values()))

    # -- facts

    def _learn(self, node: cst.CSTNode) -> None:
        tree = self.tree
        if isinstance(node, cst.Import | cst.ImportFrom):
            for name, kinds in imports.bound(node):
                self.bind(tree.scope(node), name, union(map(self._resolved, kinds)))
            if isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar):
                path = "." * len(node.relative) + dotted(node.module)
                path += "" if node.module is None else "."
                for name in self.siblings.star(node):
                    tree.scope(node).names.add(name)
                    kind = Foreign(f"{path}{name}", known=False)
                    self.bind(tree.scope(node), name, self._resolved(kind))
        elif isinstance(node, cst.FunctionDef):
            self.bind(tree.scope(node), node.name.value, one(Func(node)))
            self._learn_parameters(node)
        elif isinstance(node, cst.ClassDef):
            self.bind(tree.scope(node), node.name.value, one(Local(node)))
            self.bases[node] = union(self.kinds(base.value) for base in node.bases)
        elif isinstance(node, cst.Assign):
            for target in node.targets:
                self.assign(target.target, self.kinds(node.value))
        elif isinstance(node, cst.AnnAssign):
            given = NOTHING if node.value is None else self.kinds(node.value)
            self.assign(node.target, given | self._annotated(node.annotation))
        elif isinstance(node, cst.AugAssign | cst.NamedExpr):
            self.assign(node.target, self.kinds(node.value))
        elif isinstance(node, cst.For | cst.CompFor):
            self.assign(node.target, self.iterated(node.iter))
        elif isinstance(node, cst.WithItem) and node.asname is not None:
            self.assign(node.asname.name, self.entered_kinds(node.item))
        elif isinstance(node, cst.Return) and node.value is not None:
            self.returns[tree.holder(node)] |= self.kinds(node.value)
        elif isinstance(node, cst.Lambda):
            self.returns[node] |= self.kinds(node.body)
        elif isinstance(node, cst.Yield) and node.value is not None:
            inner = node.value
            kinds = self.iterated(inner.item) if isinstance(inner, cst.From) else self.kinds(inner)
            self.yields[tree.holder(node)] |= kinds
        elif isinstance(node, cst.Call):
            bind_call(self, node)

    def _resolved(self, kind: Kind) -> Kinds:
        """Return the kinds of an object that another file has by a dotted name, or the name's kind."""
        found = self.siblings.kinds(kind.path) if isinstance(kind, Foreign) else NOTHING
        return found or one(kind)

    def assign(self, target: cst.CSTNode, kinds: Kinds) -> None:
        if isinstance(target, cst.Name):
            self.bind(self.tree.scope(target), target.value, kinds)
        elif isinstance(target, cst.Attribute):
            for owner in self.kinds(target.value):
                if isinstance(owner, Instance | Local) and isinstance(owner.of, cst.ClassDef):
                    self.fields[owner.of, target.attr.value] |= kinds
        elif isinstance(target, cst.Subscript):
            if not each(self.kinds(target.value)) >= kinds:
                self.assign(target.value, elements(kinds))
        elif isinstance(target, cst.Tuple | cst.List):
            for index, element in enumerate(target.elements):
                self.assign(element.value, self.item(kinds, index, len(target.elements)))

    def _learn_parameters(self, node: cst.FunctionDef) -> None:
        parameters = [*node.params.posonly_params, *node.params.params, *node.params.kwonly_params]
        scope = self.tree.scopes[node]
        owner = self.tree.is_method(node)
        if owner is not None and "staticmethod" not in decorators(node):
            if parameters:
                made = node.name.value == "__new__" or "classmethod" in decorators(node)
                kind: Kind = Local(owner) if made else Instance(owner)
                self.bind(scope, parameters[0].name.value, one(kind))
            parameters = parameters[1:]
            for base in self.real_bases(owner):
                kinds = catalogue.parameter_kinds(catalogue.method(base, node.name.value))
                for parameter, known in zip(parameters, kinds, strict=False):
                    self.bind(scope, parameter.name.value, known)
        for parameter in parameters:
            name = parameter.name.value
            if parameter.annotation is not None:
                self.bind(scope, name, self._annotated(parameter.annotation))
            if parameter.default is not None:
                self.bind(scope, name, self.kinds(parameter.default) - VALUE)

    def _annotated(self, annotation: cst.Annotation) -> Kinds:
        node: cst.CSTNode = annotation.annotation
        if isinstance(node, cst.SimpleString):
            node = cst.parse_expression(str(node.evaluated_value))
            name = dotted(node).rpartition(".")[2]
            return catalogue.instance(name)
        return frozenset(self._made(kind) for kind in self.kinds(node)) - one(Value())

    @staticmethod
    def _made(kind: Kind) -> Kind:
        if isinstance(kind, Local):
            return Instance(kind.of)
        if isinstance(kind, Real) and isinstance(kind.value, type):
            return next(iter(catalogue.called(kind.value)))
        return Value()

    # -- expressions

    def kinds(self, node: cst.CSTNode) -> Kinds:
        """Return the possible kinds of an expression."""
        if isinstance(node, cst.Name):
            return self._name(node)
        if isinstance(node, cst.Attribute):
            return self._attribute(node)
        if isinstance(node, cst.Call):
            return call_results(self, node)
        if isinstance(node, cst.Await):
            return self.kinds(node.expression)
        if isinstance(node, cst.Tuple | cst.List | cst.Set):
            return items(self.kinds(item.value) for item in node.elements)
        if isinstance(node, cst.Dict):
            return elements(union(self.kinds(item.value) for item in node.elements))
        if isinstance(node, cst.ListComp | cst.SetComp | cst.GeneratorExp):
            return elements(self.kinds(node.elt))
        if isinstance(node, cst.DictComp):
            return elements(self.kinds(node.value))
        if isinstance(node, cst.IfExp):
            return self.kinds(node.body) | self.kinds(node.orelse)
        if isinstance(node, cst.BooleanOperation):
            return self.kinds(node.left) | self.kinds(node.right)
        if isinstance(node, cst.BinaryOperation):
            both = self.kinds(node.left) | self.kinds(node.right)
            return SYMBOL if Symbol() in both else both
        if isinstance(node, cst.UnaryOperation):
            return self.kinds(node.expression)
        if isinstance(node, cst.NamedExpr):
            return self.kinds(node.value)
        if isinstance(node, cst.Lambda):
            return one(Func(node))
        if isinstance(node, cst.Subscript):
            return self._subscript(node)
        return VALUE if isinstance(node, _LITERALS) else NOTHING

    def _name(self, node: cst.Name) -> Kinds:
        scope = self.tree.scope(node).find(node.value)
        if node.value == "None":
            return NOTHING
        if scope is None:
            if hasattr(builtins, node.value):
                return one(Foreign(f"builtins.{node.value}"))
            return self._hinted(node, node.value)
        if found := frozenset(self.names.get((scope, node.value), ())):
            return found
        if not self.hints:
            return NOTHING
        return self.evidence.get((scope, node.value), NOTHING) or self._hinted(node, node.value)

    def _hinted(self, node: cst.BaseExpression, name: str) -> Kinds:
        """Return the kinds of a name by its convention; a callee is no session."""
        above = self.tree.parent(node)
        called = isinstance(above, cst.Call) and above.func is node
        return catalogue.hinted(name) if self.hints and not called else NOTHING

    def _attribute(self, node: cst.Attribute) -> Kinds:
        name = node.attr.value
        if name == "v1" and isinstance(node.value, cst.Attribute) and node.value.attr.value == "compat":
            return self.kinds(node.value.value)
        owners = self.kinds(node.value)
        found = union(self._member(owner, name) for owner in owners)
        known = any(not isinstance(owner, Instance) or isinstance(owner.of, type) for owner in owners)
        if not found and not known and self.hints:
            named = (kinds for (_, field), kinds in self.fields.items() if field == name and not owners)
            return union(map(frozenset, named)) or self._hinted(node, name)
        return found

    def _member(self, owner: Kind, name: str) -> Kinds:
        if isinstance(owner, Real):
            if isinstance(owner.value, ModuleType | type):
                try:
                    return catalogue.member(owner.value, name)
                except AttributeError:
                    return one(Foreign(f"tensorflow.{name}", known=False))
            return NOTHING
        if isinstance(owner, Foreign) and owner.path.endswith("()") and not owner.known:
            path = f"{owner.path}.{name}"
            return one(Foreign(path, known=False)) if self.siblings.knows(path) else NOTHING
        if isinstance(owner, Foreign):
            return self._resolved(Foreign(f"{owner.path}.{name}", owner.known))
        if isinstance(owner, Symbol):
            runner = catalogue.RENAMED.get(name, name) == "create_tasks"  # from a collection
            return one(Method(catalogue.CLASSES["QueueRunner"], "create_tasks")) if runner else SYMBOL
        if isinstance(owner, Value | Thread):
            return VALUE
        if isinstance(owner, Super):
            found = self._found(self.method(owner.of, name, above=True), name)
            return found or self._of_sibling(owner.of, name)
        if isinstance(owner, Instance) and isinstance(owner.of, type):
            return catalogue.attribute(owner.of, name)
        if not isinstance(owner, Instance | Local) or not isinstance(owner.of, cst.ClassDef):
            return NOTHING
        node = owner.of
        function = self.method(node, name)
        if isinstance(function, cst.FunctionDef) and decorators(function) & PROPERTY:
            return frozenset(self.returns[function])
        if function is not None:
            return self._found(function, name, isinstance(owner, Instance))
        if inherited := self._of_sibling(node, name):
            return inherited
        return union(frozenset(self.fields.get((c, name), ())) for c in self.family(node)) | union(
            frozenset(self.names.get((self.tree.scopes[c], name), ())) for c in self.ancestors(node)
        )

    def _of_sibling(self, node: cst.ClassDef, name: str) -> Kinds:
        """Return the method that a class inherits from a class in another file."""
        return frozenset(Foreign(path, known=False) for path in self.sibling_methods(node, name)[:1])

    @staticmethod
    def _found(where: cst.FunctionDef | type | None, name: str, bound: bool = True) -> Kinds:
        if isinstance(where, type):
            return one(Method(where, name))
        return NOTHING if where is None else one(Func(where, bound))

    def _subscript(self, node: cst.Subscript) -> Kinds:
        value = self.kinds(node.value)
        index = node.slice[0].slice if len(node.slice) == 1 else None
        if isinstance(index, cst.Index) and isinstance(index.value, cst.Integer):
            return self.item(value, int(index.value.evaluated_value))
        if isinstance(index, cst.Slice):
            return value
        return each(value)

    def iterated(self, node: cst.CSTNode) -> Kinds:
        """Return the kinds of the elements that an iteration yields."""
        found = each(kinds := self.kinds(node))
        return found | union(
            frozenset(self.yields[kind.node]) for kind in kinds if isinstance(kind, Generator)
        )

    def entered_kinds(self, node: cst.CSTNode) -> Kinds:
        """Return the kinds of the object that a ``with`` binds."""
        kinds = self.kinds(node)
        found: Kinds = NOTHING
        for kind in kinds:
            if isinstance(kind, Manager):
                made = kind.of if kind.node is None else frozenset(self.yields[kind.node])
                found |= made
            elif isinstance(kind, Instance) and isinstance(kind.of, cst.ClassDef):
                found |= self._entered_local(kind, kind.of)
            elif isinstance(kind, Opened):
                found |= kind.of
            else:
                found |= one(kind)
        return found

    def _entered_local(self, kind: Instance, node: cst.ClassDef) -> Kinds:
        for name in ("__aenter__", "__enter__"):
            function = self.method(node, name)
            if isinstance(function, cst.FunctionDef):
                return frozenset(self.returns[function])
        return one(kind)
