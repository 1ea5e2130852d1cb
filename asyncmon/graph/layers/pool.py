"""Pooling layers."""

from __future__ import annotations

from typing import Any, ClassVar

from asyncmon.graph.core.build import convert_to_tensor
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.layers.layer import Layer, check_rank, layer_function, layout_of
from asyncmon.graph.nn.images import window_numbers
from asyncmon.graph.nn.pool import avg_pool, max_pool
from asyncmon.graph.ops.shape_ops import expand_dims, squeeze


class _Pooling(Layer):
    """The base class of pooling layers.

    ``pool_size`` is the size of a window: a number, or height and width of images. Other arguments are
    those of :class:`Conv2D`. ValueError for arguments of other forms; at the call, another rank.
    """

    rank: ClassVar[int]
    pool: ClassVar[Any]

    def __init__(
        self,
        pool_size: Any,
        strides: Any,
        padding: str = "valid",
        data_format: str = "channels_last",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        if strides is None:
            raise ValueError("Argument `strides` must not be None.")
        self.pool_size = window_numbers("pool_size", pool_size, self.rank)
        self.strides = window_numbers("strides", strides, self.rank)
        self.padding, self.data_format = padding, data_format
        self._layout = layout_of(data_format)

    def call(self, inputs: Any) -> Tensor:
        """Return the result; see the class."""
        x, padding = convert_to_tensor(inputs), self.padding.upper()
        if self.rank == 2:
            result: Tensor = type(self).pool(x, self.pool_size, self.strides, padding, self._layout)
            return result
        check_rank(x.shape, 3, self._base_name)
        at = 1 if self._layout == "NHWC" else 2
        row = expand_dims(x, at), [1, *self.pool_size], [1, *self.strides], padding, self._layout
        return squeeze(type(self).pool(*row), [at])


class MaxPooling2D(_Pooling):
    """The greatest element of each window of images. TF1: ``tf.layers.MaxPooling2D``."""

    rank, pool = 2, staticmethod(max_pool)


class AveragePooling2D(_Pooling):
    """The mean of each window of images. TF1: ``tf.layers.AveragePooling2D``."""

    rank, pool = 2, staticmethod(avg_pool)


class MaxPooling1D(_Pooling):
    """The greatest element of each window of sequences. TF1: ``tf.layers.MaxPooling1D``."""

    rank, pool = 1, staticmethod(max_pool)


class AveragePooling1D(_Pooling):
    """The mean of each window of sequences. TF1: ``tf.layers.AveragePooling1D``."""

    rank, pool = 1, staticmethod(avg_pool)


_ARGUMENTS = "pool_size strides padding data_format name"

max_pooling2d = layer_function(MaxPooling2D, "max_pooling2d", _ARGUMENTS)
average_pooling2d = layer_function(AveragePooling2D, "average_pooling2d", _ARGUMENTS)
max_pooling1d = layer_function(MaxPooling1D, "max_pooling1d", _ARGUMENTS)
average_pooling1d = layer_function(AveragePooling1D, "average_pooling1d", _ARGUMENTS)
