"""Find the calls to await and the functions that become async, up to the entry point.

An async function makes its calls awaited, and their callers async: the plan is a fixed point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import libcst as cst

from asyncmon.tf1.port import blocking, catalogue
from asyncmon.tf1.port.calls import MANAGERS, local_target
from asyncmon.tf1.port.kinds import (
    Callback,
    Foreign,
    Generator,
    Instance,
    Kind,
    Kinds,
    Manager,
    Method,
    Real,
    Stream,
    Symbol,
    Thread,
    one,
    union,
)
from asyncmon.tf1.port.scopes import PROPERTY, Holder, decorators, dotted
from asyncmon.tf1.port.store import Store

DISTINCT = frozenset(
    [
        "run_step_fn", "run_with_hooks", "summary_computed", "SummaryComputed", "PrepareSession",
        "prepare_or_wait_for_session", "wait_for_session", "start_standard_services",
    ]
)  # fmt: skip
"""Methods that are awaited for any object."""

RUN_WORDS = frozenset({"feed_dict", "run_metadata", "session"})
"""Keywords that identify ``run`` as that of a session or an operation."""

CAN_BE_ASYNC = frozenset(
    ["__init__", "__enter__", "__exit__", "__call__", "__aenter__", "__aexit__", "__anext__", "__new__"]
)

SESSIONS = tuple(owner for name, owner in catalogue.CLASSES.items() if name.endswith("Session"))

ENTERING = frozenset(["__enter__", "__exit__"])

COLLECTS = frozenset(
    ["list", "tuple", "set", "frozenset", "sorted", "sum", "max", "min", "any", "all", "dict"]
)
"""Builtins that consume all elements of an iterable."""

LAZY = frozenset(["enumerate", "zip", "map", "filter", "iter", "reversed"])


@dataclass(frozen=True, order=True)
class Note:
    """A line that needs a manual change, with the reason."""

    line: int
    text: str


@dataclass
class Plan:
    """The nodes that the port changes."""

    awaited: set[cst.CSTNode] = field(default_factory=set)
    functions: set[cst.CSTNode] = field(default_factory=set)
    lambdas: set[cst.CSTNode] = field(default_factory=set)
    loops: set[cst.CSTNode] = field(default_factory=set)
    withs: set[cst.CSTNode] = field(default_factory=set)
    collected: set[cst.CSTNode] = field(default_factory=set)
    """Arguments that become list comprehensions: ``sum(await ... for ...)``, ``list(generator)``."""
    nexts: set[cst.CSTNode] = field(default_factory=set)
    started: set[cst.CSTNode] = field(default_factory=set)
    """Monitored sessions constructed without ``with``; TF1 opens them in the constructor."""
    sites: set[cst.CSTNode] = field(default_factory=set)
    """The nodes that await at the top level of the module."""
    notes: set[Note] = field(default_factory=set)


class Planner:
    """Makes the plan for a file."""

    def __init__(self, flow: Store) -> None:
        self.flow = flow
        self.tree = flow.tree
        self.plan = Plan()
        self.calls = [node for node in self.tree.nodes if isinstance(node, cst.Call)]
        blocks = cst.With | cst.For | cst.CompFor
        self._blocks = [node for node in self.tree.nodes if isinstance(node, blocks)]
        self.plan.functions = {f for f in self.tree.functions if f.asynchronous is not None}
        self.properties: set[cst.CSTNode] = set()
        """Properties that would have to await."""
        self._loop_key = (-1, 0, 0)
        self._loop_functions: set[cst.CSTNode] = set()
        self._add_overrides()
        self._add_started()
        self.settle()

    def settle(self) -> bool:
        """Extend the plan to a fixed point; return whether it has changed."""
        before = self._size()
        while self._round():
            pass
        return self._size() != before

    def note(self, node: cst.CSTNode, text: str) -> None:
        """Add a note on code that is left unchanged."""
        self.plan.notes.add(Note(self.tree.line(node), text))

    def _add_overrides(self) -> None:
        for function in self.tree.functions:
            owner = self.tree.is_method(function)
            for base in () if owner is None else self.flow.real_bases(owner):
                if catalogue.method_awaited(base, function.name.value):
                    self.plan.functions.add(function)
            for path in () if owner is None else self.flow.sibling_methods(owner, function.name.value):
                if self.flow.siblings.awaits(path):
                    self.plan.functions.add(function)

    def _add_started(self) -> None:
        monitored = catalogue.instance("MonitoredSession") | catalogue.instance(
            "SingularMonitoredSession"
        )
        items = [node.item for node in self.tree.nodes if isinstance(node, cst.WithItem)]
        entered = union(self.flow.kinds(item) for item in items if not self._makes(item, monitored))
        for call in self.calls:
            outer = self.tree.parent(call)
            stored = isinstance(outer, cst.Assign | cst.Return) and self._makes(call, monitored)
            if stored and not self.flow.kinds(call) & entered and self.reach(call):
                self.plan.started.add(call)

    def _makes(self, node: cst.CSTNode, kinds: Kinds) -> bool:
        """Return whether a node calls a constructor of asyncmon."""
        return (
            isinstance(node, cst.Call)
            and any(isinstance(kind, Real) for kind in self.flow.kinds(node.func))
            and bool(self.flow.kinds(node) & kinds)
        )

    def _round(self) -> bool:
        plan = self.plan
        before = self._size()
        for call in self.calls:
            told = call in plan.awaited or isinstance(self.tree.parent(call), cst.Await)
            if not told and not self.is_deferred(call) and self.gives_awaitable(call):
                self._await(call)
            elif isinstance(self.tree.holder(call), cst.Module) and self._starts(call):
                plan.sites.add(call)
        for node in self._blocks:
            if isinstance(node, cst.With) and node.asynchronous is None:
                if any(self.is_entered(item.item) for item in node.items) and self.reach(node):
                    plan.withs.add(node)
            elif (
                not isinstance(node, cst.With)
                and node.asynchronous is None
                and self.is_streamed(node.iter)
                and self.reach(node)
            ):
                plan.loops.add(node)
        for call in self.calls:
            self._collect(call)
        for function in list(plan.functions):
            owner = self.tree.is_method(function)
            if owner is not None and isinstance(function, cst.FunctionDef):
                self._add_family(owner, function.name.value)
        return self._size() != before

    def _collect(self, call: cst.Call) -> None:
        """Plan list comprehensions for async iterables that are passed to builtins."""
        kinds = self.flow.kinds(call.func)
        names = {kind.path.removeprefix("builtins.") for kind in kinds if isinstance(kind, Foreign)}
        for arg in call.args:
            if names & COLLECTS and self.is_streamed(arg.value):
                if self.reach(call):
                    self.plan.collected.add(arg.value)
            elif names & LAZY and self.is_streamed(arg.value):
                self.note(call, f"`{next(iter(names))}` of an async generator: write an `async for`")

    def _size(self) -> int:
        plan = self.plan
        parts = (plan.awaited, plan.functions, plan.lambdas, plan.loops, plan.withs, plan.sites)
        return sum(map(len, parts)) + len(plan.collected)

    def _add_family(self, owner: cst.ClassDef, name: str) -> None:
        if name in ("__init__", "__new__"):
            return
        names = ENTERING if name in ENTERING else {name}
        family = self.flow.family(owner)
        for function in self.tree.functions:
            if function.name.value in names and self.tree.is_method(function) in family:
                self.plan.functions.add(function)

    def awaiting(self) -> set[cst.CSTNode]:
        """Return the nodes that await."""
        plan = self.plan
        return plan.awaited | plan.loops | plan.withs | plan.collected | plan.started

    # -- awaited calls

    def is_deferred(self, call: cst.CSTNode) -> bool:
        """Return whether a coroutine is passed to asyncio, which awaits it."""
        arg = self.tree.parent(call)
        outer = self.tree.parent(arg) if isinstance(arg, cst.Arg) else None
        if not isinstance(outer, cst.Call):
            return False
        return any(
            isinstance(kind, Foreign) and kind.path.startswith("asyncio.")
            for kind in self.flow.kinds(outer.func)
        )

    def gives_awaitable(self, call: cst.Call) -> bool:
        """Return whether the result of a call is awaited."""
        kinds = self.flow.kinds(call.func)
        name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if any(self._of_kind(kind, name, call) for kind in kinds):
            return True
        return not kinds and bool(name) and self._unknown(call, name)

    def _starts(self, call: cst.Call) -> bool:
        """Return whether a call starts tasks, which need a running event loop."""
        for kind in self.flow.kinds(call.func):
            name = getattr(kind.value, "__name__", "") if isinstance(kind, Real) else ""
            if (kind.name if isinstance(kind, Method) else name) in catalogue.STARTS:
                return True
        return False

    def _of_kind(self, kind: Kind, name: str, call: cst.Call) -> bool:
        if isinstance(kind, Real):
            return not isinstance(kind.value, type) and catalogue.awaited(kind.value)
        if isinstance(kind, Symbol):
            return name in catalogue.SYMBOL_AWAITED
        return self._foreign(kind, call) if isinstance(kind, Foreign) else self.is_async(kind)

    def is_async(self, kind: Kind) -> bool:
        """Return whether the calls of a method, a callback or a function of the file are awaited."""
        if isinstance(kind, Method):
            return catalogue.method_awaited(kind.owner, kind.name)
        if isinstance(kind, Callback):
            return True
        target = local_target(self.flow, kind)
        return target is not None and self.is_coroutine(target[0])

    def _foreign(self, kind: Foreign, call: cst.Call) -> bool:
        if blocking.form(one(kind), call):
            return self.tree.holder(call) in self.plan.functions
        if kind.path == "builtins.next" and call.args and self.is_streamed(call.args[0].value):
            self.plan.nexts.add(call)
            return True
        return self.flow.siblings.awaits(kind.path)

    def _unknown(self, call: cst.Call, name: str) -> bool:
        if name in DISTINCT or name == "eval":
            return True
        if name == "run":
            words = {arg.keyword.value for arg in call.args if arg.keyword is not None}
            return bool(words & RUN_WORDS) or any(
                isinstance(kind, Symbol) for arg in call.args for kind in self.flow.kinds(arg.value)
            )
        owners = self.owners(name)
        return all(owners.values()) and self.fits(call, owners)

    def owners(self, name: str) -> dict[str, bool]:
        """Return the classes with a method of a name, here or in another file, and if it is async."""
        found = self.flow.siblings.owners(name)
        for function in self.tree.functions:
            owner = self.tree.is_method(function)
            if owner is not None and function.name.value == name:
                found[owner.name.value] = self.is_coroutine(function)
        return found

    def fits(self, call: cst.Call, owners: Iterable[str]) -> bool:
        """Return whether an object of unknown kind has the name of a class, or gets a session."""
        assert isinstance(call.func, cst.Attribute), "it has a name"
        if self.flow.kinds(call.func.value) or not owners:
            return False
        given = union(self.flow.kinds(arg.value) for arg in call.args)
        if any(isinstance(kind, Instance) and kind.of in SESSIONS for kind in given):
            return True
        name = dotted(call.func.value).rpartition(".")[2].lower().strip("_0123456789")
        words = {name, name.rpartition("_")[2]}
        return any(len(word) > 2 and word in owner.lower() for word in words for owner in owners)

    def is_on_loop(self, node: cst.CSTNode) -> bool:
        """Return whether code runs on the event loop: in an async function, or called by one."""
        holder = self.tree.holder(node)
        if isinstance(holder, cst.Module):
            return bool(self.plan.sites)
        return holder in self._on_loop()

    def _on_loop(self) -> set[cst.CSTNode]:
        key = (len(self.plan.functions), len(self.plan.lambdas), len(self.plan.sites))
        if self._loop_key == key:
            return self._loop_functions
        found: set[cst.CSTNode] = {*self.plan.functions, *self.plan.lambdas}
        callees: dict[cst.CSTNode, set[cst.CSTNode]] = {}
        for call in self.calls:
            callees.setdefault(self.tree.holder(call), set()).update(self.targets(call))
        pending = [*found, *([self.tree.module] if self.plan.sites else [])]
        while pending:
            fresh = callees.get(pending.pop(), set()) - found
            found |= fresh
            pending += fresh
        self._loop_key, self._loop_functions = key, found
        return found

    def targets(self, call: cst.Call) -> list[cst.FunctionDef | cst.Lambda]:
        """Return the functions of the file that a call may run."""
        found = (local_target(self.flow, kind) for kind in self.flow.kinds(call.func))
        return [one[0] for one in found if one is not None]

    def is_coroutine(self, function: cst.CSTNode) -> bool:
        """Return whether a function of the file becomes a coroutine function."""
        if isinstance(function, cst.Lambda):
            return function in self.plan.lambdas
        return function in self.plan.functions and function not in self.flow.generators

    def is_streamed(self, node: cst.CSTNode) -> bool:
        """Return whether an expression is iterated by ``async for``."""
        return any(
            isinstance(kind, Stream)
            or (isinstance(kind, Generator) and kind.node in self.plan.functions)
            for kind in self.flow.kinds(node)
        )

    def is_entered(self, node: cst.CSTNode) -> bool:
        """Return whether an expression is entered by ``async with``."""
        return any(
            self._has_enter(kind)
            if isinstance(kind, Instance) and isinstance(kind.of, cst.ClassDef)
            else catalogue.entered(kind)
            and not (isinstance(kind, Manager) and kind.node and kind.node not in self.plan.functions)
            for kind in self.flow.kinds(node)
        )

    def _has_enter(self, kind: Instance) -> bool:
        """Return whether an object of a class in the file is entered by ``async with``."""
        assert isinstance(kind.of, cst.ClassDef), "it is a class of the file"
        found = [self.flow.method(kind.of, name) for name in ("__aenter__", "__enter__")]
        return any(function in self.plan.functions for function in found)

    def is_thread(self, node: cst.CSTNode) -> Thread | None:
        """Return the kind of thread of an expression, or None."""
        found = [kind for kind in self.flow.kinds(node) if isinstance(kind, Thread)]
        return found[0] if found else None

    # -- enclosing functions

    def _await(self, call: cst.Call) -> None:
        holder = self.tree.holder(call)
        if isinstance(holder, cst.Lambda) and holder.body is call:
            self.plan.lambdas.add(holder)
        elif self.reach(call):
            self.plan.awaited.add(call)

    def reach(self, node: cst.CSTNode) -> bool:
        """Make the function around an awaited node async; return False if that is impossible."""
        holder = self.tree.holder(node)
        why = self.why_not(holder)
        if why:
            self.note(node, why)
            if isinstance(holder, cst.FunctionDef) and decorators(holder) & PROPERTY:
                self.properties.add(holder)
            return False
        if not self._reach_comprehension(node):
            return False
        self.plan.sites.add(node) if isinstance(holder, cst.Module) else self.plan.functions.add(holder)
        return True

    def _reach_comprehension(self, node: cst.CSTNode) -> bool:
        child, above = node, self.tree.parent(node)
        while above is not None and not isinstance(above, cst.BaseStatement):
            outermost = isinstance(above, cst.GeneratorExp) and child is above.for_in
            if isinstance(above, cst.GeneratorExp) and not (outermost and self._in_source(node, above)):
                call = self.tree.parent(self.tree.parent(above) or above)
                if not isinstance(call, cst.Call) or len(call.args) != 1:
                    self.note(node, "a generator expression that awaits: make it a list, or a loop")
                    return False
                self.plan.collected.add(above)
            child, above = above, self.tree.parent(above)
        return True

    def _in_source(self, node: cst.CSTNode, generator: cst.GeneratorExp) -> bool:
        """Return whether a node is in the first iterable, which is evaluated outside the generator."""
        current: cst.CSTNode | None = node
        while current is not None and current is not generator:
            if current is generator.for_in.iter:
                return True
            current = self.tree.parent(current)
        return False

    def why_not(self, holder: Holder) -> str:
        """Return the reason why a function or class cannot become async, or ""."""
        if isinstance(holder, cst.ClassDef):
            return f"the body of class `{holder.name.value}` cannot await: move this into a function"
        if isinstance(holder, cst.Lambda):
            return "a lambda cannot await inside of an expression: make it an `async def`"
        if isinstance(holder, cst.Module):
            return ""
        name = holder.name.value
        if decorators(holder) & PROPERTY:
            return f"the property `{name}` cannot await: make it an async method"
        if name.startswith("__") and name.endswith("__") and name not in CAN_BE_ASYNC:
            return f"`{name}` cannot await: move this into an async method"
        if holder in self.flow.generators and self._returns_value(holder):
            return f"the generator `{name}` returns a value or delegates, which an async one cannot"
        return ""

    def _returns_value(self, function: cst.FunctionDef) -> bool:
        for node in self.tree.nodes:
            if (isinstance(node, cst.Return) and node.value is not None) or isinstance(node, cst.From):
                in_yield = not isinstance(node, cst.From) or isinstance(
                    self.tree.parent(node), cst.Yield
                )
                if in_yield and self.tree.holder(node) is function:
                    return True
        return False


def is_manager(function: cst.FunctionDef) -> bool:
    """Return whether a function of the file is a context manager."""
    return bool(decorators(function) & MANAGERS)
