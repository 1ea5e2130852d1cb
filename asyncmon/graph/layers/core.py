"""Layers without images: dense, dropout and flatten."""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from typing import Any

from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.shape import TensorShape, num_elements
from asyncmon.graph.layers.layer import (
    UNBUILT,
    ZEROS,
    Layer,
    Maker,
    add_bias,
    add_kernel,
    check_rank,
    flag_of,
    in_dtype,
    layer_function,
    layout_of,
)
from asyncmon.graph.nn import normalization as nn_normalization
from asyncmon.graph.nn.dense import bias_add
from asyncmon.graph.ops.products import matmul, tensordot
from asyncmon.graph.ops.shape_ops import reshape
from asyncmon.graph.ops.shape_ops import shape as shape_of


@dataclass(eq=False, repr=False)
class Dense(Layer):
    """``activation(inputs @ kernel + bias)``. TF1: ``tf.layers.Dense``.

    The inputs have rank 2 or higher and a known last dimension.

    Args:
        units: the size of the last dimension of the result.
        activation: a function of the result, or None.
        use_bias: add a bias.
        activity_regularizer: see :class:`Layer`, as for ``trainable`` and ``name``.

    The other arguments are for the kernel, Glorot uniform by default, and the bias, zeros by default.

    Attributes:
        kernel: ``[depth, units]``, from the first call on.
        bias: ``[units]``, or None.

    Raises:
        TypeError: at the call: the inputs are not floats.
        ValueError: at the call: the rank is lower, or the last dimension unknown.
    """

    units: int
    activation: Maker = None
    use_bias: bool = True
    kernel_initializer: Any = None
    bias_initializer: Any = ZEROS
    kernel_regularizer: Maker = None
    bias_regularizer: Maker = None
    activity_regularizer: Maker = None
    kernel_constraint: Maker = None
    bias_constraint: Maker = None
    trainable: bool = True
    name: str | None = None  # type: ignore[assignment]  # Layer makes one
    _: KW_ONLY
    dtype: Any = None
    _scope: InitVar[Any] = None
    _reuse: InitVar[Any] = None

    kernel = bias = UNBUILT

    def __post_init__(self, _scope: Any, _reuse: Any) -> None:
        super().__init__(
            self.trainable, self.name, self.dtype,
            activity_regularizer=self.activity_regularizer, _scope=_scope, _reuse=_reuse,
        )  # fmt: skip

    def build(self, input_shape: TensorShape) -> None:
        """Create kernel and bias."""
        if self.dtype is not None and not self.dtype.is_floating:
            raise TypeError(
                f"Unable to build `Dense` layer with non-floating point dtype {self.dtype.name}"
            )
        input_shape = TensorShape(input_shape)
        depth = input_shape[-1].value if input_shape.ndims else None
        if depth is None:
            raise ValueError(
                "The last dimension of the inputs to `Dense` should be defined. Found `None`."
            )
        add_kernel(self, [depth, self.units])
        add_bias(self, self.units)

    def call(self, inputs: Any) -> Tensor:
        """Return the result; see the class."""
        x = in_dtype(inputs, self.dtype)
        rank = check_rank(x.shape, 2, "dense", exact=False)
        multiply = matmul if rank == 2 else partial(tensordot, axes=[[rank - 1], [0]])
        result = multiply(x, self.kernel)
        if self.bias is not None:
            result = bias_add(result, self.bias)
        return result if self.activation is None else self.activation(result)


dense = layer_function(Dense, "dense")


class Flatten(Layer):
    """Merges all dimensions but the first. TF1: ``tf.layers.Flatten``.

    The inputs have rank 1 or higher.

    Args:
        data_format: "channels_first" moves the channels last before; needs a known rank.
    """

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = data_format or "channels_last"
        self._layout = layout_of(self.data_format)

    def call(self, inputs: Any) -> Tensor:
        """Return the result; see the class."""
        x = convert_to_tensor(inputs)
        if x.spec.shape is not None or self._layout == "NCHW":
            rank = check_rank(x.shape, 1, "flatten", exact=False)
            if rank == 1:
                return create_op("ExpandDims", (x,), {"axis": (1,)})
            if self._layout == "NCHW" and rank > 2:
                x = create_op("Transpose", (x,), {"perm": (0, *range(2, rank), 1)})
        size = num_elements(x.spec.shape and x.spec.shape[1:])
        return reshape(x, [shape_of(x)[0], -1] if size is None else [-1, size])


def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Tensor:
    """Apply a new :class:`Flatten`. TF1: ``tf.layers.flatten``."""
    result: Tensor = Flatten(data_format, name=name)(inputs)
    return result


class Dropout(Layer):
    """Drops random elements in training. TF1: ``tf.layers.Dropout``.

    ``rate`` is the probability to drop an element; other arguments as for :func:`nn.dropout`.
    """

    def __init__(
        self,
        rate: Any = 0.5,
        noise_shape: Any = None,
        seed: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.rate, self.noise_shape, self.seed = rate, noise_shape, seed

    def call(self, inputs: Any, training: Any = False) -> Tensor:
        """Return the result; ``training`` is a bool, or a bool scalar tensor to be fed."""
        x, rate = convert_to_tensor(inputs), self.rate
        if is_tensor_like(training):
            chance = convert_to_tensor(rate, None if is_tensor_like(rate) else x.dtype)
            off = convert_to_tensor(0.0, chance.dtype)
            rate = create_op("SelectV2", (flag_of(training), chance, off))
        elif not training:
            return create_op("Identity", (x,))
        return nn_normalization.dropout(x, noise_shape=self.noise_shape, seed=self.seed, rate=rate)


def dropout(
    inputs: Any,
    rate: Any = 0.5,
    noise_shape: Any = None,
    seed: int | None = None,
    training: Any = False,
    name: str | None = None,
) -> Tensor:
    """Apply a new :class:`Dropout`. TF1: ``tf.layers.dropout``."""
    result: Tensor = Dropout(rate, noise_shape, seed, name)(inputs, training=training)
    return result
