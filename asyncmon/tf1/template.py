"""TF1: ``tf.make_template``: functions that share their variables between calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from asyncmon import graph as g

__all__ = ["make_template"]


def make_template(
    name_: str,
    func_: Callable[..., Any],
    create_scope_now_: bool = False,
    unique_name_: str | None = None,
    custom_getter_: Any = None,
    **kwargs: Any,
) -> Template:
    """Return a function whose calls share the variables of the first one. TF1: same name.

    It calls ``func_``, which makes variables with ``get_variable``, with ``kwargs`` in a variable scope
    named ``name_``, made unique, at its first call or with ``create_scope_now_`` now, or named
    ``unique_name_``. A later call that makes a new trainable variable raises ValueError.
    """
    function = functools.partial(func_, **kwargs) if kwargs else func_
    return Template(name_, function, create_scope_now_, unique_name_, custom_getter_)


class Template:
    """The result of :func:`make_template`; calling it calls the function.

    ``variable_scope`` is None before the first call.
    """

    def __init__(
        self, name: str, func: Callable[..., Any], now: bool, unique_name: Any, custom_getter: Any
    ) -> None:
        if name is None:
            raise ValueError("name cannot be None.")
        self._func, self.name, self._unique_name = func, name, unique_name
        self._custom_getter = custom_getter
        self.variable_scope: g.VariableScope | None = None
        self._created = False
        if now:
            with self._new_scope(auxiliary_name_scope=False) as self.variable_scope:
                pass

    @property
    def variables(self) -> list[Any]:
        """The global variables of the function."""
        return self.variable_scope.global_variables() if self.variable_scope else []

    @property
    def trainable_variables(self) -> list[Any]:
        """The trainable variables of the function."""
        return self.variable_scope.trainable_variables() if self.variable_scope else []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.variable_scope is None:
            with self._new_scope() as self.variable_scope:
                return self._build(*args, **kwargs)
        with g.variable_scope(self.variable_scope, reuse=self._created or None):
            return self._build(*args, **kwargs)

    def _build(self, *args: Any, **kwargs: Any) -> Any:
        before = len(g.trainable_variables())
        result = self._func(*args, **kwargs)
        if self._created and len(g.trainable_variables()) != before:
            raise ValueError(
                "Trainable variable created when calling a template after the first time, perhaps you "
                f"used tf.Variable when you meant tf.get_variable: {g.trainable_variables()[before:]}"
            )
        self._created = True
        return result

    def _new_scope(self, **options: Any) -> Any:
        return g.variable_scope(
            self._unique_name, self.name, custom_getter=self._custom_getter, **options
        )
