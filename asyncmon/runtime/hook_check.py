"""Refuse wrong hooks when they are added, with an error that names hook and method."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from asyncmon.runtime.hook import GUARD, SAVER, HookMembers, SessionRunHook, hook_name, in_order
from asyncmon.system.functions import code_of, function_of, is_coroutine_function
from asyncmon.system.members import members_of, warn_of_misspelled

MOMENTS: dict[str, tuple[str, ...]] = {
    "begin": (),
    "after_create_session": ("session", "coord"),
    "before_run": ("run_context",),
    "after_run": ("run_context", "run_values"),
    "end": ("session",),
    "background": ("session", "coord"),
    "cleanup": ("error",),
}
"""The methods of a hook with the arguments they are called with."""

_OPTIONAL = frozenset({"background", "cleanup"})
_ALIKE = 0.87  # the least ratio of two names, where 1 is equal; "send" is no "end"
_POLICIES = ("raise", "log", "detach")


def check_hooks(hooks: Iterable[Any] | None) -> tuple[Any, ...]:
    """Return hooks as a tuple in the order of their priorities, each one checked.

    Raises:
        TypeError: they are no list; one is a class, lacks a method, or has a wrong one.
        ValueError: an object occurs twice, or an attribute has a wrong value.
    """
    if hooks is not None and not isinstance(hooks, Iterable):
        raise TypeError(f"hooks must be a list of hooks, got {hooks!r}. Write `hooks=[...]`.")
    checked = list(hooks or ())
    for hook in checked:
        check_hook(hook)
    return in_order(checked)


def check_hook(hook: Any) -> None:
    """Refuse an object that cannot work as a hook. Raises as :func:`check_hooks`."""
    check_methods(hook, "hook", SessionRunHook, MOMENTS, _OPTIONAL)
    warn_of_misspelled("hook", hook, HookMembers)
    _check_attributes(hook_name(hook), hook)


def check_methods(
    one: Any,
    kind: str,
    base: type,
    methods: Mapping[str, tuple[str, ...]],
    optional: Collection[str] = (),
) -> None:
    """Refuse an object that lacks a method, or has one that cannot be awaited with its arguments.

    Args:
        one: the object.
        kind: of object, for messages.
        base: the public class that its class should derive from. Inherited methods are not checked.
        methods: their names and arguments.
        optional: the names of methods that it may lack.

    Raises:
        TypeError: a method is missing or wrong, or the object is a class.
    """
    if isinstance(one, type):
        raise TypeError(
            f"{kind}s must be objects, got the class {one.__name__!r}. Write `{one.__name__}()`."
        )
    missing = [m for m in methods if m not in optional and not callable(getattr(one, m, None))]
    if missing:
        raise TypeError(
            f"{one!r} is no {kind}, it has no method {', '.join(map(repr, missing))}. "
            f"Derive the class from asyncmon.{base.__name__}."
        )
    if isinstance(one, base):
        _check_spelling(one, kind, base, methods)
    for name, arguments in methods.items():
        method = getattr(one, name, None)
        if method is not None and function_of(method) is not getattr(base, name):
            _check_method(hook_name(one), name, arguments, method, kind)


def _check_spelling(one: Any, kind: str, base: type, methods: Mapping[str, Any]) -> None:
    """Refuse a public method whose name resembles that of a method the class does not override."""
    inherited = [m for m in methods if getattr(type(one), m, None) is getattr(base, m)]
    for cls in type(one).__mro__:
        if cls is base:
            break
        for name, value in vars(cls).items():
            if name.startswith("_") or hasattr(base, name) or not inspect.isfunction(value):
                continue
            from difflib import get_close_matches  # few hooks have methods of their own

            if close := get_close_matches(name, inherited, 1, _ALIKE):
                raise TypeError(
                    f"{hook_name(one)} has a method {name!r}{_where(value)}, which is never called. Is "
                    f"it {close[0]!r}? If not, give it another name, or one with an underscore first."
                )


def _check_method(name: str, moment: str, arguments: tuple[str, ...], method: Any, kind: str) -> None:
    wanted = f"`async def {moment}({', '.join(('self', *arguments))})`"
    if not is_coroutine_function(method):
        found = "an async generator" if inspect.isasyncgenfunction(method) else "a plain function"
        raise TypeError(
            f"{name}.{moment} is {found}{_where(method)}; {kind}s are awaited. Write {wanted}."
        )
    try:
        inspect.signature(method).bind(*arguments)
    except TypeError as error:
        raise TypeError(
            f"{name}.{moment} cannot be called with ({', '.join(arguments)}){_where(method)}: {error}. "
            f"Write {wanted}."
        ) from None


def _check_attributes(name: str, hook: Any) -> None:
    members = members_of(HookMembers, hook)
    deadline: object = members.deadline
    if deadline is not None and not (isinstance(deadline, int | float) and deadline > 0):
        raise ValueError(
            f"{name}.deadline must be a positive number of seconds or None, got {deadline!r}."
        )
    policy = members.on_error
    if policy not in _POLICIES:
        raise ValueError(
            f"{name}.on_error must be one of {', '.join(map(repr, _POLICIES))}, got {policy!r}."
        )
    until: object = members.idle_until_step
    if until is not None and not isinstance(until, int | float):
        raise ValueError(f"{name}.idle_until_step must be a global step or None, got {until!r}.")
    priority: object = members.priority
    if isinstance(priority, bool) or not isinstance(priority, int | float) or priority != priority:
        raise ValueError(
            f"{name}.priority must be a number, got {priority!r}: lower ones come earlier; guards "
            f"have {GUARD}, savers {SAVER}."
        )
    states = {"state_dict": members.state_dict, "load_state_dict": members.load_state_dict}
    for method, found in states.items():
        if is_coroutine_function(found):
            raise TypeError(
                f"{name}.{method} is a coroutine function{_where(found)}; it is called between two "
                f"steps and not awaited. Write `def {method}`."
            )
    if callable(members.state_dict) is not callable(members.load_state_dict):
        raise TypeError(f"{name} has only one of state_dict and load_state_dict; its state needs both.")


def _where(method: Any) -> str:
    code = code_of(inspect.unwrap(function_of(method)))
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
