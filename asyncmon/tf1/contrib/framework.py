"""TF1: ``tf.contrib.framework``: arg_scope and the global step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

from asyncmon.graph import *

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Scope = Mapping[Any, Mapping[str, Any]]

_current: ContextVar[_Scope] = ContextVar("arg_scope")


def add_arg_scope(func: _Function) -> _Function:
    """Return a function whose default arguments :func:`arg_scope` sets. TF1: same name."""

    @wraps(func)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **{**_current.get({}).get(scoped, {}), **kwargs})

    scoped._takes_arg_scope = True  # type: ignore[attr-defined]  # arg_scope reads it
    return scoped  # type: ignore[return-value]  # of the same signature


@contextmanager
def arg_scope(list_ops_or_scope: Sequence[Any] | _Scope, **kwargs: Any) -> Iterator[_Scope]:
    """Set default arguments of functions for a block and the tasks started in it. TF1: same name.

    ``list_ops_or_scope`` is a list of functions with :func:`add_arg_scope`, such as those of
    ``tf.contrib.layers``, or the value of an earlier scope, to enter it again, without arguments. Inner
    scopes override outer ones, calls override scopes. ValueError for other functions and values.
    """
    if isinstance(list_ops_or_scope, Mapping):
        if kwargs:
            raise ValueError(f"An earlier scope is entered without arguments, got {kwargs!r}.")
        merged: dict[Any, Mapping[str, Any]] = dict(list_ops_or_scope)
    else:
        merged = dict(_current.get({}))
        for func in list_ops_or_scope:
            if not hasattr(func, "_takes_arg_scope"):
                raise ValueError(f"{func!r} is not decorated with @add_arg_scope.")
            merged[func] = {**merged.get(func, {}), **kwargs}
    token = _current.set(merged)
    try:
        yield merged
    finally:
        _current.reset(token)
