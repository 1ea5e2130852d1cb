"""Notes on code that the plan leaves unchanged, with the line and the reason."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import libcst as cst

import asyncmon.tf1 as tf
from asyncmon.tf1.port import absent, blocking, catalogue, imports
from asyncmon.tf1.port.kinds import Foreign, Func, Instance, Method, Real
from asyncmon.tf1.port.plan import ENTERING, SESSIONS, Planner
from asyncmon.tf1.port.scopes import decorators, dotted

CALLS_ASYNC = ("asyncio.", "functools.", "threading.Thread", "absl.app.run")
"""Functions that accept an async function."""

ADDS = frozenset(["append", "add", "insert", "setdefault", "extend", "update", "appendleft"])

PLAIN_BASES = frozenset(["builtins.object", "abc.ABC", "typing.Generic", "typing.NamedTuple"])

BASES = {
    "threading.Thread": "make it a task",
    "unittest.TestCase": "derive from unittest.IsolatedAsyncioTestCase",
}

LOCKS = ("threading.", "multiprocessing.")

KNOWN_DECORATORS = frozenset(
    [
        "staticmethod", "classmethod", "abstractmethod", "contextmanager", "asynccontextmanager",
        "wraps", "override", "no_type_check",
    ]
)  # fmt: skip

PLAIN_METHODS = frozenset(n for kind in (bytes, dict, list, set, str) for n in dir(kind))

DYNAMIC = frozenset({"eval", "exec", "getattr"})

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
            _imported(planner, node)
        elif isinstance(node, cst.Attribute) and not planner.tree.in_import(node):
            _missing(planner, node)
            _flags(planner, node)
            _property(planner, node)
        elif isinstance(node, cst.ClassDef):
            _overrides(planner, node)
        elif isinstance(node, cst.FunctionDef):
            _decorated(planner, node)
        elif isinstance(node, cst.Call):
            _call(planner, node)
        elif isinstance(node, cst.With) and node not in planner.plan.withs:
            _lock(planner, node)
        if text := absent.why(planner.flow, node):
            planner.note(node, text)


def _imported(planner: Planner, node: cst.Import | cst.ImportFrom) -> None:
    """Note imports of files that run a session when they are imported."""
    names = [] if isinstance(node.names, cst.ImportStar) else [dotted(a.name) for a in node.names]
    if isinstance(node, cst.ImportFrom):
        base = "." * len(node.relative) + dotted(node.module)
        names = [base, *(f"{base}{'' if node.module is None else '.'}{name}" for name in names)]
    for name in names:
        if planner.flow.siblings.facts(name).runs:
            text = "runs a session when it is imported: make that a function, and await it here"
            planner.note(node, f"`{name}` {text}")


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
            outer = planner.tree.parent(planner.tree.parent(node) or node)
            if catalogue.is_alias(kind.value, name) or catalogue.is_sum(outer):
                continue
            if (kind.value is tf and name == "compat") or name == "LooperThread":
                continue
            try:
                getattr(kind.value, name)
            except AttributeError as error:
                if name not in ("v1", "disable_v2_behavior", "disable_eager_execution"):
                    planner.note(node, f"`{dotted(node)}`: {error}")


def _flags(planner: Planner, node: cst.Attribute) -> None:
    """Note uses of ``FLAGS.__flags``, which had the values of flags in the first releases of TF1."""
    if node.attr.value == "__flags" and dotted(node.value).rpartition(".")[2] == "FLAGS":
        text = "has objects of absl: the values are in flag_values_dict()"
        planner.note(node, f"`{dotted(node)}` {text}")


def _call(planner: Planner, call: cst.Call) -> None:
    flow, plan = planner.flow, planner.plan
    kinds = flow.kinds(call.func)
    targets = planner.targets(call)
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
    unknown = not any(
        _known(kinds) or planner.flow.siblings.knows(path) or imports.is_tensorflow(path)
        for path in paths
    )  # what asyncmon.tf1 lacks of TensorFlow is listed by its name
    for arg in call.args:
        if not ours and not takes:
            _given(planner, call, arg.value, awaits, unknown=unknown)
    if awaits or planner.gives_awaitable(call) or _inherits(planner, call):
        pass  # awaited, listed with the reason, or a method of a known class
    elif (hint := blocking.why(kinds, call)) and planner.is_on_loop(call):
        planner.note(call, f"`{_text(call.func)}` holds the event loop: {hint}")
    elif _blocks_elsewhere(planner, call, name, paths) and planner.is_on_loop(call):
        text = "it blocks in its file: await asyncio.to_thread"
        planner.note(call, f"`{_text(call.func)}` holds the event loop: {text}")
    elif not kinds and name in catalogue.ASYNC_NAMES and name != "run":
        planner.note(call, f"`{_text(call.func)}` is not known: await it if {_owners(name)} has it")
    elif not kinds and name and any(planner.owners(name).values()) and not _is_plain(call):
        planner.note(call, f"`{_text(call.func)}` is not known: await it if it has become async")
    if not awaits and name in ENTERING and not isinstance(planner.tree.holder(call), cst.ClassDef):
        _entered_by_hand(planner, call)
    if builtin := {path.removeprefix("builtins.") for path in paths} & DYNAMIC:
        _dynamic(planner, call, *builtin)


def _blocks_elsewhere(planner: Planner, call: cst.Call, name: str, paths: list[str]) -> bool:
    """Return whether a call runs a function or a method of another file that blocks."""
    siblings = planner.flow.siblings
    if paths or not name:
        return any(map(siblings.blocks, paths))
    return planner.fits(call, siblings.blockers(name))


def _entered_by_hand(planner: Planner, call: cst.Call) -> None:
    assert isinstance(call.func, cst.Attribute), "it has a name"
    entered = call.func.value
    if planner.is_entered(entered) or not planner.flow.kinds(entered):
        text = f"`{_text(call.func)}` by hand: use `async with`, or contextlib.AsyncExitStack"
        planner.note(call, text)


def _dynamic(planner: Planner, call: cst.Call, builtin: str) -> None:
    """Note code in strings, and attributes by name, that may be async."""
    index = 1 if builtin == "getattr" else 0
    if len(call.args) <= index:
        return
    node = call.args[index].value
    text = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    if builtin == "getattr":
        owners = planner.flow.kinds(call.args[0].value)
        mine = any(isinstance(kind, Instance) for kind in owners)
        due = text in catalogue.ASYNC_NAMES if isinstance(text, str) else mine
        due = due and (mine or not owners)
    else:
        due = text is None or any(f".{name}(" in str(text) for name in catalogue.ASYNC_NAMES)
    if due:
        planner.note(call, f"`{_text(call)}` is not followed: await what it runs of a session")


def _property(planner: Planner, node: cst.Attribute) -> None:
    """Note uses of properties that have to become async methods."""
    name = node.attr.value
    for function in planner.properties:
        owner = planner.tree.is_method(function)
        if owner is None or not isinstance(function, cst.FunctionDef) or function.name.value != name:
            continue
        kinds = planner.flow.kinds(node.value)
        family = planner.flow.family(owner)
        if not kinds or any(isinstance(kind, Instance) and kind.of in family for kind in kinds):
            text = f"`{_text(node)}` runs a session: `await {_text(node)}()` of an async method"
            planner.note(node, text)


def _is_plain(call: cst.Call) -> bool:
    """Return whether a call is probably that of a string or container: ``x[0].decode()``."""
    assert isinstance(call.func, cst.Attribute), "it has a name"
    return call.func.attr.value in PLAIN_METHODS and not dotted(call.func.value)


def _inherits(planner: Planner, call: cst.Call) -> bool:
    """Return whether a method is that of a class in the file which derives from known ones."""
    flow = planner.flow
    if not isinstance(call.func, cst.Attribute) or flow.kinds(call.func):
        return False
    owners = flow.kinds(call.func.value)
    nodes = [k.of for k in owners if isinstance(k, Instance) and isinstance(k.of, cst.ClassDef)]
    bases = [flow.kinds(base.value) for node in nodes for c in flow.ancestors(node) for base in c.bases]
    known = all(kinds and _known(kinds, default=True) for kinds in bases)
    return bool(bases) and len(nodes) == len(owners) and known


def _known(kinds: Iterable[object], *, default: bool = False) -> bool:
    """Return whether an object is of a known package; ``default`` for those of no package."""
    return any(kind.known if isinstance(kind, Foreign) else default for kind in kinds)


def _given(
    planner: Planner, call: cst.Call, value: cst.BaseExpression, awaits: bool, *, unknown: bool
) -> None:
    for kind in planner.flow.kinds(value):
        method = isinstance(kind, Method) and catalogue.method_awaited(kind.owner, kind.name)
        if method or (isinstance(kind, Func) and planner.is_coroutine(kind.node)):
            text = f"`{_text(value)}` is async and is passed to `{_text(call.func)}`"
            planner.note(call, f"{text}, which may not await it")
        session = isinstance(kind, Instance) and kind.of in SESSIONS
        if _enters(planner, call) and planner.is_entered(value):
            planner.note(
                call, f"`{_text(call.func)}` does not enter `{_text(value)}`: use `async with`"
            )
        elif session and unknown and not awaits and call not in planner.plan.awaited:
            text = f"`{_text(call.func)}` is not of this file and gets a session"
            planner.note(call, f"{text}: await it if it has become async")


def _owners(name: str) -> str:
    """Return the classes of asyncmon with an async method of a name, as a text."""
    found = catalogue.ASYNC_NAMES[name]
    return f"a {found[0]}" if len(found) == 1 else f"a {', '.join(found[:-1])} or {found[-1]}"


def _enters(planner: Planner, call: cst.Call) -> bool:
    """Return whether a call enters or closes the context manager that it gets."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "enter_context":
        return True
    kinds = planner.flow.kinds(call.func)
    return any(isinstance(k, Foreign) and k.path.startswith("contextlib.") for k in kinds)


def _lock(planner: Planner, node: cst.With) -> None:
    if node.asynchronous is not None:
        return
    if any(_is_lock(planner, item.item) for item in node.items) and any(
        planner.tree.is_inside(one, node) for one in planner.awaiting()
    ):
        planner.note(node, "a lock is held across an await: use asyncio.Lock and `async with`")


def _is_lock(planner: Planner, node: cst.BaseExpression) -> bool:
    kinds = planner.flow.kinds(node)
    if any(isinstance(k, Foreign) and k.path.startswith(LOCKS) for k in kinds):
        return True
    name = dotted(node).rpartition(".")[2].lower()
    return name.endswith(("lock", "mutex", "semaphore", "condition")) and not any(
        isinstance(k, Foreign) and k.path.startswith("asyncio.") for k in kinds
    )


def _text(node: cst.BaseExpression) -> str:
    return cst.Module([]).code_for_node(node)
