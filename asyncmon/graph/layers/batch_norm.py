"""The batch normalization layer."""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Any

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.dtypes import float16, float32, int64
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.shape import TensorShape
from asyncmon.graph.layers.layer import UNBUILT, ZEROS, Layer, Maker, flag_of, layer_function
from asyncmon.graph.nn.normalization import batch_normalization as _normalize
from asyncmon.graph.nn.normalization import moments, normalized_batch
from asyncmon.graph.ops.basic import cast, stop_gradient
from asyncmon.graph.ops.elementwise import maximum
from asyncmon.graph.ops.shape_ops import size as size_of
from asyncmon.graph.train.averages import assign_moving_average
from asyncmon.graph.variables.get_variable import WHOLE
from asyncmon.graph.variables.initializers import ones_initializer
from asyncmon.graph.variables.variable import Variable

_ONES = ones_initializer()


@dataclass(eq=False, repr=False)
class BatchNormalization(Layer):
    """Normalizes batches by their moments in training, and by moving averages otherwise.

    TF1: ``tf.layers.BatchNormalization``. Only the ops in ``GraphKeys.UPDATE_OPS``
    update the averages; make the train op depend on them::

        with control_dependencies(get_collection(GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss)

    Args:
        axis: the dimension of the channels, which have moments of their own; a number or a list of one.
        momentum: the momentum of the averages "moving_mean", initially 0, and "moving_variance", 1.
        epsilon: added to the variance.
        center: add the variable "beta", zeros by default.
        scale: multiply by the variable "gamma", ones by default.
        renorm: must be false: batch renormalization is not supported, nor are its two arguments.
        fused: false averages the biased variance of images (rank 4, channels last or second) instead of
            the unbiased one, as in TF1; otherwise without effect.
        trainable: whether optimizers update "beta" and "gamma".
        virtual_batch_size: must be None.
        adjustment: must be None.
        name: the name of the layer; "batch_normalization" by default.

    The other arguments are for the variables in their names.

    Attributes:
        gamma, beta, moving_mean, moving_variance: the variables, from the first call on, or None.

    Raises:
        ValueError: an unsupported argument; at the call, an unknown rank or size of ``axis``.
    """

    axis: Any = -1
    momentum: float = 0.99
    epsilon: float = 1e-3
    center: bool = True
    scale: bool = True
    beta_initializer: Any = ZEROS
    gamma_initializer: Any = _ONES
    moving_mean_initializer: Any = ZEROS
    moving_variance_initializer: Any = _ONES
    beta_regularizer: Maker = None
    gamma_regularizer: Maker = None
    beta_constraint: Maker = None
    gamma_constraint: Maker = None
    renorm: bool = False
    renorm_clipping: Any = None
    renorm_momentum: float = 0.99
    fused: bool | None = None
    trainable: bool = True
    virtual_batch_size: int | None = None
    adjustment: Any = None
    name: str | None = None  # type: ignore[assignment]  # Layer makes one
    _: KW_ONLY
    dtype: Any = None
    _scope: InitVar[Any] = None
    _reuse: InitVar[Any] = None

    gamma = beta = moving_mean = moving_variance = UNBUILT

    def __post_init__(self, _scope: Any, _reuse: Any) -> None:
        super().__init__(self.trainable, self.name, self.dtype, _scope=_scope, _reuse=_reuse)
        if not isinstance(self.axis, int):
            if len(list(self.axis)) != 1:
                raise ValueError(f"axis must be one dimension, got {self.axis!r}: reshape the inputs.")
            self.axis = int(next(iter(self.axis)))
        for name in ("renorm", "renorm_clipping", "virtual_batch_size", "adjustment"):
            if getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is not supported: leave it out. Batches are "
                    "normalized whole, by their own moments."
                )

    def build(self, input_shape: TensorShape) -> None:
        """Create the variables."""
        input_shape = TensorShape(input_shape)
        if input_shape.ndims is None:
            raise ValueError("Input has undefined rank.")
        size = input_shape[rules.normalize_axis(self.axis, input_shape.ndims)].value
        if size is None:
            raise ValueError(
                f"Input has undefined `axis` dimension. Received input with shape {input_shape}."
            )
        kind = float32 if self.dtype is float16 else self.dtype
        if self.scale:
            self.gamma = self.add_weight(
                "gamma", [size], kind, self.gamma_initializer, self.gamma_regularizer, True,
                self.gamma_constraint,
            )  # fmt: skip
        if self.center:
            self.beta = self.add_weight(
                "beta", [size], kind, self.beta_initializer, self.beta_regularizer, True,
                self.beta_constraint,
            )  # fmt: skip
        for name in ("moving_mean", "moving_variance"):
            initializer = getattr(self, f"{name}_initializer")
            average = self.add_weight(
                name, [size], kind, initializer, trainable=False, partitioner=WHOLE
            )
            setattr(self, name, average)
        self.built = True

    def call(self, inputs: Any, training: Any = False) -> Tensor:
        """Return the result; ``training`` is a bool, or a bool scalar tensor to be fed."""
        x = convert_to_tensor(inputs)
        rank = x.shape.ndims
        assert rank is not None, "checked in build"
        at, kind = rules.normalize_axis(self.axis, rank), self.moving_mean.dtype
        wide = cast(x, kind)
        averages: list[Any] = [self.moving_mean, self.moving_variance]
        as_images = rank == 4 and at in (1, 3) and self.fused is not False
        if not is_tensor_like(training) and training:
            size = [x.shape[at].value]
            one, zero = (create_op("Fill", (size, convert_to_tensor(v, kind))) for v in (1.0, 0.0))
            factor = one if self.gamma is None else convert_to_tensor(self.gamma)
            offset = zero if self.beta is None else convert_to_tensor(self.beta)
            result, mean, variance = normalized_batch(wide, factor, offset, at, self.epsilon)
            self._move(averages, mean, _moved(variance, wide, at, as_images), self.momentum)
            return cast(result, x.dtype)
        if is_tensor_like(training):  # if false, use the averages and do not update them
            flag = flag_of(training)
            mean, variance = moments(wide, [i for i in range(rank) if i != at])
            used = [_either(flag, mean, averages[0]), _either(flag, variance, averages[1])]
            decay = _either(flag, *(convert_to_tensor(v, kind) for v in (self.momentum, 1.0)))
            self._move(averages, mean, _moved(variance, wide, at, as_images), decay)
        else:
            used = [average.value() for average in averages]
        vectors = (_along(v, at, rank) for v in (*used, self.beta, self.gamma))
        center_by, scale_by, offset, factor = vectors
        return cast(_normalize(wide, center_by, scale_by, offset, factor, self.epsilon), x.dtype)

    def _move(self, averages: list[Variable], mean: Tensor, variance: Tensor, momentum: Any) -> None:
        for average, value in zip(averages, (mean, variance), strict=True):
            self.add_update(assign_moving_average(average, stop_gradient(value), momentum, False))


batch_normalization = layer_function(BatchNormalization, "batch_normalization", """
    axis momentum epsilon center scale beta_initializer gamma_initializer moving_mean_initializer
    moving_variance_initializer beta_regularizer gamma_regularizer beta_constraint gamma_constraint
    training trainable name reuse renorm renorm_clipping renorm_momentum fused virtual_batch_size
    adjustment""")  # fmt: skip


def _either(condition: Tensor, x: Any, y: Any) -> Tensor:
    return create_op("SelectV2", (condition, x, y))


def _along(vector: Any, axis: int, rank: int) -> Any:
    """Return a vector in a shape that broadcasts along an axis, or None for None."""
    if vector is None or axis == rank - 1:
        return vector
    return create_op("ExpandDims", (vector,), {"axis": tuple(range(1, rank - axis))})


def _moved(variance: Tensor, x: Tensor, axis: int, as_images: bool) -> Tensor:
    """Return the variance for the moving average; as in TF1, the unbiased estimate for images."""
    if not as_images:
        return variance
    count = cast(size_of(x, out_type=int64), variance.dtype) / (x.shape[axis].value or 1)
    return variance * (count / maximum(count - 1, convert_to_tensor(1.0, variance.dtype)))
