"""Convolutional layers."""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, ClassVar

from asyncmon.graph.core.build import convert_to_tensor
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.shape import TensorShape
from asyncmon.graph.layers.layer import (
    UNBUILT,
    ZEROS,
    Layer,
    Maker,
    add_bias,
    add_kernel,
    check_rank,
    in_dtype,
    layer_function,
    layout_of,
)
from asyncmon.graph.nn.conv import conv2d as _conv2d
from asyncmon.graph.nn.conv import conv2d_transpose as _conv2d_transpose
from asyncmon.graph.nn.dense import bias_add
from asyncmon.graph.nn.images import window_numbers
from asyncmon.graph.ops.index import pad
from asyncmon.graph.ops.shape_ops import expand_dims, shape, squeeze


@dataclass(eq=False, repr=False)
class Conv2D(Layer):
    """``activation(convolution of images + bias)``. TF1: ``tf.layers.Conv2D``.

    The inputs are ``[batch, height, width, depth]``.

    Args:
        filters: the number of filters, the depth of the result.
        kernel_size: a number, or height and width.
        strides: the distance of windows, in the same form.
        padding: "valid" or "same".
        data_format: "channels_last", or "channels_first" for ``[batch, depth, height, width]``.
        dilation_rate: the distance of the elements of a filter, a number or two.

    The other arguments are those of :class:`Dense`.

    Attributes:
        kernel: ``[height, width, depth, filters]``, from the first call on.
        bias: ``[filters]``, or None.

    Raises:
        ValueError: arguments of other forms, or both strides and dilation; at the call, a rank that is
            not 4, or an unknown depth.
    """

    filters: int
    kernel_size: Any
    strides: Any = (1, 1)
    padding: str = "valid"
    data_format: str = "channels_last"
    dilation_rate: Any = (1, 1)
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
    rank: ClassVar[int] = 2

    def __post_init__(self, _scope: Any, _reuse: Any) -> None:
        super().__init__(
            self.trainable, self.name, self.dtype,
            activity_regularizer=self.activity_regularizer, _scope=_scope, _reuse=_reuse,
        )  # fmt: skip
        self._layout = layout_of(self.data_format)
        self.padding = str(self.padding).lower()
        allowed = ("valid", "same", "causal")[: 3 if self.rank == 1 else 2]
        if self.padding not in allowed:
            raise ValueError(
                f"The `padding` argument must be one of {allowed}. Received: {self.padding!r}"
            )
        self.kernel_size = window_numbers("kernel_size", self.kernel_size, self.rank)
        self.strides = window_numbers("strides", self.strides, self.rank)
        self.dilation_rate = window_numbers("dilation_rate", self.dilation_rate, self.rank)
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                "Strides > 1 are not supported in conjunction with a dilation_rate > 1, got "
                f"{self.strides} and {self.dilation_rate}"
            )

    def _depth(self, input_shape: TensorShape) -> Any:
        """Return the number of channels of the input."""
        input_shape = TensorShape(input_shape)
        check_rank(input_shape, self.rank + 2, self._base_name)
        depth = input_shape[-1 if self._layout == "NHWC" else 1].value
        if depth is None:
            raise ValueError("The channel dimension of the inputs should be defined. Found `None`.")
        return depth

    def build(self, input_shape: TensorShape) -> None:
        """Create kernel and bias."""
        kernel_shape = [*self.kernel_size, *self._kernel_depths(self._depth(input_shape))]
        add_kernel(self, kernel_shape)
        add_bias(self, self.filters)

    def _kernel_depths(self, depth: int) -> list[int]:
        return [depth, self.filters]

    def call(self, inputs: Any) -> Tensor:
        """Return the result; see the class."""
        x = in_dtype(inputs, self.dtype)
        check_rank(x.shape, self.rank + 2, self._base_name)
        if self.rank == 1:  # a sequence is an image of one row
            x = self._before(x)
            at = 1 if self._layout == "NHWC" else 2
            result = squeeze(self._convolved(expand_dims(x, at)), [at])
        else:
            result = self._convolved(x)
        if self.bias is not None:
            result = bias_add(result, self.bias, self._layout)
        return result if self.activation is None else self.activation(result)

    def _before(self, x: Tensor) -> Tensor:
        """Return a sequence; a causal padding is at its start."""
        if self.padding != "causal":
            return x
        around = [[0, 0]] * 3
        around[1 if self._layout == "NHWC" else 2] = [
            self.dilation_rate[0] * (self.kernel_size[0] - 1),
            0,
        ]
        return pad(x, around)

    def _image(self, numbers: Any) -> list[int]:
        """Return rows and columns of windows over images; sequences have one row."""
        return [*([1] if self.rank == 1 else []), *numbers]

    def _convolved(self, x: Tensor) -> Tensor:
        kernel = expand_dims(self.kernel, 0) if self.rank == 1 else self.kernel
        padding = "VALID" if self.padding == "causal" else self.padding.upper()
        return _conv2d(
            x, kernel, self._image(self.strides), padding,
            data_format=self._layout, dilations=self._image(self.dilation_rate),
        )  # fmt: skip


@dataclass(eq=False, repr=False)
class Conv1D(Conv2D):
    """``activation(convolution of sequences + bias)``. TF1: ``tf.layers.Conv1D``.

    As :class:`Conv2D`, for inputs ``[batch, width, depth]``, or ``[batch, depth, width]`` with
    "channels_first"; sizes are one number. With the padding "causal" windows contain no later elements.
    """

    strides: Any = 1
    dilation_rate: Any = 1
    rank: ClassVar[int] = 1


@dataclass(eq=False, repr=False)
class Conv2DTranspose(Conv2D):
    """``activation(gradient of a convolution + bias)``: enlarges images by the strides.

    TF1: ``tf.layers.Conv2DTranspose``. Arguments and attributes as :class:`Conv2D`, without dilation;
    the kernel is ``[height, width, filters, depth]``.
    """

    dilation_rate: Any = field(default=1, init=False)

    def _kernel_depths(self, depth: int) -> list[int]:
        return [self.filters, depth]

    def _convolved(self, x: Tensor) -> Tensor:
        sizes = convert_to_tensor(x).shape.as_list()
        known = [shape(x)[i] if size is None else size for i, size in enumerate(sizes)]
        at = 1 if self._layout == "NHWC" else 2
        for i, (window, stride) in enumerate(zip(self.kernel_size, self.strides, strict=True)):
            more = max(window - stride, 0) if self.padding == "valid" else 0
            known[at + i] = known[at + i] * stride + more
        known[3 if self._layout == "NHWC" else 1] = self.filters
        return _conv2d_transpose(
            x, self.kernel, known, self.strides, self.padding.upper(), self._layout
        )


conv1d = layer_function(Conv1D, "conv1d")
conv2d = layer_function(Conv2D, "conv2d")
conv2d_transpose = layer_function(Conv2DTranspose, "conv2d_transpose")
