"""TF1: ``tf.contrib.framework``: arg_scope, the global step, and variables by scope."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

from asyncmon import graph
from asyncmon.graph import assert_global_step as assert_global_step
from asyncmon.graph import create_global_step as create_global_step
from asyncmon.graph import get_global_step as get_global_step
from asyncmon.graph import get_or_create_global_step as get_or_create_global_step
from asyncmon.graph.core.signatures import named

__all__ = [
    "add_arg_scope", "arg_scope", "assert_global_step", "create_global_step", "get_global_step",
    "get_local_variables", "get_model_variables", "get_or_create_global_step",
    "get_trainable_variables", "get_variables", "get_variables_to_restore", "model_variable",
    "variable",
]  # fmt: skip

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


@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    device: Any = None,
    custom_getter: Callable[..., Any] | None = None,
    **options: Any,
) -> graph.Variable:
    """As ``tf.get_variable``, on a device. TF1: same name.

    A ``custom_getter`` is called in place of ``tf.get_variable``.
    """
    keys = [graph.GraphKeys.GLOBAL_VARIABLES] if collections is None else [*dict.fromkeys(collections)]
    options |= {"shape": shape, "dtype": dtype, "initializer": initializer, "regularizer": regularizer}
    options |= {"trainable": trainable, "collections": keys, "caching_device": caching_device}
    with graph.device(device or ""):
        made: graph.Variable = (custom_getter or graph.get_variable)(name, **options)
        return made


@add_arg_scope
def model_variable(name: str, *args: Any, **kwargs: Any) -> graph.Variable:
    """As :func:`variable`, in the collection ``MODEL_VARIABLES``, too. TF1: same name."""
    keys = graph.GraphKeys.GLOBAL_VARIABLES, graph.GraphKeys.MODEL_VARIABLES
    kwargs["collections"] = [*(kwargs.get("collections") or ()), *keys]
    return variable(name, *args, **kwargs)


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = graph.GraphKeys.GLOBAL_VARIABLES
) -> list[graph.Variable]:
    """Return the variables of a scope, or with a last name. TF1: same name.

    ``scope`` is a ``tf.VariableScope``, or an expression that matches the beginning of a name.
    """
    pattern = scope.name if isinstance(scope, graph.VariableScope) else scope
    if suffix is not None:
        pattern = f"{pattern or ''}.*{suffix}{'' if ':' in suffix else ':'}"
    return graph.get_collection(collection, pattern)


def _variables_of(kind: str) -> Callable[..., list[graph.Variable]]:
    def found(scope: Any = None, suffix: str | None = None) -> list[graph.Variable]:
        return get_variables(scope, suffix, getattr(graph.GraphKeys, f"{kind.upper()}_VARIABLES"))

    doc = f"As :func:`get_variables`, for {kind} variables. TF1: same name."
    return named(found, f"get_{kind}_variables", doc)


get_model_variables, get_local_variables, get_trainable_variables = map(
    _variables_of, ("model", "local", "trainable")
)


def get_variables_to_restore(
    include: Sequence[Any] | None = None, exclude: Sequence[Any] | None = None
) -> list[graph.Variable]:
    """Return the variables of some scopes, by default all, but for those of others. TF1: same name."""
    out = {one for scope in exclude or () for one in get_variables(scope)}
    found = [one for scope in ([None] if include is None else include) for one in get_variables(scope)]
    return [one for one in found if one not in out]
