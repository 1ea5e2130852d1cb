"""The kinds of expressions, from the bindings of names and attributes in all files of a program.

A name has the kinds of everything that is bound to it; an attribute those of all attributes of its name
in the file. A container has the kinds of its elements. Where nothing is bound that is known, the usual
names of sessions, savers and so on decide: see :mod:`.names`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from asyncmon.tf1.port import imports, names
from asyncmon.tf1.port.kinds import (
    NOTHING,
    TENSOR,
    VALUE,
    Callback,
    Def,
    File,
    Foreign,
    Generator,
    Instance,
    Kind,
    Kinds,
    Method,
    Object,
    Real,
    Stream,
    Thread,
    one,
    union,
)
from asyncmon.tf1.port.source import (
    BUILTINS,
    DEFS,
    Function,
    Holder,
    Source,
    argument,
    decorators,
)

MANAGERS = frozenset({"contextmanager", "asynccontextmanager"})
PROPERTIES = frozenset({"property", "cached_property", "lazy_property"})
_PASSING = frozenset(["list", "tuple", "set", "iter", "reversed", "sorted", "next", "dict", "anext"])
_TAKING = frozenset(["append", "add", "insert", "appendleft", "put", "setdefault", "extend"])
_GIVING = frozenset(["get", "pop", "popleft", "setdefault", "values", "copy", "items"])
_BINDING = (
    ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension, ast.withitem,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Import, ast.ImportFrom,
    ast.Return, ast.Call,
)  # fmt: skip
_ROUNDS = 8
_LONGEST = 60  # the length of a path that does not grow: x = x.next() has no end


class Types:
    """The kinds in the files of a program."""

    def __init__(self, find: Callable[[Source, str], Source | None]) -> None:
        self.find = find
        """Returns the file of a module that another file imports, or None."""
        self.sources: list[Source] = []
        self.names: dict[tuple[Source, Holder, str], Kinds] = {}
        self.attributes: dict[tuple[Source | None, str], Kinds] = {}
        self.returns: dict[ast.AST, Kinds] = {}
        self.bases: dict[ast.AST, Kinds] = {}
        self.stars: dict[Source, list[Source]] = {}
        self._cache: dict[ast.AST, Kinds] = {}
        self._found = 0

    def learn(self) -> None:
        """Bind the names of all files, to a fixed point."""
        binding = [(s, node) for s in self.sources for node in s.nodes if isinstance(node, _BINDING)]
        for _ in range(_ROUNDS):
            before = self._found
            for source, node in binding:
                self._bind_by(source, node)
            self._cache.clear()
            if self._found == before:
                return

    def _add(self, table: dict[Any, Kinds], key: Any, kinds: Kinds) -> None:
        if not kinds <= (known := table.get(key, NOTHING)):
            table[key] = known | kinds
            self._found += 1

    # -- what statements bind

    def _bind_by(self, source: Source, node: ast.AST) -> None:
        match node:
            case ast.Assign():
                for target in node.targets:
                    self._bind(source, target, self.of(source, node.value), node.value)
            case ast.AnnAssign():
                kinds = self._annotated(source, node.annotation)
                if node.value is not None:
                    kinds |= self.of(source, node.value)
                self._bind(source, node.target, kinds)
            case ast.NamedExpr():
                self._bind(source, node.target, self.of(source, node.value))
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self._bind_each(source, node.target, node.iter)
            case ast.withitem() if node.optional_vars is not None:
                entered = map(self._entered, self.of(source, node.context_expr))
                self._bind(source, node.optional_vars, frozenset(entered), node.context_expr)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._bind_function(source, node)
            case ast.ClassDef():
                self._add(self.bases, node, union(self.of(source, base) for base in node.bases))
                self._name(source, source.holder[node], node.name, one(Def(source, node)))
            case ast.Import() | ast.ImportFrom():
                self._bind_import(source, node)
            case ast.Return() if node.value is not None:
                self._add(self.returns, source.holder[node], self.of(source, node.value))
            case ast.Call():
                self._bind_call(source, node)

    def _name(self, source: Source, holder: Holder, name: str, kinds: Kinds) -> None:
        if (binder := source.binder(name, holder)) is not None:
            self._add(self.names, (source, binder, name), kinds)

    def _bind(
        self, source: Source, target: ast.AST, kinds: Kinds, value: ast.AST | None = None
    ) -> None:
        if isinstance(target, ast.Name):
            self._name(source, source.holder[target], target.id, kinds)
        elif isinstance(target, ast.Attribute):
            self._add(self.attributes, (source, target.attr), kinds)
            self._add(self.attributes, (None, target.attr), kinds)
        elif isinstance(target, ast.Tuple | ast.List):
            parts: list[ast.expr | None] = [None] * len(target.elts)
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts):
                parts = [*value.elts]
            for inner, part in zip(target.elts, parts, strict=True):
                self._bind(source, inner, kinds if part is None else self.of(source, part), part)
        elif isinstance(target, ast.Starred | ast.Subscript):
            self._bind(source, target.value, kinds)

    def _bind_each(self, source: Source, target: ast.AST, iterated: ast.expr) -> None:
        by = (
            iterated.func.id
            if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name)
            else ""
        )
        if (
            isinstance(target, ast.Tuple)
            and isinstance(iterated, ast.Call)
            and by in ("enumerate", "zip")
        ):
            given = [self.of(source, arg) for arg in iterated.args]
            given = [VALUE, *given] if by == "enumerate" else given
            for inner, kinds in zip(target.elts, given, strict=False):
                self._bind(source, inner, kinds)
            return
        kinds = self.of(source, iterated)
        found = frozenset(Instance(k.name) if isinstance(k, Stream) and k.name else k for k in kinds)
        self._bind(source, target, found - {k for k in found if isinstance(k, Generator | Stream)})

    def _entered(self, kind: Kind) -> Kind:
        if isinstance(kind, Stream):
            return Instance(kind.name) if kind.name else Foreign("value")
        return Foreign("value") if isinstance(kind, Generator) else kind

    def _bind_function(self, source: Source, node: Function) -> None:
        if not isinstance(node, ast.Lambda):
            self._name(source, source.holder[node], node.name, one(Def(source, node)))
            if node.returns is not None:
                self._add(self.returns, node, self._annotated(source, node.returns))
        else:
            self._add(self.returns, node, self.of(source, node.body))
        args = [*node.args.posonlyargs, *node.args.args]
        owner = source.owner(node)
        if owner is not None and args and "staticmethod" not in decorators(node):
            mine: Kind = Def(source, owner)
            if "classmethod" not in decorators(node) and getattr(node, "name", "") != "__new__":
                mine = Object(Def(source, owner))
            self._name(source, node, args[0].arg, one(mine))
        for arg in [*args, *node.args.kwonlyargs]:
            self._name(source, node, arg.arg, self._annotated(source, arg.annotation))
        defaults = zip(reversed(args), reversed(node.args.defaults), strict=False)
        for arg, default in [*defaults, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]:
            if default is not None:
                self._name(source, node, arg.arg, self.of(source, default))

    def _annotated(self, source: Source, node: ast.expr | None) -> Kinds:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return one(Instance(name)) if (name := names.class_of(node.value)) else NOTHING
        return NOTHING if node is None else union(map(self._made, self.of(source, node)))

    def _made(self, kind: Kind) -> Kinds:
        if isinstance(kind, Def) and isinstance(kind.node, ast.ClassDef):
            return one(Object(kind))
        if isinstance(kind, Real) and isinstance(kind.value, type):
            name = names.class_of(kind.value.__name__)
            return one(Instance(name)) if name else VALUE
        return NOTHING

    def _bind_import(self, source: Source, node: ast.Import | ast.ImportFrom) -> None:
        base = "." * getattr(node, "level", 0) + (getattr(node, "module", "") or "")
        for alias in node.names:
            if alias.name == "*":
                found = self.find(source, base)
                if found is not None and found not in self.stars.setdefault(source, []):
                    self.stars[source].append(found)
                    self._found += 1
                continue
            if isinstance(node, ast.ImportFrom):
                path = f"{base}.{alias.name}" if node.module else base + alias.name
                home = self.find(source, base)
                inner = self.find(source, path)
                if home is None:
                    kinds = self._imported(source, path)
                else:
                    kinds = self._member(home, alias.name) or (one(File(inner)) if inner else NOTHING)
            else:
                path = alias.name if alias.asname else alias.name.partition(".")[0]
                kinds = self._imported(source, path)
            name = alias.asname or alias.name.partition(".")[0]
            self._name(source, source.holder[node], name, kinds)

    def _imported(self, source: Source, path: str) -> Kinds:
        if (found := self.find(source, path)) is not None:
            return one(File(found))
        if path.partition(".")[0] in ("tensorflow", "asyncmon"):
            value = imports.ours(path)
            return one(Foreign(path)) if value is None else self._real(value)
        return one(Foreign(path))

    @staticmethod
    def _real(value: Any) -> Kinds:
        return one(Real(value)) if names.is_ours(value) else VALUE

    def _bind_call(self, source: Source, call: ast.Call) -> None:
        taker = call.func
        if (
            isinstance(taker, ast.Attribute)
            and taker.attr in _TAKING
            and self.of(source, taker) <= VALUE
        ):
            for arg in call.args:
                self._bind(source, taker.value, self.of(source, arg))
        given, spread = [*call.args], argument(call, None, "args")
        target = argument(call, None, "target")
        functions = self.targets(source, call.func)
        if target is not None and isinstance(spread, ast.Tuple | ast.List):
            given, functions = [*spread.elts], self.targets(source, target)
        for found in functions:
            args = [*found.node.args.posonlyargs, *found.node.args.args]
            if found.source.owner(found.node) and "staticmethod" not in decorators(found.node):
                args = args[1:]
            for arg, value in zip(args, given, strict=False):
                if isinstance(value, ast.Starred):
                    break
                self._name(found.source, found.node, arg.arg, self.of(source, value))
            for keyword in call.keywords if target is None else ():
                if keyword.arg and keyword.arg in found.source.bound.get(found.node, ()):
                    self._name(found.source, found.node, keyword.arg, self.of(source, keyword.value))

    # -- classes of the program

    def ancestors(self, of: Def) -> list[Def]:
        """Return a class and its bases in the program."""
        found = [of]
        for current in found:
            for base in self.bases.get(current.node, NOTHING):
                if isinstance(base, Def) and base not in found:
                    found.append(base)
        return found

    def real_bases(self, of: Def) -> list[str]:
        """Return the classes of asyncmon that a class derives from."""
        bases = union(self.bases.get(one.node, NOTHING) for one in self.ancestors(of))
        return [k.value.__name__ for k in bases if isinstance(k, Real) and isinstance(k.value, type)]

    def method(self, of: Def, name: str, *, above: bool = False) -> Def | None:
        """Return a method of a class of the program."""
        for current in self.ancestors(of)[1 if above else 0 :]:
            for node in current.node.body if isinstance(current.node, ast.ClassDef) else ():
                if isinstance(node, DEFS) and node.name == name:
                    return Def(current.source, node)
        return None

    def targets(self, source: Source, func: ast.expr) -> list[Any]:
        """Return the functions of the program that a call of an expression runs."""
        found = (self.called(kind) for kind in self.of(source, func))
        return [one for one in found if one is not None]

    def called(self, kind: Kind) -> Def | None:
        """Return the function of the program that a call of an object runs."""
        if isinstance(kind, Object):
            return self.method(kind.of, "__call__")
        if isinstance(kind, Def) and isinstance(kind.node, ast.ClassDef):
            return self.method(kind, "__init__")
        return kind if isinstance(kind, Def) else None

    # -- expressions

    def of(self, source: Source, node: ast.AST) -> Kinds:
        """Return the kinds of an expression; none if nothing is known of it."""
        if node not in self._cache:
            self._cache[node] = NOTHING  # for circular definitions
            self._cache[node] = self._of(source, node)
        return self._cache[node]

    def _of(self, source: Source, node: ast.AST) -> Kinds:
        match node:
            case ast.Name():
                return self._guessed(self._of_name(source, node), node.id)
            case ast.Attribute():
                found = union(self._attribute(k, node.attr) for k in self.of(source, node.value))
                if not found and not self.of(source, node.value):
                    found = self.attributes.get((source, node.attr), NOTHING)
                    found = found or self.attributes.get((None, node.attr), NOTHING)
                outer = source.parent[node]
                called = isinstance(outer, ast.Call) and outer.func is node
                return found if called else self._guessed(found, node.attr)
            case ast.Call():
                return self._of_call(source, node)
            case ast.Subscript() | ast.Starred() | ast.Await() | ast.NamedExpr():
                return self.of(source, node.value)
            case ast.Constant():
                return NOTHING if node.value is None else VALUE
            case ast.List() | ast.Tuple() | ast.Set():
                return union(self.of(source, item) for item in node.elts) or VALUE
            case ast.Dict():
                return union(self.of(source, item) for item in node.values) or VALUE
            case ast.DictComp():
                return self.of(source, node.value)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self.of(source, node.elt)
            case ast.IfExp():
                return self.of(source, node.body) | self.of(source, node.orelse)
            case ast.BoolOp():
                return union(self.of(source, value) for value in node.values)
            case ast.BinOp():
                found = self.of(source, node.left) | self.of(source, node.right)
                return TENSOR if found >= TENSOR else VALUE if found == VALUE else NOTHING
            case ast.UnaryOp():
                return self.of(source, node.operand)
            case ast.Compare() | ast.JoinedStr():
                return VALUE
            case ast.Lambda():
                return one(Def(source, node))
        return NOTHING

    def _of_name(self, source: Source, node: ast.Name) -> Kinds:
        binder = source.binder(node.id, source.holder[node])
        if binder is not None:
            return self.names.get((source, binder, node.id), NOTHING)
        found = union(self._member(star, node.id) for star in self.stars.get(source, ()))
        return found or (one(Foreign(f"builtins.{node.id}")) if node.id in BUILTINS else NOTHING)

    def _guessed(self, found: Kinds, name: str) -> Kinds:
        """Return the kinds that the convention of a name gives where nothing known is bound to it."""
        if all(isinstance(kind, Foreign) and not kind.known for kind in found):
            return frozenset(map(Instance, names.usual(name))) or found
        return found

    def _member(self, source: Source, name: str, seen: tuple[Source, ...] = ()) -> Kinds:
        found = self.names.get((source, source.module, name), NOTHING)
        for star in () if found or source in seen else self.stars.get(source, ()):
            found |= self._member(star, name, (*seen, source))
        return found

    def _attribute(self, kind: Kind, name: str) -> Kinds:
        match kind:
            case Real(value):
                try:
                    return self._real(names.member(value, name))
                except AttributeError:
                    return one(Foreign(f"tensorflow.{name}"))
            case Instance("Tensor"):
                return one(Method("Tensor", name)) if name in names.SYMBOL_AWAITED else TENSOR
            case Instance(owner):
                if names.method(owner, new := names.RENAMED.get(name, name)) is not None:
                    return one(Method(owner, new))
                if names.method(owner, name) is not None:
                    return one(Method(owner, name))
                known = names.known_type(owner, name)
                return one(Instance(known)) if known else NOTHING
            case Object(of, above):
                return self._of_object(of, name, above)
            case Def(_, ast.ClassDef()):
                return self._of_object(kind, name, False)
            case File(source):
                inner = self.find(source, f".{name}")
                return self._member(source, name) or (NOTHING if inner is None else one(File(inner)))
            case Foreign(path):
                ends = path == "value" or len(path) > _LONGEST
                return one(kind) if ends else one(Foreign(f"{path}.{name}"))
            case Thread():
                return one(Foreign(f"threading.Thread().{name}"))
        return NOTHING

    def _of_object(self, of: Def, name: str, above: bool) -> Kinds:
        if (function := self.method(of, name, above=above)) is not None:
            if decorators(function.node) & PROPERTIES:
                return self.returns.get(function.node, NOTHING)
            return one(function)
        for base in self.real_bases(of):
            if names.method(base, name) is not None:
                return one(Method(base, name))
        homes = dict.fromkeys(one.source for one in self.ancestors(of))
        if found := union(self.attributes.get((home, name), NOTHING) for home in homes):
            return found
        bases = union(self.bases.get(one.node, NOTHING) for one in self.ancestors(of))
        foreign = (b for b in bases if isinstance(b, Foreign) and b.path != "builtins.object")
        return frozenset(Foreign(f"{base.path}().{name}") for base in foreign)

    def _of_call(self, source: Source, call: ast.Call) -> Kinds:
        return union(self._result(source, kind, call) for kind in self.of(source, call.func)) or (
            self._of_container(source, call)
        )

    def _of_container(self, source: Source, call: ast.Call) -> Kinds:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _GIVING:
            return self.of(source, call.func.value)
        return NOTHING

    def _result(self, source: Source, kind: Kind, call: ast.Call) -> Kinds:
        match kind:
            case Def(_, ast.ClassDef()):
                return one(Object(kind))
            case Def(home, node):
                if node in home.generators and isinstance(node, DEFS):
                    return one(Generator(kind, bool(decorators(node) & MANAGERS)))
                return self.returns.get(node, NOTHING)
            case Object():
                function = self.called(kind)
                return NOTHING if function is None else self.returns.get(function.node, NOTHING)
            case Real(value) if callable(value):
                return self._made(kind) if isinstance(value, type) else _of_function(value)
            case Method("Tensor", _):
                return VALUE
            case Method(owner, name):
                if name == "make_callable":
                    return one(Callback())
                if known := names.known_type(owner, name):
                    return one(Instance(known))
                found = _of_function(names.method(owner, name))
                return VALUE if found == TENSOR and names.is_method_awaited(owner, name) else found
            case Instance("Tensor"):
                return TENSOR
            case Callback():
                return VALUE
            case Foreign(path):
                return self._of_foreign(source, path, call)
        return NOTHING

    def _of_foreign(self, source: Source, path: str, call: ast.Call) -> Kinds:
        name = path.removeprefix("builtins.")
        if path in ("threading.Thread", "asyncio.create_task", "asyncio.ensure_future"):
            return one(Thread())
        if path == "value":
            return VALUE
        if path == "functools.partial":
            return self.of(source, call.args[0]) if call.args else NOTHING
        if path == "builtins.super":
            owner = source.self_class(source.holder[call])
            return NOTHING if owner is None else one(Object(Def(source, owner), above=True))
        if path.startswith("builtins."):
            if name in _PASSING:
                return self.of(source, call.args[0]) if call.args else VALUE
            if name in ("getattr", "eval", "map", "filter", "zip", "enumerate"):
                return NOTHING
        if path.rpartition(".")[0].lower().endswith("queue") and not (call.args or call.keywords):
            return one(Foreign("queue.Unbounded()"))
        if path.startswith("tensorflow."):
            return TENSOR  # most functions of TensorFlow return tensors
        return one(Foreign(path if len(path) > _LONGEST else f"{path}()"))


def _of_function(function: Any) -> Kinds:
    """Return the kinds of the result of a function of asyncmon, awaited if it is awaitable."""
    if getattr(function, "__name__", "") in ("start_queue_runners", "create_threads", "create_tasks"):
        return one(Thread(has_start=True))
    inner = names.streamed(function)
    if inner is not None:
        return one(Stream(inner, names.is_manager(function)))
    if name := names.class_of(names.returns(function)):
        return one(Instance(name))
    return TENSOR if names.makes_tensors(function) else VALUE
