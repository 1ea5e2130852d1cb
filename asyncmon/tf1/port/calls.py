"""Calls: bind arguments to parameters of functions in the file, and find the kinds of results."""

from __future__ import annotations

import libcst as cst

from asyncmon.tf1.port import blocking, catalogue
from asyncmon.tf1.port.kinds import (
    NOTHING,
    SYMBOL,
    VALUE,
    Callback,
    Elements,
    Foreign,
    Func,
    Generator,
    Instance,
    Items,
    Kind,
    Kinds,
    Local,
    Manager,
    Method,
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
from asyncmon.tf1.port.scopes import decorators
from asyncmon.tf1.port.store import Store

KEEPING = frozenset({"list", "tuple", "set", "sorted", "reversed", "iter"})
"""Builtins whose result has the elements of the argument."""

MANAGERS = frozenset({"contextmanager", "asynccontextmanager"})

CALLS_BACK = {
    "run_step_fn": ("StepContext",),
    "basic_train_loop": ("Session",),
    "FinalOpsHook": ("Session",),
}
"""The arguments with which functions of asyncmon call the functions passed to them."""

_INIT_FN = {"Scaffold": ("Scaffold", "Session"), "Supervisor": ("Session",)}


def argument(call: cst.Call, position: int | None, keyword: str) -> cst.BaseExpression | None:
    """Return an argument of a call by its position or keyword."""
    for index, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == keyword:
            return arg.value
        if arg.keyword is None and not arg.star and index == position:
            return arg.value
    return None


def local_target(flow: Store, kind: Kind) -> tuple[cst.FunctionDef | cst.Lambda, bool] | None:
    """Return the function of the file that a call of this kind runs, and whether it is bound."""
    if isinstance(kind, Func):
        return kind.node, kind.bound
    name = "__init__" if isinstance(kind, Local) else "__call__"
    if isinstance(kind, Local | Instance) and isinstance(kind.of, cst.ClassDef):
        found = flow.method(kind.of, name)
        if isinstance(found, cst.FunctionDef):
            return found, True
    return None


def bind_call(flow: Store, call: cst.Call) -> None:
    """Add the kinds of a call's arguments to the parameters of functions in the file."""
    callee = flow.kinds(call.func)
    for kind in callee:
        target = local_target(flow, kind)
        if target is not None:
            _bind_arguments(flow, *target, call)
        elif isinstance(kind, Foreign) and kind.path in ("threading.Thread", "functools.partial"):
            _bind_deferred(flow, kind.path, call)
        elif isinstance(kind, Real | Method):
            _bind_callbacks(flow, kind, call)
    if isinstance(call.func, cst.Attribute) and call.args:
        adds = call.func.attr.value
        if adds in ("append", "add", "appendleft"):
            flow.assign(call.func.value, elements(flow.kinds(call.args[0].value)))
        elif adds == "extend":
            flow.assign(call.func.value, elements(each(flow.kinds(call.args[0].value))))


def _bind_arguments(
    flow: Store, function: cst.FunctionDef | cst.Lambda, bound: bool, call: cst.Call
) -> None:
    given = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
    bind_positions(flow, function, bound, [flow.kinds(value) for value in given])
    scope = flow.tree.scopes[function]
    for arg in call.args:
        if arg.keyword is not None:
            flow.bind(scope, arg.keyword.value, flow.kinds(arg.value))


def bind_positions(
    flow: Store, function: cst.FunctionDef | cst.Lambda, bound: bool, given: list[Kinds]
) -> None:
    """Add the kinds of positional arguments to the parameters of a function."""
    parameters = [*function.params.posonly_params, *function.params.params]
    if bound and not (isinstance(function, cst.FunctionDef) and "staticmethod" in decorators(function)):
        parameters = parameters[1:]
    for parameter, kinds in zip(parameters, given, strict=False):
        flow.bind(flow.tree.scopes[function], parameter.name.value, kinds)


def _bind_deferred(flow: Store, path: str, call: cst.Call) -> None:
    if path == "functools.partial":
        first = call.args[0].value if call.args else None
        given = [flow.kinds(arg.value) for arg in call.args[1:] if arg.keyword is None]
    else:
        first = argument(call, 1, "target")
        args = argument(call, 3, "args")
        given = _listed(flow, args)
    _bind_function(flow, first, given)


def _listed(flow: Store, node: cst.BaseExpression | None) -> list[Kinds]:
    if isinstance(node, cst.Tuple | cst.List):
        return [flow.kinds(item.value) for item in node.elements]
    return []


def _bind_function(flow: Store, node: cst.BaseExpression | None, given: list[Kinds]) -> None:
    for kind in NOTHING if node is None else flow.kinds(node):
        if target := local_target(flow, kind):
            bind_positions(flow, *target, given)


def _bind_callbacks(flow: Store, kind: Real | Method, call: cst.Call) -> None:
    name = kind.name if isinstance(kind, Method) else getattr(kind.value, "__name__", "")
    if name in ("loop", "Loop"):
        method = isinstance(kind, Method)
        _bind_function(
            flow,
            argument(call, 1 if method else 2, "target"),
            _listed(flow, argument(call, 2 if method else 3, "args")),
        )
    elif name == "create_task" and call.args:
        _bind_function(flow, call.args[0].value, [flow.kinds(arg.value) for arg in call.args[1:]])
    elif name == "basic_train_loop":
        given = [catalogue.instance("Session"), *_listed(flow, argument(call, 2, "args"))]
        _bind_function(flow, argument(call, 1, "train_step_fn"), given)
    elif name in CALLS_BACK:
        _bind_function(
            flow, argument(call, 0, "step_fn"), list(map(catalogue.instance, CALLS_BACK[name]))
        )
    elif name in _INIT_FN:
        given = list(map(catalogue.instance, _INIT_FN[name]))
        _bind_function(flow, argument(call, None, "init_fn"), given)


def call_results(flow: Store, call: cst.Call) -> Kinds:
    """Return the kinds of a call's result, awaited if the call is."""
    found = union(_result(flow, kind, call) for kind in flow.kinds(call.func))
    return found | _of_container(flow, call.func)


def _of_container(flow: Store, func: cst.BaseExpression) -> Kinds:
    """Return the kinds of the result of a method of a list or dict."""
    if not isinstance(func, cst.Attribute):
        return NOTHING
    held = frozenset(kind for kind in flow.kinds(func.value) if isinstance(kind, Elements | Items))
    name = func.attr.value
    if not held or name not in ("get", "pop", "popleft", "setdefault", "values", "copy", "items"):
        return NOTHING
    if name in ("values", "copy"):
        return held
    return elements(items([VALUE, each(held)])) if name == "items" else each(held)


def _result(flow: Store, kind: Kind, call: cst.Call) -> Kinds:
    if isinstance(kind, Local):
        return one(Instance(kind.of))
    if target := local_target(flow, kind):
        return _local_result(flow, target[0])
    if isinstance(kind, Real):
        return catalogue.called(kind.value) if callable(kind.value) else NOTHING
    if isinstance(kind, Method):
        return catalogue.method_called(kind.owner, kind.name)
    if isinstance(kind, Symbol):
        name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        return VALUE if name in catalogue.SYMBOL_AWAITED else SYMBOL
    if isinstance(kind, Value | Callback):
        return VALUE
    return _foreign(flow, kind, call) if isinstance(kind, Foreign) else NOTHING


def _local_result(flow: Store, function: cst.FunctionDef | cst.Lambda) -> Kinds:
    if function in flow.generators and isinstance(function, cst.FunctionDef):
        if decorators(function) & MANAGERS:
            return one(Manager(NOTHING, function))
        return one(Generator(function))
    return frozenset(flow.returns[function])


def _foreign(flow: Store, kind: Foreign, call: cst.Call) -> Kinds:
    package, _, name = kind.path.rpartition(".")
    first = flow.kinds(call.args[0].value) if call.args else NOTHING
    if kind.path == "threading.Thread":
        return one(Thread())
    if kind.path in ("asyncio.create_task", "asyncio.ensure_future"):
        return one(Thread())
    if kind.path == "functools.partial":
        return first
    if package == "builtins":
        if name == "super":
            holder = flow.tree.holder(call)
            owner = flow.tree.is_method(holder)
            return NOTHING if owner is None else one(Super(owner))
        if name in KEEPING:
            return first
        if name == "enumerate":
            return elements(items([VALUE, flow.iterated(call.args[0].value) if call.args else NOTHING]))
        if name == "zip":
            return elements(items(flow.iterated(arg.value) for arg in call.args))
        if name == "next":
            return flow.iterated(call.args[0].value) if call.args else NOTHING
        if name in ("anext", "getattr", "eval", "map", "filter"):
            return NOTHING
    if kind.path.startswith("tensorflow."):
        return SYMBOL  # most functions of TensorFlow return tensors
    if made := blocking.made(kind.path, call):
        return one(Foreign(f"{made}()"))
    if flow.siblings.is_class(kind.path):
        return one(Foreign(f"{kind.path}()", known=False))
    return VALUE if kind.known else NOTHING
