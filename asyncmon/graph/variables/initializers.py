"""Initial values of variables: zeros, ones, constant, random, Glorot and He. TF1: ``tf.initializers``.

An initializer is called with a shape, and possibly a dtype, and returns a tensor.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.dtypes import DType, as_dtype, float32
from asyncmon.graph.core.tensor_shape import as_shape
from asyncmon.graph.ops import create as creation_ops
from asyncmon.graph.ops import random_ops
from asyncmon.graph.ops.basic import filled

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Tensor

__all__ = [
    "constant",
    "constant_initializer",
    "glorot_normal",
    "glorot_normal_initializer",
    "glorot_uniform",
    "glorot_uniform_initializer",
    "he_normal",
    "he_uniform",
    "identity",
    "identity_initializer",
    "lecun_normal",
    "lecun_uniform",
    "ones",
    "ones_initializer",
    "orthogonal",
    "orthogonal_initializer",
    "random_normal",
    "random_normal_initializer",
    "random_uniform",
    "random_uniform_initializer",
    "truncated_normal",
    "truncated_normal_initializer",
    "variance_scaling",
    "variance_scaling_initializer",
    "zeros",
    "zeros_initializer",
]


class zeros_initializer:
    """Zeros. TF1: ``tf.zeros_initializer``."""

    def __init__(self, dtype: Any = float32) -> None:
        self.dtype = as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        """Return the initial value."""
        return creation_ops.zeros(shape, self.dtype if dtype is None else dtype)


class ones_initializer:
    """Ones. TF1: ``tf.ones_initializer``."""

    def __init__(self, dtype: Any = float32) -> None:
        self.dtype = as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        """Return the initial value."""
        return creation_ops.ones(shape, self.dtype if dtype is None else dtype)


class constant_initializer:
    """A given value, repeated to fill the shape. TF1: ``tf.constant_initializer``.

    Args:
        value: a number, or numbers; the last one fills what is missing.
        dtype: where the call does not say.
        verify_shape: refuse a value that does not have the shape asked for.

    Raises:
        TypeError: ``value`` is not a number, a list or an array.
    """

    def __init__(self, value: Any = 0, dtype: Any = float32, verify_shape: bool = False) -> None:
        if not (np.isscalar(value) or isinstance(value, list | tuple | np.ndarray)):
            raise TypeError(
                f"Invalid type for initial value={value!r}: expected a Python scalar, a list or tuple "
                "of values, or a numpy array"
            )
        self.value = value
        self.dtype = as_dtype(dtype)
        self.verify_shape = verify_shape

    def __call__(
        self,
        shape: Any,
        dtype: Any = None,
        partition_info: Any = None,
        verify_shape: bool | None = None,
    ) -> Tensor:
        """Return the initial value. TypeError, ValueError: ``value`` does not fit."""
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        dims = _known(shape)
        array = np.asarray(self.value)
        verify = self.verify_shape if verify_shape is None else verify_shape
        if verify and array.shape != dims and 0 not in dims:
            raise TypeError(f"Expected Tensor's shape: {dims}, got {array.shape}.")
        return convert_to_tensor(filled(array, dims), wanted, "Const")


class random_uniform_initializer:
    """Numbers from the uniform distribution on [minval, maxval).

    TF1: ``tf.random_uniform_initializer``.
    """

    def __init__(
        self, minval: Any = 0.0, maxval: Any = None, seed: int | None = None, dtype: Any = float32
    ) -> None:
        self.minval = minval
        self.maxval = maxval
        self.seed = seed
        self.dtype = as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        """Return the initial value."""
        kind = self.dtype if dtype is None else dtype
        return random_ops.random_uniform(shape, self.minval, self.maxval, kind, self.seed)


class random_normal_initializer:
    """Numbers from the normal distribution. TF1: ``tf.random_normal_initializer``."""

    def __init__(
        self, mean: Any = 0.0, stddev: Any = 1.0, seed: int | None = None, dtype: Any = float32
    ) -> None:
        self.mean = mean
        self.stddev = stddev
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        """Return the initial value."""
        kind = self.dtype if dtype is None else dtype
        return random_ops.random_normal(shape, self.mean, self.stddev, kind, self.seed)


class truncated_normal_initializer:
    """Normal numbers at most 2 deviations from the mean. TF1: ``tf.truncated_normal_initializer``."""

    def __init__(
        self, mean: Any = 0.0, stddev: Any = 1.0, seed: int | None = None, dtype: Any = float32
    ) -> None:
        self.mean = mean
        self.stddev = stddev
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        """Return the initial value."""
        kind = self.dtype if dtype is None else dtype
        return random_ops.truncated_normal(shape, self.mean, self.stddev, kind, self.seed)


class variance_scaling_initializer:
    """Random numbers whose spread suits the number of inputs or outputs. TF1: same name.

    The variance is ``scale / n``, with n the number of inputs ("fan_in"), of outputs ("fan_out") or the
    mean of both ("fan_avg") of a weight of this shape.

    Args:
        scale: positive.
        mode: one of the three above.
        distribution: "truncated_normal" (also "normal"), "untruncated_normal" or "uniform".
        seed: of the random op.
        dtype: where the call does not say.

    Raises:
        ValueError: an argument that is none of these.
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
        dtype: Any = float32,
    ) -> None:
        if scale <= 0.0:
            raise ValueError(f"Argument `scale` must be a positive float. Received: {scale}")
        modes = {"fan_in", "fan_out", "fan_avg"}
        if mode not in modes:
            raise ValueError(f"Argument `mode` should be one of {sorted(modes)}. Received: {mode}")
        distribution = distribution.lower()
        kinds = {"normal", "uniform", "truncated_normal", "untruncated_normal"}
        if distribution not in kinds:
            raise ValueError(
                f"Argument `distribution` should be one of {sorted(kinds)}. Received: {distribution}"
            )
        self.scale = scale
        self.mode = mode
        self.distribution = distribution
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        """Return the initial value."""
        kind = self.dtype if dtype is None else dtype
        fan_in, fan_out = _fans(_known(shape))
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        scale = self.scale / max(1.0, fan)
        if self.distribution == "uniform":
            limit = sqrt(3.0 * scale)
            return random_ops.random_uniform(shape, -limit, limit, kind, self.seed)
        if self.distribution == "untruncated_normal":
            return random_ops.random_normal(shape, 0.0, sqrt(scale), kind, self.seed)
        # the standard deviation of a normal distribution cut at 2 deviations is 0.8796...
        return random_ops.truncated_normal(
            shape, 0.0, sqrt(scale) / 0.87962566103423978, kind, self.seed
        )


class glorot_uniform_initializer(variance_scaling_initializer):
    """Uniform, for layers followed by a symmetric activation.

    TF1: ``tf.glorot_uniform_initializer``.
    """

    def __init__(self, seed: int | None = None, dtype: Any = float32) -> None:
        super().__init__(1.0, "fan_avg", "uniform", seed, dtype)


class glorot_normal_initializer(variance_scaling_initializer):
    """Truncated normal, for layers followed by a symmetric activation.

    TF1: ``tf.glorot_normal_initializer``.
    """

    def __init__(self, seed: int | None = None, dtype: Any = float32) -> None:
        super().__init__(1.0, "fan_avg", "truncated_normal", seed, dtype)


class orthogonal_initializer:
    """An orthogonal matrix; dimensions but the last are the rows.

    TF1: ``tf.orthogonal_initializer``.
    """

    def __init__(self, gain: float = 1.0, seed: int | None = None, dtype: Any = float32) -> None:
        self.gain = gain
        self.seed = seed
        self.dtype = _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        """Return the initial value. ValueError: a shape of less than two dimensions."""
        dims = _known(shape)
        if len(dims) < 2:
            raise ValueError(
                "The tensor to initialize, specified by argument `shape` must be at least "
                f"two-dimensional. Received shape={dims}"
            )
        kind = self.dtype if dtype is None else as_dtype(dtype)
        rows, columns = prod(dims[:-1]), dims[-1]
        normal = random_ops.random_normal(
            [max(rows, columns), min(rows, columns)], dtype=kind, seed=self.seed
        )
        basis = create_op("OrthogonalBasis", (normal,))
        if rows < columns:
            basis = create_op("Transpose", (basis,), {"perm": (1, 0)})
        return create_op("Reshape", (basis * self.gain, list(dims)))


class identity_initializer:
    """The identity matrix. TF1: ``tf.initializers.identity``."""

    def __init__(self, gain: float = 1.0, dtype: Any = float32) -> None:
        self.gain = gain
        self.dtype = _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        """Return the initial value. ValueError: not the shape of a matrix."""
        dims = _known(shape)
        if len(dims) != 2:
            raise ValueError(f"The tensor to initialize must be two-dimensional. Received shape={dims}")
        matrix = creation_ops.eye(*dims, dtype=self.dtype if dtype is None else dtype)
        return matrix if self.gain == 1.0 else matrix * self.gain


def he_normal(seed: int | None = None) -> variance_scaling_initializer:
    """Return a truncated normal initializer for layers followed by a relu.

    TF1: ``tf.initializers.he_normal``.
    """
    return variance_scaling_initializer(2.0, "fan_in", "truncated_normal", seed)


def he_uniform(seed: int | None = None) -> variance_scaling_initializer:
    """Return a uniform initializer for layers followed by a relu.

    TF1: ``tf.initializers.he_uniform``.
    """
    return variance_scaling_initializer(2.0, "fan_in", "uniform", seed)


def lecun_normal(seed: int | None = None) -> variance_scaling_initializer:
    """Return a truncated normal initializer for self-normalising layers.

    TF1: ``tf.initializers.lecun_normal``.
    """
    return variance_scaling_initializer(1.0, "fan_in", "truncated_normal", seed)


def lecun_uniform(seed: int | None = None) -> variance_scaling_initializer:
    """Return a uniform initializer for self-normalising layers.

    TF1: ``tf.initializers.lecun_uniform``.
    """
    return variance_scaling_initializer(1.0, "fan_in", "uniform", seed)


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


def _floating(dtype: Any) -> DType:
    found = as_dtype(dtype)
    if not found.is_floating:
        raise ValueError(f"Argument `dtype` expected to be a floating type. Received: {found.name}")
    return found


def _known(shape: Any) -> tuple[int, ...]:
    dims = as_shape(shape)
    if dims is None or None in dims:
        raise ValueError(f"An initializer needs a fully known shape, got {shape!r}")
    return tuple(d for d in dims if d is not None)


def _fans(shape: tuple[int, ...]) -> tuple[float, float]:
    """Return the numbers of inputs and outputs of a weight; a receptive field counts for both."""
    if not shape:
        return 1.0, 1.0
    if len(shape) == 1:
        return shape[0], shape[0]
    field = prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field
