"""What callables say of themselves: names, code, and whether they are awaited."""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any


def function_of(method: Any) -> Any:
    """Return the function of a bound method; any other callable as it is."""
    return getattr(method, "__func__", method)


def code_of(fn: Any) -> CodeType | None:
    """Return the code of a function or method, or None for another callable."""
    return getattr(function_of(fn), "__code__", None)


def qualified_name(fn: Any) -> str:
    """Return the qualified name of a function, or the ``repr`` of another callable."""
    return getattr(fn, "__qualname__", None) or repr(fn)


async def settled(result: Any) -> Any:
    """Return the result of a call of a plain or an async function."""
    return await result if inspect.isawaitable(result) else result


def is_coroutine_function(fn: Any) -> bool:
    """Return whether a function, or the ``__call__`` of an object, is an ``async def`` function."""
    called = getattr(type(fn), "__call__", None)  # noqa: B004 - a class with an async one is none
    return any(map(inspect.iscoroutinefunction, (fn, called)))
