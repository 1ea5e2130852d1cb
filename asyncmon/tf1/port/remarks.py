"""Notes on code that the plan leaves unchanged, with the line and the reason."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import libcst as cst

import asyncmon.tf1 as tf
from asyncmon.tf1.port import catalogue, imports
from asyncmon.tf1.port.calls import local_target
from asyncmon.tf1.port.kinds import Foreign, Func, Instance, Method, Real
from asyncmon.tf1.port.plan import Planner
from asyncmon.tf1.port.scopes import decorators, dotted

PYTHON_2 = frozenset(
    ["xrange", "raw_input", "unicode", "basestring", "iteritems", "itervalues", "has_key"]
)

BLOCKING = frozenset(
    ["builtins.input", "subprocess.call", "subprocess.check_call", "subprocess.check_output"]
)

WAITS = frozenset(["get", "put", "join", "wait"])

CALLS_ASYNC = ("asyncio.", "functools.", "threading.Thread", "absl.app.run")
"""Functions that accept an async function."""

ADDS = frozenset(["append", "add", "insert", "setdefault", "extend", "update", "appendleft"])

PLAIN_BASES = frozenset(["builtins.object", "abc.ABC", "typing.Generic", "typing.NamedTuple"])

BASES = {
    "threading.Thread": "make it a task",
    "unittest.TestCase": "derive from unittest.IsolatedAsyncioTestCase",
}

KNOWN_DECORATORS = frozenset(
    [
        "staticmethod", "classmethod", "abstractmethod", "contextmanager", "asynccontextmanager",
        "wraps", "override", "no_type_check",
    ]
)  # fmt: skip

HARMLESS = frozenset(
    ["isinstance", "print", "getattr", "hasattr", "callable", "super", "repr", "type", "id"]
)


def add_remarks(planner: Planner) -> None:
    """Add notes on code that the plan does not change."""
    for node in planner.tree.nodes:
        if isinstance(node, cst.Import | cst.ImportFrom):
            _, notes = imports.rewritten(node)
            for text in notes:
                planner.note(node, text)
        elif isinstance(node, cst.Attribute) and not planner.tree.in_import(node):
            _missing(planner, node)
        elif isinstance(node, cst.ClassDef):
            _overrides(planner, node)
        elif isinstance(node, cst.FunctionDef):
            _decorated(planner, node)
        elif isinstance(node, cst.Call):
            _call(planner, node)
        elif isinstance(node, cst.With) and node not in planner.plan.withs:
            _lock(planner, node)
        if isinstance(node, cst.Name) and node.value in PYTHON_2 and not planner.tree.binder(node):
            planner.note(node, f"`{node.value}` is Python 2: run 2to3 first")


def _overrides(planner: Planner, node: cst.ClassDef) -> None:
    """Note async methods whose class derives from one of another package, which does not await."""
    bases = [base for base in planner.flow.bases[node] if isinstance(base, Foreign)]
    functions = [f for f in planner.plan.functions if isinstance(f, cst.FunctionDef)]
    mine = [f.name.value for f in functions if planner.tree.is_method(f) is node]
    for base in bases:
        if mine and base.path not in PLAIN_BASES and not planner.flow.siblings.knows(base.path):
            text = (
                f"`{node.name.value}` derives from {base.path} and awaits in {', '.join(sorted(mine))}"
            )
            planner.note(node, text + (f": {hint}" if (hint := BASES.get(base.path)) else ""))


def _decorated(planner: Planner, node: cst.FunctionDef) -> None:
    unknown = decorators(node) - KNOWN_DECORATORS
    if unknown and node in planner.plan.functions and node.asynchronous is None:
        text = f"`{node.name.value}` is async: see whether @{', @'.join(sorted(unknown))} awaits it"
        planner.note(node, text)


def _missing(planner: Planner, node: cst.Attribute) -> None:
    for kind in planner.flow.kinds(node.value):
        if isinstance(kind, Real) and isinstance(kind.value, ModuleType):
            name = node.attr.value
            if (kind.value is tf and name == "compat") or name == "LooperThread":
                continue
            try:
                getattr(kind.value, name)
            except AttributeError as error:
                if name not in ("v1", "disable_v2_behavior", "disable_eager_execution"):
                    planner.note(node, f"`{dotted(node)}`: {error}")


def _call(planner: Planner, call: cst.Call) -> None:
    flow, plan = planner.flow, planner.plan
    kinds = flow.kinds(call.func)
    targets = [t[0] for t in (local_target(flow, kind) for kind in kinds) if t is not None]
    if targets and len({planner.is_coroutine(target) for target in targets}) == 2:
        planner.note(call, f"`{_text(call.func)}` may be async or not here: make them all async")
    name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    awaits = call in plan.awaited or isinstance(planner.tree.parent(call), cst.Await)
    if name == "run" and not kinds and not awaits:
        planner.note(call, f"`{_text(call.func)}` is not known: await it if it runs a session")
    paths = [kind.path for kind in kinds if isinstance(kind, Foreign)]
    ours = any(isinstance(kind, Real | Method | Instance) for kind in kinds) or bool(targets)
    takes = name in ADDS or any(
        path.startswith(CALLS_ASYNC) or path.rpartition(".")[2] in HARMLESS for path in paths
    )
    unknown = not any(_known(kinds) or planner.flow.siblings.knows(path) for path in paths)
    for arg in call.args:
        if not ours and not takes:
            _given(planner, call, arg.value, awaits, unknown=unknown)
    holder = planner.tree.holder(call)
    if "time.sleep" in paths and call not in plan.awaited and _is_called_async(planner, holder):
        planner.note(
            call, "`time.sleep` holds the event loop: `await asyncio.sleep` in an async function"
        )
    waits = any("()." in path and name in WAITS for path in paths)
    if holder in plan.functions and (waits or set(paths) & BLOCKING):
        planner.note(call, f"`{_text(call.func)}` holds the event loop: await asyncio.to_thread")


def _known(kinds: Iterable[object]) -> bool:
    return any(isinstance(kind, Foreign) and kind.known for kind in kinds)


def _given(
    planner: Planner, call: cst.Call, value: cst.BaseExpression, awaits: bool, *, unknown: bool
) -> None:
    for kind in planner.flow.kinds(value):
        method = isinstance(kind, Method) and catalogue.method_awaited(kind.owner, kind.name)
        if method or (isinstance(kind, Func) and planner.is_coroutine(kind.node)):
            text = f"`{_text(value)}` is async and is passed to `{_text(call.func)}`"
            planner.note(call, f"{text}, which may not await it")
        session = isinstance(kind, Instance) and kind.of in (
            catalogue.CLASSES["Session"],
            catalogue.CLASSES["MonitoredSession"],
        )
        if session and _text(call.func).startswith(("contextlib.", "closing", "stack.enter")):
            planner.note(call, f"`{_text(call.func)}` does not enter a session: use `async with`")
        elif session and unknown and not awaits and call not in planner.plan.awaited:
            text = f"`{_text(call.func)}` is not of this file and gets a session"
            planner.note(call, f"{text}: await it if it has become async")


def _is_called_async(planner: Planner, function: cst.CSTNode) -> bool:
    if isinstance(function, cst.Module):
        return bool(planner.plan.sites)
    for call in planner.calls:
        if planner.tree.holder(call) in planner.plan.functions:
            for kind in planner.flow.kinds(call.func):
                target = local_target(planner.flow, kind)
                if target is not None and target[0] is function:
                    return True
    return False


def _lock(planner: Planner, node: cst.With) -> None:
    if node.asynchronous is not None:
        return
    names = [dotted(item.item).rpartition(".")[2].lower() for item in node.items]
    if any(name.endswith(("lock", "mutex", "semaphore")) for name in names) and any(
        call in planner.plan.awaited and _is_inside(planner, call, node) for call in planner.calls
    ):
        planner.note(node, "a lock is held across an await: use asyncio.Lock and `async with`")


def _is_inside(planner: Planner, node: cst.CSTNode | None, outer: cst.CSTNode) -> bool:
    while node is not None and node is not outer:
        node = planner.tree.parent(node)
    return node is outer


def _text(node: cst.BaseExpression) -> str:
    return cst.Module([]).code_for_node(node)
