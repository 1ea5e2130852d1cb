"""Initial values of variables: constant, random, Glorot, He and others. TF1: ``tf.initializers``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from math import prod, sqrt
from typing import Any, ClassVar

import numpy as np

from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.dtypes import DType, as_dtype, float32
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.ops import create, random_ops
from asyncmon.graph.ops.basic import filled, tuple_of_ints

_known = partial(tuple_of_ints, error="An initializer needs a fully known shape")


class Initializer(ABC):
    """A function of a shape, and possibly a dtype, that returns a tensor.

    The ``dtype`` of an initializer is the default of calls.
    """

    dtype: Any
    _only_floats: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.dtype = as_dtype(self.dtype)
        if self._only_floats and not self.dtype.is_floating:
            raise ValueError(f"`dtype` expected to be a floating type. Received: {self.dtype.name}")

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        """Return the initial value of a variable of this shape.

        For a part of a variable, ``partition_info`` has the shape of the whole one, which determines
        the scale.
        """
        kind = self.dtype if dtype is None else as_dtype(dtype)
        if partition_info is None:
            return self._make(shape, kind)
        return self._make_part(shape, kind, partition_info.full_shape)

    def _make_part(self, shape: Any, dtype: DType, full_shape: Any) -> Tensor:
        return self._make(shape, dtype)

    @abstractmethod
    def _make(self, shape: Any, dtype: DType) -> Tensor: ...


@dataclass(eq=False)
class _Filled(Initializer):
    dtype: Any = float32
    _only_floats = False
    _make = staticmethod(create.zeros)


class zeros_initializer(_Filled):
    """Zeros. TF1: ``tf.zeros_initializer``."""


class ones_initializer(_Filled):
    """Ones. TF1: ``tf.ones_initializer``."""

    _make = staticmethod(create.ones)


@dataclass(eq=False)
class constant_initializer(Initializer):
    """A given value; the last of several values fills the shape. TF1: ``tf.constant_initializer``.

    With ``verify_shape`` a value of another shape than the variable is a TypeError.
    """

    value: Any = 0
    dtype: Any = float32
    verify_shape: bool = False
    _only_floats = False

    def __post_init__(self) -> None:
        if not (np.isscalar(self.value) or isinstance(self.value, list | tuple | np.ndarray)):
            raise TypeError(f"Invalid type for initial value={self.value!r}: expected numbers")
        super().__post_init__()

    def __call__(
        self,
        shape: Any,
        dtype: Any = None,
        partition_info: Any = None,
        verify_shape: bool | None = None,
    ) -> Tensor:
        """Return the initial value of a variable of this shape."""
        dims, found = _known(shape), np.shape(self.value)
        verify = self.verify_shape if verify_shape is None else verify_shape
        if verify and found != dims and 0 not in dims:
            raise TypeError(f"Expected Tensor's shape: {dims}, got {found}.")
        return super().__call__(dims, dtype)

    def _make(self, shape: Any, dtype: DType) -> Tensor:
        return convert_to_tensor(filled(np.asarray(self.value), shape), dtype, "Const")


@dataclass(eq=False)
class random_uniform_initializer(Initializer):
    """Uniformly distributed numbers in [minval, maxval). TF1: ``tf.random_uniform_initializer``."""

    minval: Any = 0.0
    maxval: Any = None
    seed: int | None = None
    dtype: Any = float32
    _only_floats = False

    def _make(self, shape: Any, dtype: DType) -> Tensor:
        return random_ops.random_uniform(shape, self.minval, self.maxval, dtype, self.seed)


@dataclass(eq=False)
class _Normal(Initializer):
    mean: Any = 0.0
    stddev: Any = 1.0
    seed: int | None = None
    dtype: Any = float32
    _draw = staticmethod(random_ops.random_normal)

    def _make(self, shape: Any, dtype: DType) -> Tensor:
        return self._draw(shape, self.mean, self.stddev, dtype, self.seed)


class random_normal_initializer(_Normal):
    """Normally distributed numbers. TF1: ``tf.random_normal_initializer``."""


class truncated_normal_initializer(_Normal):
    """Normal numbers at most 2 deviations from the mean. TF1: ``tf.truncated_normal_initializer``."""

    _draw = staticmethod(random_ops.truncated_normal)


@dataclass(eq=False)
class variance_scaling_initializer(Initializer):
    """Random numbers with a variance for the number of inputs or outputs. TF1: same name.

    The variance is ``scale / n``, with n the number of inputs (mode "fan_in"), of outputs ("fan_out")
    or the mean of both ("fan_avg") of a weight of this shape. ``distribution`` is "truncated_normal"
    (also "normal"), "untruncated_normal" or "uniform".
    """

    scale: float = 1.0
    mode: str = "fan_in"
    distribution: str = "truncated_normal"
    seed: int | None = None
    dtype: Any = float32

    def __post_init__(self) -> None:
        if self.scale <= 0.0:
            raise ValueError(f"Argument `scale` must be a positive float. Received: {self.scale}")
        self.distribution = self.distribution.lower()
        for argument, allowed in (
            ("mode", ["fan_avg", "fan_in", "fan_out"]),
            ("distribution", ["normal", "truncated_normal", "uniform", "untruncated_normal"]),
        ):
            found = getattr(self, argument)
            if found not in allowed:
                raise ValueError(f"Argument `{argument}` should be one of {allowed}. Received: {found}")
        super().__post_init__()

    def _make(self, shape: Any, dtype: DType) -> Tensor:
        return self._make_part(shape, dtype, shape)

    def _make_part(self, shape: Any, dtype: DType, full_shape: Any) -> Tensor:
        dims = _known(full_shape)
        *field, inputs, outputs = dims if len(dims) > 1 else (dims or (1,)) * 2
        fan_in, fan_out = inputs * prod(field), outputs * prod(field)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        variance = self.scale / max(1.0, fan)
        if self.distribution == "uniform":
            limit = sqrt(3.0 * variance)
            return random_ops.random_uniform(shape, -limit, limit, dtype, self.seed)
        if self.distribution == "untruncated_normal":
            return random_ops.random_normal(shape, 0.0, sqrt(variance), dtype, self.seed)
        # the standard deviation of a normal distribution cut at 2 deviations is 0.8796...
        stddev = sqrt(variance) / 0.87962566103423978
        return random_ops.truncated_normal(shape, 0.0, stddev, dtype, self.seed)


class glorot_uniform_initializer(variance_scaling_initializer):
    """Uniform, for layers followed by a symmetric activation. TF1: same name."""

    def __init__(self, seed: int | None = None, dtype: Any = float32) -> None:
        super().__init__(1.0, "fan_avg", "uniform", seed, dtype)


class glorot_normal_initializer(variance_scaling_initializer):
    """Truncated normal, for layers followed by a symmetric activation. TF1: same name."""

    def __init__(self, seed: int | None = None, dtype: Any = float32) -> None:
        super().__init__(1.0, "fan_avg", "truncated_normal", seed, dtype)


def he_normal(seed: int | None = None) -> variance_scaling_initializer:
    """Return a truncated normal initializer for layers followed by a relu. TF1: same name."""
    return variance_scaling_initializer(2.0, "fan_in", "truncated_normal", seed)


def he_uniform(seed: int | None = None) -> variance_scaling_initializer:
    """Return a uniform initializer for layers followed by a relu. TF1: same name."""
    return variance_scaling_initializer(2.0, "fan_in", "uniform", seed)


def lecun_normal(seed: int | None = None) -> variance_scaling_initializer:
    """Return a truncated normal initializer for self-normalising layers. TF1: same name."""
    return variance_scaling_initializer(1.0, "fan_in", "truncated_normal", seed)


def lecun_uniform(seed: int | None = None) -> variance_scaling_initializer:
    """Return a uniform initializer for self-normalising layers. TF1: same name."""
    return variance_scaling_initializer(1.0, "fan_in", "uniform", seed)


@dataclass(eq=False)
class orthogonal_initializer(Initializer):
    """An orthogonal matrix; all dimensions but the last are rows. TF1: same name."""

    gain: float = 1.0
    seed: int | None = None
    dtype: Any = float32

    def _make(self, shape: Any, dtype: DType) -> Tensor:
        dims = _known(shape)
        if len(dims) < 2:
            raise ValueError(f"`shape` must be at least two-dimensional. Received shape={dims}")
        rows, columns = prod(dims[:-1]), dims[-1]
        size = sorted((rows, columns), reverse=True)
        normal = random_ops.random_normal(size, dtype=dtype, seed=self.seed)
        basis = create_op("OrthogonalBasis", (normal,))
        if rows < columns:
            basis = create_op("Transpose", (basis,), {"perm": (1, 0)})
        return create_op("Reshape", (basis * self.gain, list(dims)))


@dataclass(eq=False)
class identity_initializer(Initializer):
    """The identity matrix. TF1: ``tf.initializers.identity``."""

    gain: float = 1.0
    dtype: Any = float32

    def _make(self, shape: Any, dtype: DType) -> Tensor:
        dims = _known(shape)
        if len(dims) != 2:
            raise ValueError(f"The tensor to initialize must be two-dimensional. Received shape={dims}")
        matrix = create.eye(*dims, dtype=dtype)
        return matrix if self.gain == 1.0 else matrix * self.gain


# As tf.initializers calls them.
zeros = zeros_initializer
ones = ones_initializer
constant = constant_initializer
random_uniform = random_uniform_initializer
random_normal = random_normal_initializer
truncated_normal = truncated_normal_initializer
variance_scaling = variance_scaling_initializer
glorot_uniform = glorot_uniform_initializer
glorot_normal = glorot_normal_initializer
orthogonal = orthogonal_initializer
identity = identity_initializer
