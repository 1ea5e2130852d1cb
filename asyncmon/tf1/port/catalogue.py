"""The public classes of asyncmon: which methods are awaited, entered or iterated.

The classes are inspected; the tables below have only what their signatures lack.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from types import ModuleType
from typing import Any

import libcst as cst

import asyncmon
import asyncmon.tf1 as tf
from asyncmon.tf1.port.kinds import (
    NOTHING,
    SYMBOL,
    VALUE,
    Callback,
    Elements,
    Foreign,
    Instance,
    Kinds,
    Manager,
    Method,
    Opened,
    Real,
    Stream,
    Thread,
    one,
    union,
)
from asyncmon.tf1.port.scopes import dotted

SYMBOLS = frozenset({"Tensor", "Operation", "Variable", "IndexedSlices"})

SYMBOL_AWAITED = frozenset({"eval", "run", "load"})
"""The methods of tensors, variables and operations that are awaited."""

NO_SYMBOLS = ("flags", "logging", "gfile", "app", "compat", "python_io")
"""Modules below ``tf.`` whose functions make no tensors."""

ATTRIBUTES = {
    ("Supervisor", "saver"): "Saver",
    ("Supervisor", "coord"): "Coordinator",
    ("Supervisor", "summary_writer"): "FileWriter",
    ("Supervisor", "session_manager"): "SessionManager",
    ("SessionRunContext", "session"): "Session",
    ("StepContext", "session"): "Session",
    ("_MonitoredSession", "coord"): "Coordinator",
    ("_MonitoredSession", "scaffold"): "Scaffold",
    ("Scaffold", "saver"): "Saver",
}

RESULTS = {
    ("_MonitoredSession", "raw_session"): "Session",
    ("Session", "as_default"): "Session",
    ("Graph", "as_default"): "Graph",
    ("Session", "__aenter__"): "Session",
    ("_MonitoredSession", "__aenter__"): "MonitoredSession",
    ("_MonitoredSession", "start"): "MonitoredSession",
}
"""The results of methods whose signatures lack them."""

STARTS = frozenset(
    ["create_tasks", "start_queue_runners", "StartQueueRunners", "loop", "Loop", "create_task"]
)
"""Functions that start tasks, so they need a running event loop, but are not awaited."""

RENAMED = {
    "register_thread": "register_task",
    "create_threads": "create_tasks",
    "LooperThread": "LooperTask",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
}
"""Attributes with another name here; the last two only for objects entered by ``async with``."""

HINTS = [
    (re.compile(r"(^|_)(sess|session)\d*$"), ("Session", "MonitoredSession")),
    (re.compile(r"(^|_)saver\d*$"), ("Saver",)),
    (re.compile(r"(^|_)(coord|coordinator)$"), ("Coordinator",)),
    (re.compile(r"(^|_)(sv|supervisor)$"), ("Supervisor",)),
    (re.compile(r"(^|_)run_(context|ctx)$"), ("SessionRunContext",)),
    (re.compile(r"(^|_)step_(context|ctx)$"), ("StepContext",)),
    (re.compile(r"(^|_)(summary|train|test|valid|eval|event|file|tb|log)_?writer$"), ("FileWriter",)),
]
"""The classes of names whose kinds are unknown otherwise."""

EVIDENCE = {
    "add_summary": "FileWriter",
    "add_session_log": "FileWriter",
    "managed_session": "Supervisor",
    "prepare_or_wait_for_session": "Supervisor",
    "run_with_hooks": "StepContext",
    "run_step_fn": "MonitoredSession",
    "clear_stop": "Coordinator",
    "stop_on_exception": "Coordinator",
}
"""Methods whose name identifies the class of their object."""


def _public_classes() -> dict[str, type]:
    found: dict[str, type] = {}
    for module in (tf, tf.train, tf.summary, tf.errors, asyncmon):
        for name in dir(module):
            value = None if name.startswith("_") else getattr(module, name, None)
            if isinstance(value, type) and value is not Any:
                found.setdefault(name, value)
    return found


CLASSES = _public_classes()


def instance(name: str) -> Kinds:
    """Return the kinds of an object of a public class, by the name of the class."""
    if name in SYMBOLS:
        return SYMBOL
    return one(Instance(CLASSES[name])) if name in CLASSES else NOTHING


def hinted(name: str) -> Kinds:
    """Return the kinds of a variable or attribute by the convention of its name."""
    for pattern, classes in HINTS:
        if pattern.search(name.lower()):
            return union(map(instance, classes))
    return NOTHING


@cache
def method(owner: type, name: str) -> Any:
    """Return a method of a class as a plain function, or None."""
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    return found if callable(found) else None


def awaited(function: Any) -> bool:
    """Return whether a function of asyncmon is awaited."""
    if inspect.iscoroutinefunction(function):
        return True
    return _returns(function).startswith(("Awaitable", "Coroutine"))


def method_awaited(owner: type, name: str) -> bool:
    """Return whether a method of asyncmon is awaited."""
    if owner.__name__ in SYMBOLS:
        return name in SYMBOL_AWAITED
    return awaited(method(owner, name))


def entered(kind: Any) -> bool:
    """Return whether an object is entered by ``async with``."""
    if isinstance(kind, Manager):
        return True
    return isinstance(kind, Instance) and isinstance(kind.of, type) and hasattr(kind.of, "__aenter__")


def called(function: Any) -> Kinds:
    """Return the kinds of the result of a function or class of asyncmon, awaited if it is awaitable."""
    if isinstance(function, type):
        if function.__name__ in SYMBOLS:
            return SYMBOL
        return one(Instance(function)) if function.__name__ in CLASSES else VALUE
    name = getattr(function, "__name__", "")
    if name == "make_callable":
        return one(Callback())
    if name in ("start_queue_runners", "create_threads", "create_tasks"):
        return one(Elements(one(Thread(has_start=True))))
    module = (getattr(function, "__module__", None) or "").removeprefix("asyncmon.tf1.")
    if module.split(".")[0] in NO_SYMBOLS:
        return VALUE
    returns = _returns(function)
    kinds = instance(returns.removesuffix(" | None"))
    of = re.match(r"Async(?:Iterator|Generator)\[([\w.]+)", returns)
    if of:
        inner = instance(of[1].rpartition(".")[2]) or VALUE
        return one(Manager(inner) if hasattr(function, "__wrapped__") else Stream(inner))
    return kinds or SYMBOL


def method_called(owner: type, name: str) -> Kinds:
    """Return the kinds of the result of a method of asyncmon, awaited if it is awaitable."""
    function = method(owner, name)
    if function is None:
        return NOTHING
    for base in owner.__mro__:
        if given := RESULTS.get((base.__name__, name)):
            return one(Opened(instance(given))) if name == "as_default" else instance(given)
    kinds = called(function)
    return VALUE if kinds == SYMBOL and awaited(function) else kinds


def attribute(owner: type, name: str) -> Kinds:
    """Return the kinds of an attribute of an object of asyncmon."""
    for base in owner.__mro__:
        if known := ATTRIBUTES.get((base.__name__, name)):
            return instance(known)
    if method(owner, name := renamed(owner, name)) is not None:
        return one(Method(owner, name))
    found = inspect.getattr_static(owner, name, None)
    return instance(_returns(found.fget)) if isinstance(found, property) else NOTHING


def renamed(owner: type, name: str) -> str:
    """Return the name in asyncmon of an attribute in TF1."""
    new = RENAMED.get(name, name)
    return new if hasattr(owner, new) or not new.startswith("__") else name


def is_alias(value: Any, name: str) -> bool:
    """Return whether a submodule of TF1 has its names in the module itself here."""
    return (value is tf.train and name == "queue_runner") or (
        name == "rnn_cell" and value is tf.contrib.rnn
    )


def is_sum(node: cst.CSTNode | None) -> bool:
    """Return whether an argument is a way to add gradients; there is one way here."""
    return (
        isinstance(node, cst.Arg)
        and node.keyword is not None
        and node.keyword.value == "aggregation_method"
        and ".AggregationMethod." in f".{dotted(node.value)}"
    )


def member(value: Any, name: str) -> Kinds:
    """Return the kinds of an attribute of a module or class of asyncmon.

    AttributeError if the attribute is missing; the text names the replacement.
    """
    if is_alias(value, name):
        return one(Real(value))
    found = getattr(value, RENAMED.get(name, name))
    if isinstance(value, type) and callable(found):
        return one(Real(method(value, name) or found))
    if isinstance(found, ModuleType):
        return one(Real(found) if found.__name__.startswith("asyncmon") else Foreign(found.__name__))
    return one(Real(found)) if callable(found) and getattr(found, "__hash__", None) else VALUE


def parameter_kinds(function: Any) -> list[Kinds]:
    """Return the kinds of the parameters of a method of asyncmon, without ``self``."""
    annotations = getattr(function, "__annotations__", {})
    return [instance(str(note)) for name, note in annotations.items() if name != "return"]


def _returns(function: Any) -> str:
    note = getattr(function, "__annotations__", {}).get("return", "")
    return note if isinstance(note, str) else getattr(note, "__name__", str(note))


STATIC = frozenset({"reset"})
"""Methods that TF1 has on the class alone; an environment of Gym has one of the same name."""


def _async_names() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {name: ["Tensor"] for name in SYMBOL_AWAITED}
    for title, owner in CLASSES.items():
        for name in dir(owner):
            public = not name.startswith("_") and name not in STATIC and owner.__name__ == title
            if public and title not in SYMBOLS and method_awaited(owner, name):
                found.setdefault(name, []).append(title)
    return {name: tuple(sorted(titles)[:4]) for name, titles in found.items()}


ASYNC_NAMES = _async_names()
"""The async methods of all classes of asyncmon, by name, each with some of its classes."""
