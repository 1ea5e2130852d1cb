"""TF1: ``tf.layers``."""

from typing import Any, ClassVar

from asyncmon import graph as g
from asyncmon.graph.layers import *
from asyncmon.graph.layers.layer import UNBUILT, ZEROS, Maker, add_bias, layer_function
from asyncmon.tf1.ops.convolutions import separable_conv2d as _separable

__all__ = [
    "AveragePooling1D", "AveragePooling2D", "BatchNormalization", "Conv1D", "Conv2D",
    "Conv2DTranspose", "Dense", "Dropout", "Flatten", "Layer", "MaxPooling1D", "MaxPooling2D",
    "SeparableConv1D", "SeparableConv2D", "average_pooling1d", "average_pooling2d",
    "batch_normalization", "conv1d", "conv2d", "conv2d_transpose", "dense", "dropout", "flatten",
    "max_pooling1d", "max_pooling2d", "separable_conv1d", "separable_conv2d",
]  # fmt: skip


class SeparableConv2D(Conv2D):
    """A convolution of each channel, then one of size 1. TF1: ``tf.layers.SeparableConv2D``.

    ``depth_multiplier`` is the number of filters for each channel. Arguments with "depthwise" are for
    these filters, with "pointwise" for the second convolution. The other arguments and the errors are
    those of ``tf.layers.Conv2D``.

    Its kernels are ``depthwise_kernel``, ``[height, width, depth, depth_multiplier]``, and
    ``pointwise_kernel``, ``[1, 1, depth * depth_multiplier, filters]``.
    """

    depthwise_kernel = pointwise_kernel = UNBUILT

    # fmt: off
    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
        data_format: str = "channels_last", dilation_rate: Any = 1, depth_multiplier: int = 1,
        activation: Maker = None, use_bias: bool = True, depthwise_initializer: Any = None,
        pointwise_initializer: Any = None, bias_initializer: Any = ZEROS,
        depthwise_regularizer: Maker = None, pointwise_regularizer: Maker = None,
        bias_regularizer: Maker = None, activity_regularizer: Maker = None,
        depthwise_constraint: Maker = None, pointwise_constraint: Maker = None,
        bias_constraint: Maker = None, trainable: bool = True, name: str | None = None, *,
        dtype: Any = None, _scope: Any = None, _reuse: Any = None,
    ) -> None:
        # fmt: on
        super().__init__(
            filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            None, bias_initializer, None, bias_regularizer, activity_regularizer, None, bias_constraint,
            trainable, name, dtype=dtype, _scope=_scope, _reuse=_reuse,
        )
        self.depth_multiplier = depth_multiplier
        self._depthwise = depthwise_initializer, depthwise_regularizer, True, depthwise_constraint
        self._pointwise = pointwise_initializer, pointwise_regularizer, True, pointwise_constraint

    def build(self, input_shape: g.TensorShape) -> None:
        """Create kernels and bias."""
        depth = self._depth(input_shape)
        each, ones = [*self.kernel_size, depth, self.depth_multiplier], [1] * self.rank
        whole = [*ones, depth * self.depth_multiplier, self.filters]
        self.depthwise_kernel = self.add_weight("depthwise_kernel", each, None, *self._depthwise)
        self.pointwise_kernel = self.add_weight("pointwise_kernel", whole, None, *self._pointwise)
        add_bias(self, self.filters)

    def _convolved(self, x: g.Tensor) -> g.Tensor:
        each, whole = self.depthwise_kernel, self.pointwise_kernel
        if self.rank == 1:
            each, whole = g.expand_dims(each, 0), g.expand_dims(whole, 0)
        padding = "VALID" if self.padding == "causal" else self.padding.upper()
        along, apart = self._image(self.strides), self._image(self.dilation_rate)
        return _separable(x, each, whole, along, padding, apart, data_format=self._layout)


class SeparableConv1D(SeparableConv2D):
    """As :class:`SeparableConv2D` for sequences ``[batch, width, depth]``. TF1: same name.

    Sizes are one number; the kernels have one dimension less.
    """

    rank: ClassVar[int] = 1


separable_conv1d = layer_function(SeparableConv1D, "separable_conv1d")
separable_conv2d = layer_function(SeparableConv2D, "separable_conv2d")
