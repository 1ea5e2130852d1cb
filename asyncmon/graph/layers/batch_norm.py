"""The batch normalization layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from asyncmon.graph.construction.build import add_to_collection, convert_to_tensor, create_op
from asyncmon.graph.construction.convert import is_tensor_like
from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.dtypes import int64
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.layers.layers import ZEROS, Maker, make_variable
from asyncmon.graph.nn.normalization import batch_normalization as _normalize
from asyncmon.graph.nn.normalization import moments, normalized_batch
from asyncmon.graph.ops.arithmetic import maximum
from asyncmon.graph.ops.basic import stop_gradient
from asyncmon.graph.ops.shape_ops import cast, in_single
from asyncmon.graph.ops.shape_ops import size as size_of
from asyncmon.graph.train.averages import assign_moving_average
from asyncmon.graph.variables.initializers import ones_initializer
from asyncmon.graph.variables.scope import variable_scope

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.variables.variable import Variable

_ONES = ones_initializer()


def batch_normalization(
    inputs: Any,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Maker = ZEROS,
    gamma_initializer: Maker = _ONES,
    moving_mean_initializer: Maker = ZEROS,
    moving_variance_initializer: Maker = _ONES,
    beta_regularizer: Maker = None,
    gamma_regularizer: Maker = None,
    beta_constraint: Maker = None,
    gamma_constraint: Maker = None,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Tensor:
    """Return a batch normalized by its moments in training, by moving averages of them otherwise.

    TF1: ``tf.layers.batch_normalization``. The averages move only when the ops in
    ``GraphKeys.UPDATE_OPS`` are run; make the train op depend on them::

        with control_dependencies(get_collection(GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss)

    Args:
        inputs: a tensor of floats.
        axis: the dimension that keeps its own moments, the channels.
        momentum: of the moving averages, "moving_mean", zeros at first, and "moving_variance", ones.
        epsilon: added to the variance.
        center: add the variable "beta", zeros by default.
        scale: multiply by the variable "gamma", ones by default.
        training: a bool, or a bool scalar tensor to be fed.
        trainable: whether optimizers find "beta" and "gamma".
        name: of the layer; "batch_normalization" by default.
        reuse: share the variables of an earlier layer of this name.

    The other arguments are of the variables that they are named after.

    Raises:
        ValueError: a rank or a size of ``axis`` that is not known.
    """
    x = convert_to_tensor(inputs)
    rank = x.shape.ndims
    if rank is None:
        raise ValueError("Input has undefined rank.")
    at = rules.normalize_axis(axis, rank)
    size = x.shape[at].value
    if size is None:
        raise ValueError(f"Input has undefined `axis` dimension. Received input with shape {x.shape}.")
    wide = in_single(x)
    kind = wide.dtype
    with variable_scope(name, "batch_normalization", reuse=reuse):
        vector = partial(make_variable, kind, [size])
        gamma = beta = None
        if scale:
            gamma = vector("gamma", gamma_initializer, gamma_regularizer, gamma_constraint, trainable)
        if center:
            beta = vector("beta", beta_initializer, beta_regularizer, beta_constraint, trainable)
        averages = [
            vector("moving_mean", moving_mean_initializer),
            vector("moving_variance", moving_variance_initializer),
        ]
        if not is_tensor_like(training) and training:
            one, zero = (create_op("Fill", ([size], convert_to_tensor(v, kind))) for v in (1.0, 0.0))
            factor = one if gamma is None else gamma.value()
            offset = zero if beta is None else beta.value()
            result, mean, variance = normalized_batch(wide, factor, offset, at, epsilon)
            _move(averages, mean, _unbiased(variance, wide, at), momentum)
            return cast(result, x.dtype)
        if is_tensor_like(training):  # if it is false, the averages are used and kept
            flag = convert_to_tensor(training)
            mean, variance = moments(wide, [i for i in range(rank) if i != at])
            used = [_either(flag, mean, averages[0]), _either(flag, variance, averages[1])]
            decay = _either(flag, *(convert_to_tensor(v, kind) for v in (momentum, 1.0)))
            _move(averages, mean, _unbiased(variance, wide, at), decay)
        else:
            used = [average.value() for average in averages]
        center_by, scale_by, offset, factor = (_along(v, at, rank) for v in (*used, beta, gamma))
        return cast(_normalize(wide, center_by, scale_by, offset, factor, epsilon), x.dtype)


def _either(condition: Tensor, x: Any, y: Any) -> Tensor:
    return create_op("SelectV2", (condition, x, y))


def _along(vector: Any, axis: int, rank: int) -> Any:
    """Return a vector in a shape that broadcasts along an axis; None as it is."""
    if vector is None or axis == rank - 1:
        return vector
    return create_op("ExpandDims", (vector,), {"axis": tuple(range(1, rank - axis))})


def _move(averages: list[Variable], mean: Tensor, variance: Tensor, momentum: Any) -> None:
    for average, value in zip(averages, (mean, variance), strict=True):
        update = assign_moving_average(average, stop_gradient(value), momentum)
        add_to_collection(GraphKeys.UPDATE_OPS, update)


def _unbiased(variance: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return the variance for the moving average: of images, as in TF1, the unbiased estimate."""
    if len(x.shape) != 4 or axis not in (1, 3):
        return variance
    count = cast(size_of(x, out_type=int64), variance.dtype) / (x.shape[axis].value or 1)
    return variance * (count / maximum(count - 1, convert_to_tensor(1.0, variance.dtype)))
