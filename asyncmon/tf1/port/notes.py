"""Notes on code that the plan leaves unchanged, with the line and the reason."""

from __future__ import annotations

import ast
from types import ModuleType

import asyncmon.tf1 as tf
from asyncmon.tf1.port import absent, blocking, imports, names
from asyncmon.tf1.port.edit import is_sum
from asyncmon.tf1.port.kinds import (
    Def,
    Foreign,
    Instance,
    Kinds,
    Method,
    Object,
    Real,
)
from asyncmon.tf1.port.plan import ENTERING, PLAIN_METHODS, Plan, a_class
from asyncmon.tf1.port.source import DEFS, Source, decorators, dotted, is_guard, last_name, path_of
from asyncmon.tf1.port.threads import is_lock, is_on_loop

# Functions that accept an async function.
_CALLS_ASYNC = ("asyncio.", "functools.", "threading.Thread", "absl.app.run")

_ADDS = frozenset(["append", "add", "insert", "setdefault", "extend", "update", "appendleft"])
_PLAIN_BASES = frozenset(["builtins.object", "abc.ABC", "typing.Generic", "typing.NamedTuple"])
_BASES = {
    "threading.Thread": "make it a task",
    "unittest.TestCase": "derive from unittest.IsolatedAsyncioTestCase",
}
_KNOWN_DECORATORS = frozenset(
    [
        "staticmethod", "classmethod", "abstractmethod", "contextmanager", "asynccontextmanager",
        "wraps", "override", "no_type_check",
    ]
)  # fmt: skip
_DYNAMIC = frozenset({"eval", "exec", "getattr"})
_HARMLESS = frozenset(
    ["isinstance", "print", "getattr", "hasattr", "callable", "super", "repr", "type", "id"]
)


class Notes:
    """Adds the notes on a file to the plan."""

    def __init__(self, source: Source, plan: Plan) -> None:
        self.source = source
        self.plan = plan
        self.blocking = _blocking(plan)
        for node in source.nodes:
            self._see(node)
            if text := absent.why(plan.types, source, node):
                self._note(node, text)

    def _see(self, node: ast.AST) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                for text in imports.rewritten(node)[1]:
                    self._note(node, text)
                self._imported(node)
            case ast.Attribute():
                self._missing(node)
                self._property(node)
                if node.attr.endswith("__flags") and last_name(node.value) == "FLAGS":
                    text = "has objects of absl: the values are in flag_values_dict()"
                    self._note(node, f"`{dotted(node)}` {text}")
            case ast.ClassDef():
                self._overrides(node)
            case ast.FunctionDef():
                self._decorated(node)
            case ast.Call():
                self._call(node)
            case ast.With() if node not in self.plan.withs:
                locks = any(is_lock(self.plan, self.source, i.context_expr) for i in node.items)
                awaiting = self.plan.awaiting()
                if locks and any(one in awaiting for one in ast.walk(node)):
                    text = "a lock is held across an await: use asyncio.Lock and `async with`"
                    self._note(node, text)

    def _note(self, node: ast.AST, text: str) -> None:
        self.plan.note(self.source, node, text)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        """Note imports of files that run a session when they are imported."""
        for path in imports.modules_of(node):
            found = self.plan.types.find(self.source, path)
            if found is None or found is self.source:
                continue
            sites = (n for n in found.nodes if n in self.plan.sites)
            if any(not is_guard(found.top(site)) for site in sites):
                text = "runs a session when it is imported: make that a function, and await it here"
                self._note(node, f"`{path}` {text}")

    def _missing(self, node: ast.Attribute) -> None:
        for kind in self.plan.of(self.source, node.value):
            if not isinstance(kind, Real) or not isinstance(kind.value, ModuleType):
                continue
            outer = self.source.parent[node]
            keyword = self.source.parent.get(outer)
            if isinstance(keyword, ast.keyword) and is_sum(keyword.value):
                continue
            if (kind.value is tf and node.attr == "compat") or node.attr == "LooperThread":
                continue
            try:
                names.member(kind.value, node.attr)
            except AttributeError as error:
                if node.attr not in ("disable_v2_behavior", "disable_eager_execution"):
                    self._note(node, f"`{dotted(node)}`: {error}")

    def _property(self, node: ast.Attribute) -> None:
        """Note uses of properties that have to become async methods."""
        if isinstance(node.ctx, ast.Load):
            for found in self.plan.types.sources:
                for one in self.plan.properties:
                    if one in found.holder and getattr(one, "name", "") == node.attr:
                        self._uses_property(node, found, one)

    def _uses_property(self, node: ast.Attribute, home: Source, function: ast.AST) -> None:
        kinds, owner = self.plan.of(self.source, node.value), home.owner(function)
        mine = [kind.of for kind in kinds if isinstance(kind, Object)]
        if owner is not None and (
            not kinds or any(owner is c.node for of in mine for c in self.plan.types.ancestors(of))
        ):
            text = path_of(self.source, node)
            self._note(node, f"`{text}` runs a session: `await {text}()` of an async method")

    def _overrides(self, node: ast.ClassDef) -> None:
        """Note async methods whose class derives from one of another package, which does not await."""
        mine = sorted(f.name for f in node.body if isinstance(f, DEFS) and f in self.plan.functions)
        for base in self.plan.types.bases.get(node, ()):
            if mine and isinstance(base, Foreign) and base.path not in _PLAIN_BASES:
                text = f"`{node.name}` derives from {base.path} and awaits in {', '.join(mine)}"
                hint = _BASES.get(base.path)
                self._note(node, text + (f": {hint}" if hint else ""))

    def _decorated(self, node: ast.FunctionDef) -> None:
        unknown = decorators(node) - _KNOWN_DECORATORS
        if unknown and node in self.plan.functions:
            text = f"`{node.name}` is async: see whether @{', @'.join(sorted(unknown))} awaits it"
            self._note(node, text)

    def _call(self, call: ast.Call) -> None:
        plan, source = self.plan, self.source
        kinds = plan.of(source, call.func)
        targets = plan.types.targets(source, call.func)
        name, shown = last_name(call.func), path_of(source, call.func)
        method = isinstance(call.func, ast.Attribute)
        inner: ast.expr = getattr(call.func, "value", call.func)
        awaits = plan.is_told(source, call)
        if len({plan.is_coroutine(target) for target in targets}) == 2:
            self._note(call, f"`{shown}` may be async or not here: make them all async")
        self._given(call, kinds, awaits)
        unknown = all(isinstance(k, Foreign) and not k.known for k in kinds)
        if awaits or plan.gives_awaitable(source, call):
            pass  # awaited, or listed with the reason
        elif (why := blocking.why(kinds, call)) and is_on_loop(plan, source, call):
            self._note(call, f"`{shown}` holds the event loop: {why}")
        elif self._blocks(call) and is_on_loop(plan, source, call):
            self._note(
                call, f"`{shown}` holds the event loop: it blocks in its file: await asyncio.to_thread"
            )
        elif not method or not unknown or (kinds and not plan.of(source, inner)):
            pass
        elif any(plan.owners(name).values()) and not self._is_plain(call):
            self._note(call, f"`{shown}` is not known: await it if it has become async")
        elif name in names.AWAITED and not (kinds or self._is_plain(call) or plan.owners(name)):
            self._note(call, f"`{shown}` is not known: await it if {a_class(name)} has it")
        entered = not plan.of(source, inner) or plan.is_entered(source, inner)
        inside = isinstance(source.holder[call], ast.ClassDef)
        if name in ENTERING and method and entered and not (awaits or inside):
            text = "by hand: use `async with`, or contextlib.AsyncExitStack"
            self._note(call, f"`{shown}` {text}")
        self._dynamic(call, kinds)

    def _blocks(self, call: ast.Call) -> bool:
        """Return whether a call runs a function or a method of another file that blocks."""
        targets = self.plan.types.targets(self.source, call.func)
        if targets:
            return any(t.source is not self.source and t.node in self.blocking for t in targets)
        if not isinstance(call.func, ast.Attribute) or self.plan.of(self.source, call.func):
            return False
        found = [one for one in self.plan._owners.get(call.func.attr, ()) if one.node in self.blocking]
        owners = [owner.name for one in found if (owner := one.source.owner(one.node))]
        return bool(owners) and self.plan.fits(self.source, call, owners)

    def _is_plain(self, call: ast.Call) -> bool:
        """Return whether a call is probably that of a string or container: ``x[0].decode()``."""
        return last_name(call.func) in PLAIN_METHODS and not (
            isinstance(call.func, ast.Attribute) and dotted(call.func.value)
        )

    def _given(self, call: ast.Call, kinds: Kinds, awaits: bool) -> None:
        """Note async functions and sessions that are passed to something that may not await them."""
        plan, source, shown = self.plan, self.source, path_of(self.source, call.func)
        paths = [kind.path for kind in kinds if isinstance(kind, Foreign)]
        ours = any(not isinstance(kind, Foreign) for kind in kinds)
        adds = isinstance(call.func, ast.Attribute) and call.func.attr in _ADDS
        harmless = any(p.startswith(_CALLS_ASYNC) or p.rpartition(".")[2] in _HARMLESS for p in paths)
        if ours or adds or harmless:
            return
        for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
            for kind in plan.of(source, value):
                function = isinstance(kind, Method | Def) and not (
                    isinstance(kind, Def) and isinstance(kind.node, ast.ClassDef)
                )
                if function and plan.is_async(kind):
                    text = f"`{path_of(source, value)}` is async and is passed to `{shown}`"
                    self._note(call, f"{text}, which may not await it")
                enters = shown.endswith("enter_context") or any(
                    path.startswith("contextlib.") for path in paths
                )
                session = isinstance(kind, Instance) and kind.name in names.SESSIONS
                known = any(
                    isinstance(k, Foreign) and (k.known or imports.is_tensorflow(k.path)) for k in kinds
                )
                if enters and plan.is_entered(source, value):
                    text = f"`{shown}` does not enter `{path_of(source, value)}`: use `async with`"
                    self._note(call, text)
                elif session and not known and not awaits:
                    text = f"`{shown}` is not of this file and gets a session"
                    self._note(call, f"{text}: await it if it has become async")

    def _dynamic(self, call: ast.Call, kinds: Kinds) -> None:
        """Note code in strings, and attributes by name, that may be async."""
        paths = {kind.path.removeprefix("builtins.") for kind in kinds if isinstance(kind, Foreign)}
        by_name = "getattr" in paths
        if not paths & _DYNAMIC or len(call.args) <= by_name:
            return
        node = call.args[by_name]
        text = node.value if isinstance(node, ast.Constant) else None
        if by_name:
            owners = self.plan.of(self.source, call.args[0])
            mine = any(isinstance(kind, Instance) and kind.name != "Tensor" for kind in owners)
            due = (text in names.AWAITED if isinstance(text, str) else mine) and (mine or not owners)
        else:
            due = text is None or any(f".{name}(" in str(text) for name in names.AWAITED)
        if due:
            shown = path_of(self.source, call)
            self._note(call, f"`{shown}` is not followed: await what it runs of a session")


def _blocking(plan: Plan) -> set[ast.AST]:
    """Return the plain functions of a program that block a thread, by their calls or by callees."""
    if plan.blocking is None:
        found: set[ast.AST] = set()
        before = -1
        while before != (before := len(found)):
            for source in plan.types.sources:
                for call in source.calls:
                    holder = source.holder[call]
                    if holder in found or holder in plan.functions or not isinstance(holder, DEFS):
                        continue
                    kinds = plan.of(source, call.func)
                    targets = plan.types.targets(source, call.func)
                    if (kinds and blocking.why(kinds, call)) or any(t.node in found for t in targets):
                        found.add(holder)
        plan.blocking = found
    return plan.blocking
