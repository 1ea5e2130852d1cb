"""TF1's further ways to create variables: templates, parts by hand, a deprecated initializer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

from asyncmon import graph as tf
from asyncmon.graph.variables.get_variable import find_or_create
from asyncmon.graph.variables.initializers import Initializer
from asyncmon.graph.variables.scope import Reuse

__all__ = ["create_partitioned_variables", "make_template", "uniform_unit_scaling_initializer"]


def create_partitioned_variables(
    shape: Any,
    slicing: Sequence[int],
    initializer: Any,
    dtype: Any = tf.float32,
    trainable: bool = True,
    collections: Iterable[Any] | None = None,
    name: str | None = None,
    reuse: Reuse | None = None,
) -> list[tf.Variable]:
    """Return the parts of a variable as a list. TF1: same name, and deprecated there.

    Use ``get_variable(partitioner=...)``.

    Args:
        shape: the shape of the whole variable.
        slicing: the number of parts for each dimension.
        name: the variable scope, which is the name of the whole variable; "PartitionedVariable", made
            unique, by default.

    Raises:
        ValueError: ``slicing`` does not fit the shape.
    """
    if len(shape) != len(slicing):
        raise ValueError(
            "The 'shape' and 'slicing' of a partitioned Variable must have the length: shape: "
            f"{shape}, slicing: {slicing}"
        )
    if not len(shape):
        raise ValueError(f"A partitioned Variable must have rank at least 1: shape: {shape}")
    with tf.variable_scope(name, "PartitionedVariable", reuse=reuse) as scope:
        made = find_or_create(
            scope.name, shape, dtype, initializer, trainable=trainable, collections=collections,
            partitioner=lambda **_: list(slicing),
        )  # fmt: skip
        return list(made)


@dataclass(eq=False)
class uniform_unit_scaling_initializer(Initializer):
    """Uniform numbers that keep the scale of the inputs, times a factor. TF1: same name.

    The bound is ``factor * sqrt(3 / inputs)``; all dimensions but the last count as inputs.
    """

    factor: float = 1.0
    seed: int | None = None
    dtype: Any = tf.float32

    def _make(self, shape: Any, dtype: tf.DType) -> tf.Tensor:
        return self._make_part(shape, dtype, shape)

    def _make_part(self, shape: Any, dtype: tf.DType, full_shape: Any) -> tf.Tensor:
        limit = self.factor * sqrt(3.0 / max(1.0, prod(list(full_shape)[:-1])))
        return tf.random_uniform(shape, -limit, limit, dtype, self.seed)


# --- templates ------------------------------------------------------------------------------------
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
        self.variable_scope: tf.VariableScope | None = None
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
        with tf.variable_scope(self.variable_scope, reuse=self._created or None):
            return self._build(*args, **kwargs)

    def _build(self, *args: Any, **kwargs: Any) -> Any:
        before = len(tf.trainable_variables())
        result = self._func(*args, **kwargs)
        if self._created and len(tf.trainable_variables()) != before:
            raise ValueError(
                "Trainable variable created when calling a template after the first time, perhaps you "
                f"used tf.Variable when you meant tf.get_variable: {tf.trainable_variables()[before:]}"
            )
        self._created = True
        return result

    def _new_scope(self, **options: Any) -> Any:
        return tf.variable_scope(
            self._unique_name, self.name, custom_getter=self._custom_getter, **options
        )
