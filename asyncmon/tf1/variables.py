"""TF1's deprecated ways to create and initialize variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

from asyncmon import graph as tf
from asyncmon.graph.variables.get_variable import find_or_create
from asyncmon.graph.variables.initializers import Initializer
from asyncmon.graph.variables.scope import Reuse

__all__ = ["create_partitioned_variables", "uniform_unit_scaling_initializer"]


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
