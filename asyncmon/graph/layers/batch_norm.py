"""The batch normalisation layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import add_to_collection, convert_to_tensor, create_op
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.dtypes import float16, float32
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.nn.normalization import batch_normalization as _normalize
from asyncmon.graph.nn.normalization import moments, normalized_batch
from asyncmon.graph.ops.shape_ops import cast
from asyncmon.graph.train.averages import assign_moving_average
from asyncmon.graph.variables.initializers import ones_initializer, zeros_initializer
from asyncmon.graph.variables.scope import get_variable, variable_scope

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.variables.variable import Variable

__all__ = ["batch_normalization"]

_Maker = Callable[..., Any] | None
_ZEROS, _ONES = zeros_initializer(), ones_initializer()


def batch_normalization(
    inputs: Any,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: _Maker = _ZEROS,
    gamma_initializer: _Maker = _ONES,
    moving_mean_initializer: _Maker = _ZEROS,
    moving_variance_initializer: _Maker = _ONES,
    beta_regularizer: _Maker = None,
    gamma_regularizer: _Maker = None,
    beta_constraint: _Maker = None,
    gamma_constraint: _Maker = None,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Tensor:
    """Return a batch normalised by its moments in training, by moving averages of them otherwise.

    TF1: ``tf.layers.batch_normalization``. The averages move only when the ops in
    ``GraphKeys.UPDATE_OPS`` are run; make the train op depend on them::

        with control_dependencies(get_collection(GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss)

    Args:
        inputs: a tensor of floats.
        axis: the dimension that keeps its own moments, the channels.
        momentum: of the moving averages.
        epsilon: added to the variance.
        center: add the variable "beta".
        scale: multiply by the variable "gamma".
        beta_initializer: zeros by default.
        gamma_initializer: ones by default.
        moving_mean_initializer: zeros by default.
        moving_variance_initializer: ones by default.
        beta_regularizer: of "beta".
        gamma_regularizer: of "gamma".
        beta_constraint: of "beta".
        gamma_constraint: of "gamma".
        training: a bool, or a bool scalar tensor to be fed.
        trainable: whether optimizers find "beta" and "gamma".
        name: of the layer; "batch_normalization" by default.
        reuse: share the variables of an earlier layer of this name.

    Raises:
        ValueError: a rank or a size of ``axis`` that is not known.
    """
    x = convert_to_tensor(inputs)
    rank = x.shape.ndims
    if rank is None:
        raise ValueError("Input has undefined rank.")
    at = rules.normalize_axis(axis, rank)
    size = x.shape[at]
    if size is None:
        raise ValueError(f"Input has undefined `axis` dimension. Received input with shape {x.shape}.")
    kind = float32 if x.dtype is float16 else x.dtype  # moments need more than half precision
    wide = cast(x, kind)
    with variable_scope(name, "batch_normalization", reuse=reuse):
        beta = gamma = None
        if scale:
            gamma = get_variable(
                "gamma",
                [size],
                kind,
                gamma_initializer,
                gamma_regularizer,
                trainable,
                constraint=gamma_constraint,
            )
        if center:
            beta = get_variable(
                "beta",
                [size],
                kind,
                beta_initializer,
                beta_regularizer,
                trainable,
                constraint=beta_constraint,
            )
        averages = [
            get_variable(part, [size], kind, initializer, trainable=False)
            for part, initializer in (
                ("moving_mean", moving_mean_initializer),
                ("moving_variance", moving_variance_initializer),
            )
        ]
        if is_tensor_like(training):
            result = _either(
                wide, at, gamma, beta, averages, convert_to_tensor(training), momentum, epsilon
            )
        elif training:
            result = _trained(wide, at, gamma, beta, averages, momentum, epsilon)
        else:
            result = _applied(
                wide, at, gamma, beta, (averages[0].value(), averages[1].value()), epsilon
            )
        return cast(result, x.dtype)


def _trained(
    x: Tensor,
    axis: int,
    gamma: Variable | None,
    beta: Variable | None,
    averages: list[Variable],
    momentum: Any,
    epsilon: float,
) -> Tensor:
    size = [x.shape[axis] or 0]
    one, zero = (create_op("Fill", (size, convert_to_tensor(v, x.dtype))) for v in (1.0, 0.0))
    scale = one if gamma is None else gamma.value()
    offset = zero if beta is None else beta.value()
    result, mean, variance = normalized_batch(x, scale, offset, axis, epsilon)
    _move(averages, (mean, _unbiased(variance, x, axis)), momentum)
    return result


def _either(
    x: Tensor,
    axis: int,
    gamma: Variable | None,
    beta: Variable | None,
    averages: list[Variable],
    training: Tensor,
    momentum: float,
    epsilon: float,
) -> Tensor:
    """Both cases in one graph: outside of training the averages are used, and stay."""
    batch = moments(x, [i for i in range(len(x.shape)) if i != axis])
    used = [
        create_op("SelectV2", (training, now, average.value()))
        for now, average in zip(batch, averages, strict=True)
    ]
    kept = (convert_to_tensor(v, x.dtype) for v in (momentum, 1.0))
    decay = create_op("SelectV2", (training, *kept))
    _move(averages, (batch[0], _unbiased(batch[1], x, axis)), decay)
    return _applied(x, axis, gamma, beta, (used[0], used[1]), epsilon)


def _applied(
    x: Tensor,
    axis: int,
    gamma: Variable | None,
    beta: Variable | None,
    statistics: tuple[Tensor, Tensor],
    epsilon: float,
) -> Tensor:
    rank = len(x.shape)

    def broad(vector: Any) -> Any:
        if vector is None or axis == rank - 1:
            return vector
        return create_op("ExpandDims", (vector,), {"axis": tuple(range(1, rank - axis))})

    return _normalize(x, broad(statistics[0]), broad(statistics[1]), broad(beta), broad(gamma), epsilon)


def _move(averages: list[Variable], values: tuple[Tensor, Tensor], momentum: Any) -> None:
    for average, value in zip(averages, values, strict=True):
        update = assign_moving_average(average, create_op("StopGradient", (value,)), momentum)
        add_to_collection(GraphKeys.UPDATE_OPS, update)


def _unbiased(variance: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return what the moving average follows: of images, as in the original, the unbiased estimate."""
    if len(x.shape) != 4 or axis not in (1, 3):
        return variance
    count = cast(create_op("Size", (x,), {"out_type": rules.INTS[2]}), variance.dtype) / (
        x.shape[axis] or 1
    )
    at_least_two = create_op("Maximum", (count - 1, convert_to_tensor(1.0, variance.dtype)))
    return variance * (count / at_least_two)
