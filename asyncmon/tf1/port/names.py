"""What of asyncmon is awaited: its methods by name, its functions, the usual names of its objects."""

from __future__ import annotations

import inspect
import re
from functools import cache
from types import ModuleType
from typing import Any

import asyncmon
import asyncmon.tf1 as tf

SYMBOLS = frozenset({"Tensor", "Operation", "Variable", "IndexedSlices"})
SYMBOL_AWAITED = frozenset({"eval", "run", "load"})
"""The methods of tensors, variables and operations that are awaited."""

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

KEYWORDS = {"threads": "tasks", "ignore_live_threads": "ignore_live_tasks"}
"""Renamed arguments of ``Coordinator.join`` and ``Supervisor.stop``."""

COMMON = frozenset(["begin", "close", "end", "flush", "join", "load", "save", "start", "stop"])
"""Awaited methods whose names files, threads and models have, too: not awaited by their name alone."""

# Methods that TF1 lacks, or has on the class alone; its programs mean something else by the names.
_NEW = frozenset(
    [
        "abandon", "attach", "background", "claim", "cleanup", "clear", "continue_from", "current_step",
        "detach", "drain", "get_tensors", "open", "peek", "queues", "receive", "receive_versioned",
        "repeat", "reset", "restore_latest", "sample", "save_now", "send", "snapshot",
        "snapshot_to_write", "states", "verify",
    ]
)  # fmt: skip

# The classes of attributes and of the results of methods whose signatures lack them.
_TYPES = {
    ("Supervisor", "saver"): "Saver",
    ("Supervisor", "coord"): "Coordinator",
    ("Supervisor", "summary_writer"): "FileWriter",
    ("Supervisor", "session_manager"): "SessionManager",
    ("SessionRunContext", "session"): "Session",
    ("StepContext", "session"): "Session",
    ("_MonitoredSession", "coord"): "Coordinator",
    ("_MonitoredSession", "scaffold"): "Scaffold",
    ("Scaffold", "saver"): "Saver",
    ("_MonitoredSession", "raw_session"): "Session",
    ("Session", "as_default"): "Session",
    ("Session", "__aenter__"): "Session",
    ("_MonitoredSession", "__aenter__"): "MonitoredSession",
    ("_MonitoredSession", "start"): "MonitoredSession",
}

USUAL = [
    (re.compile(r"(^|_)(sess|session)\d*$"), ("Session", "MonitoredSession")),
    (re.compile(r"(^|_)saver\d*$"), ("Saver",)),
    (re.compile(r"(^|_)(coord|coordinator)$"), ("Coordinator",)),
    (re.compile(r"(^|_)(sv|supervisor)$"), ("Supervisor",)),
    (re.compile(r"(^|_)run_(context|ctx)$"), ("SessionRunContext",)),
    (re.compile(r"(^|_)step_(context|ctx)$"), ("StepContext",)),
    (re.compile(r"(^|_)(summary|train|test|valid|eval|event|file|tb|log)_?writer$"), ("FileWriter",)),
]
"""The classes of objects, by the convention of their names."""

# Modules below tf. whose functions make no tensors.
_NO_SYMBOLS = ("flags", "logging", "gfile", "app", "compat", "python_io")


def _classes() -> dict[str, type]:
    found: dict[str, type] = {}
    for module in (tf, tf.train, tf.summary, tf.errors, asyncmon):
        for name in dir(module):
            value = None if name.startswith("_") else getattr(module, name, None)
            if isinstance(value, type) and value is not Any:
                found.setdefault(name, value)
    return found


CLASSES = _classes()
SESSIONS = frozenset(name for name in CLASSES if name.endswith("Session"))
ENTERED = frozenset(name for name, owner in CLASSES.items() if hasattr(owner, "__aenter__"))


def usual(name: str) -> tuple[str, ...]:
    """Return the classes of a variable or attribute by the convention of its name."""
    found = (classes for pattern, classes in USUAL if pattern.search(name.lower()))
    return next(found, ())


@cache
def method(owner: str, name: str) -> Any:
    """Return a method of a public class as a plain function, or None."""
    found = inspect.getattr_static(CLASSES.get(owner, object), name, None)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    return found if callable(found) else None


def is_awaited(function: Any) -> bool:
    """Return whether a function of asyncmon is awaited."""
    return inspect.iscoroutinefunction(function) or returns(function).startswith(
        ("Awaitable", "Coroutine")
    )


@cache
def is_method_awaited(owner: str, name: str) -> bool:
    """Return whether a method of a public class is awaited."""
    if owner in SYMBOLS:
        return name in SYMBOL_AWAITED
    found = method(owner, name)
    return found is not None and is_awaited(found)


def returns(function: Any) -> str:
    """Return the annotation of a result, as text."""
    note = getattr(function, "__annotations__", {}).get("return", "")
    return note if isinstance(note, str) else getattr(note, "__name__", str(note))


def class_of(text: str) -> str:
    """Return the name of the public class of an annotation, or ""."""
    name = text.removesuffix(" | None").strip("'\"").rpartition(".")[2]
    return "Tensor" if name in SYMBOLS else name if name in CLASSES else ""


def streamed(function: Any) -> str | None:
    """Return the class of the elements of an async iterator that a function returns, "" if unknown."""
    found = re.match(r"Async(?:Iterator|Generator)\[([\w.]+)", returns(function))
    return None if found is None else class_of(found[1])


def is_manager(function: Any) -> bool:
    """Return whether the result of a function that is an async generator is entered."""
    return streamed(function) is not None and hasattr(function, "__wrapped__")


def known_type(owner: str, name: str) -> str:
    """Return the class of an attribute of an object, or of the result of its method, or ""."""
    for base in CLASSES[owner].__mro__:
        if known := _TYPES.get((base.__name__, name)):
            return known
    found = inspect.getattr_static(CLASSES[owner], name, None)
    return class_of(returns(found.fget)) if isinstance(found, property) else ""


def makes_tensors(function: Any) -> bool:
    """Return whether a function of asyncmon is probably one that builds the graph."""
    module = (getattr(function, "__module__", None) or "").removeprefix("asyncmon.tf1.")
    return module.split(".")[0] not in _NO_SYMBOLS


def is_alias(value: Any, name: str) -> bool:
    """Return whether a submodule of TF1 has its names in the module itself here."""
    return (value is tf.train and name == "queue_runner") or (
        name == "rnn_cell" and value is tf.contrib.rnn
    )


def member(value: Any, name: str) -> Any:
    """Return an attribute of a module or class of asyncmon.

    AttributeError if it is missing; the text names the replacement.
    """
    if is_alias(value, name) or (value is tf.compat and name == "v1"):
        return value if value is not tf.compat else tf
    return getattr(value, RENAMED.get(name, name))


def is_ours(value: Any) -> bool:
    """Return whether an attribute of a module is a module, class or function of asyncmon."""
    if isinstance(value, ModuleType):
        return value.__name__.startswith("asyncmon")
    return callable(value) and hasattr(value, "__name__")


def _table() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {name: ["Tensor"] for name in SYMBOL_AWAITED}
    for title, owner in CLASSES.items():
        for name in dir(owner):
            public = not name.startswith("_") and owner.__name__ == title and title not in SYMBOLS
            if public and name not in _NEW and is_method_awaited(title, name):
                found.setdefault(name, []).append(title)
    return {name: tuple(sorted(titles)[:4]) for name, titles in found.items()}


AWAITED = _table()
"""The awaited methods of all classes of asyncmon, by name, each with some of its classes."""
