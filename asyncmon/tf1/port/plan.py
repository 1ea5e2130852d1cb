"""Find the calls to await and the functions that become async, in all files of a program.

An async function makes its calls awaited, and their callers async: the plan is a fixed point.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from asyncmon.tf1.port import blocking, names
from asyncmon.tf1.port.infer import PROPERTIES, Types
from asyncmon.tf1.port.kinds import (
    Callback,
    Def,
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
    union,
)
from asyncmon.tf1.port.source import (
    COMPREHENSIONS,
    DEFS,
    Holder,
    Note,
    Source,
    decorators,
    last_name,
    path_of,
)

CAN_BE_ASYNC = frozenset(
    ["__init__", "__enter__", "__exit__", "__call__", "__aenter__", "__aexit__", "__anext__", "__new__"]
)
ENTERING = frozenset(["__enter__", "__exit__"])
COLLECTS = frozenset(
    ["list", "tuple", "set", "frozenset", "sorted", "sum", "max", "min", "any", "all", "dict"]
)
"""Builtins that consume all elements of an iterable."""

LAZY = frozenset(["enumerate", "zip", "map", "filter", "iter", "reversed"])
PLAIN_METHODS = frozenset(name for kind in (bytes, dict, list, set, str) for name in dir(kind))
_RUN_WORDS = frozenset({"feed_dict", "run_metadata", "session"})


class Plan:
    """The nodes of a program that change, and the notes on the others."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self.of = types.of
        self.awaited: set[ast.AST] = set()
        self.functions: set[ast.AST] = set()
        """The functions and generators that become async."""
        self.lambdas: set[ast.AST] = set()
        self.loops: set[ast.AST] = set()
        self.withs: set[ast.AST] = set()
        self.collected: set[ast.AST] = set()
        """Arguments that become lists: ``sum(await ... for ...)``, ``list(generator)``."""
        self.nexts: set[ast.AST] = set()
        self.started: set[ast.AST] = set()
        """Monitored sessions constructed without ``with``; TF1 opens them in the constructor."""
        self.sites: set[ast.AST] = set()
        """The nodes that await at the top level of their module."""
        self.properties: set[ast.AST] = set()
        """Properties that would have to await."""
        self.notes: dict[Source, set[Note]] = {}
        self.loop_functions: tuple[int, set[ast.AST]] = (-1, set())
        """The functions that run on the event loop, at a size of the plan."""
        self.blocking: set[ast.AST] | None = None
        """The plain functions that block a thread, once they were found."""
        self._owners: dict[str, list[Def]] = {}
        for source in types.sources:
            self._prepare(source)
        self.settle()

    def _prepare(self, source: Source) -> None:
        self.notes[source] = set()
        self.functions |= {n for n in source.functions if isinstance(n, ast.AsyncFunctionDef)}
        for node in source.functions:
            if (owner := source.owner(node)) is not None:
                self._owners.setdefault(node.name, []).append(Def(source, node))
                bases = self.types.real_bases(Def(source, owner))
                if any(names.is_method_awaited(base, node.name) for base in bases):
                    self.functions.add(node)
        monitored = {Instance("MonitoredSession"), Instance("SingularMonitoredSession")}
        items = [n.context_expr for n in source.nodes if isinstance(n, ast.withitem)]
        entered = union(self.of(source, n) for n in items if not isinstance(n, ast.Call))
        for call in source.calls:
            kinds = self.of(source, call)
            made = any(isinstance(kind, Real) for kind in self.of(source, call.func))
            stored = isinstance(source.parent[call], ast.Assign | ast.Return)
            opens = made and stored and kinds & monitored and not kinds & entered
            if opens and self.reach(source, call):
                self.started.add(call)

    def note(self, source: Source, node: ast.AST, text: str) -> None:
        """Add a note on code that is left unchanged, or that is awaited by its name only."""
        self.notes[source].add(Note(node.lineno, text))  # type: ignore[attr-defined]  # of an expression or a statement

    def settle(self) -> None:
        """Extend the plan to a fixed point."""
        before = -1
        while before != (before := self._size()):
            for source in self.types.sources:
                self._round(source)

    def _size(self) -> int:
        parts = (self.awaited, self.functions, self.lambdas, self.loops, self.withs, self.sites)
        return sum(map(len, (*parts, self.collected)))

    def _round(self, source: Source) -> None:
        for call in source.calls:
            if self.is_told(source, call):
                pass
            elif self.gives_awaitable(source, call):
                self._await(source, call)
            elif isinstance(source.holder[call], ast.Module) and self._starts(source, call):
                self.sites.add(call)
            self._collect(source, call)
        for node in source.nodes:
            if isinstance(node, ast.With) and node not in self.withs:
                entered = any(self.is_entered(source, item.context_expr) for item in node.items)
                if entered and self.reach(source, node):
                    self.withs.add(node)
            if not isinstance(node, ast.For | ast.comprehension) or getattr(node, "is_async", False):
                continue
            at = source.parent[node] if isinstance(node, ast.comprehension) else node
            streamed = node not in self.loops and self.is_streamed(source, node.iter)
            if streamed and self.reach(source, at):
                self.loops.add(node)
        for node in source.functions:
            owner = source.owner(node)
            if owner is not None and node in self.functions:
                self._add_family(Def(source, owner), node.name)

    def is_told(self, source: Source, call: ast.AST) -> bool:
        """Return whether a call is awaited, or passed to asyncio, which awaits it."""
        outer = source.parent[call]
        if call in self.awaited or isinstance(outer, ast.Await):
            return True
        if not isinstance(outer, ast.Call) or outer.func is call:
            return False
        kinds = self.of(source, outer.func)
        return any(isinstance(k, Foreign) and k.path.startswith("asyncio.") for k in kinds)

    def _add_family(self, of: Def, name: str) -> None:
        """Make the methods of a name async in all bases and subclasses of a class."""
        if name in ("__init__", "__new__"):
            return
        alike = [f for n in (ENTERING if name in ENTERING else {name}) for f in self._owners.get(n, [])]
        mine = set(self.types.ancestors(of))
        for function in alike:
            owner = function.source.owner(function.node)
            assert owner is not None, "it is a method"
            if mine & set(self.types.ancestors(Def(function.source, owner))):
                self.functions.add(function.node)

    def _collect(self, source: Source, call: ast.Call) -> None:
        """Plan list comprehensions for async iterables that are passed to builtins."""
        kinds = self.of(source, call.func)
        found = {k.path.removeprefix("builtins.") for k in kinds if isinstance(k, Foreign)}
        for arg in call.args:
            if found & COLLECTS and arg not in self.collected and self.is_streamed(source, arg):
                if not isinstance(arg, COMPREHENSIONS) and self.reach(source, call):
                    self.collected.add(arg)
            elif found & LAZY and self.is_streamed(source, arg):
                text = f"`{min(found & LAZY)}` of an async generator: write an `async for`"
                self.note(source, call, text)

    # -- awaited calls

    def gives_awaitable(self, source: Source, call: ast.Call) -> bool:
        """Return whether the result of a call is awaited."""
        kinds = self.of(source, call.func)
        if any(self._of_kind(source, kind, call) for kind in kinds):
            return True
        unknown = all(isinstance(kind, Foreign) and not kind.known for kind in kinds)
        return unknown and isinstance(call.func, ast.Attribute) and self._by_name(source, call)

    def _of_kind(self, source: Source, kind: Kind, call: ast.Call) -> bool:
        if isinstance(kind, Real):
            return not isinstance(kind.value, type) and names.is_awaited(kind.value)
        if not isinstance(kind, Foreign):
            return self.is_async(kind)
        if blocking.form(frozenset({kind}), call):
            return source.holder[call] in self.functions
        if kind.path == "builtins.next" and call.args and self.is_streamed(source, call.args[0]):
            self.nexts.add(call)
            return True
        return False

    def is_async(self, kind: Kind) -> bool:
        """Return whether the calls of a method, a callback or a function of the program are awaited."""
        if isinstance(kind, Method):
            return names.is_method_awaited(kind.owner, kind.name)
        if isinstance(kind, Callback):
            return True
        target = self.types.called(kind)
        return target is not None and self.is_coroutine(target)

    def _by_name(self, source: Source, call: ast.Call) -> bool:
        """Return whether a method of an unknown object is awaited by its name."""
        name = last_name(call.func)
        owners = self.owners(name)
        if owners:
            return all(owners.values()) and self.fits(source, call, owners)
        if name not in names.AWAITED or name in names.COMMON or not self._may_be(source, call):
            return False
        if not self._is_certain(source, call, name):
            text = f"`{path_of(source, call.func)}` is awaited by its name"
            self.note(source, call, f"{text}: take the await out unless it is {a_class(name)}")
        return True

    def _may_be(self, source: Source, call: ast.Call) -> bool:
        """Return whether an object can be one of asyncmon: no module of another package has it."""
        kinds = self.of(source, call.func)
        return not any(isinstance(kind, Foreign) and "()" not in kind.path for kind in kinds)

    def _is_certain(self, source: Source, call: ast.Call, name: str) -> bool:
        words = {keyword.arg for keyword in call.keywords}
        if name == "eval":
            given = self.given(source, call)
            session = any(isinstance(k, Instance) and k.name in names.SESSIONS for k in given)
            return session or (not call.args and words <= {"feed_dict", "session"})
        if name == "run":
            given = union(self.of(source, arg) for arg in call.args)
            return bool(words & _RUN_WORDS) or Instance("Tensor") in given
        return len(names.AWAITED[name]) == 1 and "_" in name  # such as run_with_hooks

    def _starts(self, source: Source, call: ast.Call) -> bool:
        """Return whether a call starts tasks, which need a running event loop."""
        for kind in self.of(source, call.func):
            name = getattr(kind.value, "__name__", "") if isinstance(kind, Real) else ""
            if (kind.name if isinstance(kind, Method) else name) in names.STARTS:
                return True
        return False

    def owners(self, name: str) -> dict[str, bool]:
        """Return the classes of the program with a method of a name, and if it is async in all."""
        found: dict[str, bool] = {}
        for one in self._owners.get(name, []):
            owner = one.source.owner(one.node)
            assert owner is not None, "it is a method"
            found[owner.name] = found.get(owner.name, True) and self.is_coroutine(one)
        return found

    def fits(self, source: Source, call: ast.Call, owners: Iterable[str]) -> bool:
        """Return whether an object of unknown kind has the name of a class, or gets a session."""
        assert isinstance(call.func, ast.Attribute), "it has a name"
        if any(isinstance(k, Instance) and k.name in names.SESSIONS for k in self.given(source, call)):
            return True
        name = last_name(call.func.value).lower().strip("_0123456789")
        words = {name, name.rpartition("_")[2]}
        return any(len(word) > 2 and word in owner.lower() for word in words for owner in owners)

    def given(self, source: Source, call: ast.Call) -> Kinds:
        """Return the kinds of all arguments of a call."""
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        return union(self.of(source, value) for value in values)

    # -- kinds of functions and objects

    def is_coroutine(self, of: Def) -> bool:
        """Return whether a function of the program becomes a coroutine function."""
        if isinstance(of.node, ast.Lambda):
            return of.node in self.lambdas
        return of.node in self.functions and of.node not in of.source.generators

    def is_streamed(self, source: Source, node: ast.AST) -> bool:
        """Return whether an expression is iterated by ``async for``."""
        return any(
            (isinstance(kind, Stream) and not kind.manager)
            or (isinstance(kind, Generator) and not kind.manager and kind.of.node in self.functions)
            for kind in ([] if isinstance(node, COMPREHENSIONS) else self.of(source, node))
        )

    def is_entered(self, source: Source, node: ast.AST) -> bool:
        """Return whether an expression is entered by ``async with``."""
        return any(map(self._is_entered, self.of(source, node))) and not self._is_default(node)

    def _is_entered(self, kind: Kind) -> bool:
        if isinstance(kind, Object):
            found = [self.types.method(kind.of, name) for name in ("__aenter__", "__enter__")]
            if not any(found):
                return any(base in names.ENTERED for base in self.types.real_bases(kind.of))
            return any(one is not None and one.node in self.functions for one in found)
        if isinstance(kind, Generator):
            return kind.manager and kind.of.node in self.functions
        return (isinstance(kind, Stream) and kind.manager) or (
            isinstance(kind, Instance) and kind.name in names.ENTERED
        )

    @staticmethod
    def _is_default(node: ast.AST) -> bool:
        """Return whether an expression is ``session.as_default()``, which does not close it."""
        return isinstance(node, ast.Call) and last_name(node.func) == "as_default"

    def thread(self, source: Source, node: ast.AST) -> Thread | None:
        """Return the kind of thread of an expression, or None."""
        found = [kind for kind in self.of(source, node) if isinstance(kind, Thread)]
        return found[0] if found else None

    def awaiting(self) -> set[ast.AST]:
        """Return the nodes that await."""
        loops = {n for n in self.loops if not isinstance(n, ast.comprehension)}
        return self.awaited | loops | self.withs | self.collected | self.started

    # -- enclosing functions

    def _await(self, source: Source, call: ast.Call) -> None:
        holder = source.holder[call]
        if isinstance(holder, ast.Lambda) and holder.body is call:
            self.lambdas.add(holder)
        elif self.reach(source, call):
            self.awaited.add(call)

    def reach(self, source: Source, node: ast.AST) -> bool:
        """Make the function around an awaited node async; return False if that is impossible."""
        holder = source.holder[node]
        if why := self.why_not(source, holder):
            self.note(source, node, why)
            if isinstance(holder, DEFS) and decorators(holder) & PROPERTIES:
                self.properties.add(holder)
            return False
        if not self._reach_comprehension(source, node):
            return False
        self.sites.add(node) if isinstance(holder, ast.Module) else self.functions.add(holder)
        return True

    def _reach_comprehension(self, source: Source, node: ast.AST) -> bool:
        for above in source.above(node):
            if isinstance(above, ast.stmt):
                break
            if not isinstance(above, ast.GeneratorExp):
                continue
            if source.is_inside(node, above.generators[0].iter):
                continue  # evaluated outside the generator
            call = source.parent[above]
            if not isinstance(call, ast.Call) or len(call.args) != 1 or call.func is above:
                text = "a generator expression that awaits: make it a list, or a loop"
                self.note(source, node, text)
                return False
            self.collected.add(above)
        return True

    def why_not(self, source: Source, holder: Holder) -> str:
        """Return the reason why a function or class cannot become async, or ""."""
        if isinstance(holder, ast.ClassDef):
            return f"the body of class `{holder.name}` cannot await: move this into a function"
        if isinstance(holder, ast.Lambda):
            return "a lambda cannot await inside of an expression: make it an `async def`"
        if isinstance(holder, ast.Module):
            return ""
        name = holder.name
        if decorators(holder) & PROPERTIES:
            return f"the property `{name}` cannot await: make it an async method"
        if name.startswith("__") and name.endswith("__") and name not in CAN_BE_ASYNC:
            return f"`{name}` cannot await: move this into an async method"
        if holder in source.generators and self._returns_value(source, holder):
            return f"the generator `{name}` returns a value or delegates, which an async one cannot"
        return ""

    def _returns_value(self, source: Source, function: ast.AST) -> bool:
        return any(
            source.holder[node] is function
            and (isinstance(node, ast.YieldFrom) or (isinstance(node, ast.Return) and node.value))
            for node in source.nodes
        )


def a_class(name: str) -> str:
    """Return the classes of asyncmon with an async method of a name, as a text."""
    found = names.AWAITED[name]
    return f"a {found[0]}" if len(found) == 1 else f"a {', '.join(found[:-1])} or {found[-1]}"
