"""TF1: ``tf.contrib.layers``: layers with ``arg_scope``, initializer, regularizer, optimize_loss.

Common arguments of layers:

* ``scope``: the variable scope; by default the name that is given for each layer.
* ``variables_collections``: collections beside ``MODEL_VARIABLES``, or a dict of them by variable.
* ``outputs_collections``: collections for the result.
* ``data_format``: "NHWC" or "NCHW".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from asyncmon import graph as tf
from asyncmon.summary import scalar
from asyncmon.tf1.contrib.framework import add_arg_scope, model_variable
from asyncmon.tf1.old_names import scalar_mul
from asyncmon.tf1.optimizers import FtrlOptimizer
from asyncmon.tf1.signatures import REQUIRED, function_of

__all__ = [
    "avg_pool2d", "batch_norm", "conv2d", "convolution2d", "dropout", "flatten", "fully_connected",
    "l2_regularizer", "max_pool2d", "one_hot_encoding", "optimize_loss", "xavier_initializer",
    "xavier_initializer_conv2d",
]  # fmt: skip

Regularizer = Callable[[Any], tf.Tensor | None]


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32
) -> Callable[..., tf.Tensor]:
    """Return an initializer that keeps the scale of the gradients. TF1: same name.

    The values have the variance 2 / (inputs + outputs). They are uniform, or normal with 1.3 times that
    variance, truncated at 2 deviations. TypeError for a dtype other than floats.
    """
    if not tf.as_dtype(dtype).is_floating:
        raise TypeError("Cannot create initializer for non-floating point type.")
    if uniform:
        return tf.glorot_uniform_initializer(seed, dtype)
    scale = 1.3 * 0.8796256610342398**2  # the engine corrects the deviation for the cut
    return tf.variance_scaling_initializer(scale, "fan_avg", "truncated_normal", seed, dtype)


xavier_initializer_conv2d = xavier_initializer
_XAVIER, _ZEROS = xavier_initializer(), tf.zeros_initializer()


def l2_regularizer(scale: Any, scope: str | None = None) -> Regularizer:
    """Return a regularizer of ``scale`` times half the sum of squares. TF1: same name.

    With a scale of 0 the regularizer returns None. ValueError for an int or a negative scale.
    """
    if isinstance(scale, int):
        raise ValueError(f"scale cannot be an integer: {scale}")
    if isinstance(scale, float):
        if scale < 0.0:
            raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale:g}")
        if scale == 0.0:
            return lambda _: None

    def regularize(weights: Any) -> tf.Tensor:
        with tf.name_scope(scope, "l2_regularizer", [weights]) as name:
            by = tf.convert_to_tensor(scale, weights.dtype, name="scale")
            return tf.multiply(by, tf.nn.l2_loss(weights), name=name)

    return regularize


# --- layers ---------------------------------------------------------------------------------------
def _collected(result: tf.Tensor, collections: Any) -> tf.Tensor:
    if collections:
        tf.add_to_collections(collections, result)
    return result


def _channels(data_format: str | None) -> str:
    if data_format not in (None, "NHWC", "NCHW"):
        raise ValueError(f"data_format has to be either NCHW or NHWC, got {data_format!r}.")
    return "channels_first" if data_format == "NCHW" else "channels_last"


# fmt: off
@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> tf.Tensor:
    """Flatten all dimensions but the first into one. TF1: same name. The scope is "Flatten"."""
    with tf.name_scope(scope, "Flatten"):
        return _collected(tf.layers.flatten(inputs), outputs_collections)


@add_arg_scope
def one_hot_encoding(
    labels: Any, num_classes: int, on_value: float = 1.0, off_value: float = 0.0,
    outputs_collections: Any = None, scope: str | None = None,
) -> tf.Tensor:
    """As ``tf.one_hot``. TF1: same name. The scope is "OneHotEncoding"."""
    with tf.name_scope(scope, "OneHotEncoding"):
        found = tf.one_hot(labels, num_classes, on_value, off_value)
        return _collected(found, outputs_collections)


@add_arg_scope
def dropout(
    inputs: Any, keep_prob: Any = 0.5, noise_shape: Any = None, is_training: Any = True,
    outputs_collections: Any = None, scope: Any = None, seed: int | None = None,
) -> tf.Tensor:
    """As ``tf.layers.dropout`` with ``rate = 1 - keep_prob``. TF1: same name. Scope "Dropout"."""
    with tf.variable_scope(scope, "Dropout"):
        found = tf.layers.dropout(inputs, 1 - keep_prob, noise_shape, seed, is_training)
        return _collected(found, outputs_collections)


def _pooling(name: str, layer: Any, scope_name: str) -> Callable[..., tf.Tensor]:
    def pool(
        inputs: Any, kernel_size: Any, stride: Any, padding: str, data_format: Any,
        outputs_collections: Any, scope: Any,
    ) -> tf.Tensor:
        with tf.name_scope(scope, scope_name):
            found = layer(inputs, kernel_size, stride, padding.lower(), _channels(data_format))
            return _collected(found, outputs_collections)

    arguments = {
        "inputs": REQUIRED, "kernel_size": REQUIRED, "stride": 2, "padding": "VALID",
        "data_format": "NHWC", "outputs_collections": None, "scope": None,
    }
    doc = f"Pool images as ``tf.layers`` does, in the scope {scope_name!r}. TF1: same name."
    return add_arg_scope(function_of(name, doc, arguments, pool))


max_pool2d = _pooling("max_pool2d", tf.layers.max_pooling2d, "MaxPool2D")
avg_pool2d = _pooling("avg_pool2d", tf.layers.average_pooling2d, "AvgPool2D")


@add_arg_scope
def batch_norm(
    inputs: Any, decay: float = 0.999, center: bool = True, scale: bool = False, epsilon: float = 0.001,
    activation_fn: Any = None, param_initializers: Any = None, param_regularizers: Any = None,
    updates_collections: Any = tf.GraphKeys.UPDATE_OPS, is_training: Any = True, reuse: Any = None,
    variables_collections: Any = None, outputs_collections: Any = None, trainable: bool = True,
    batch_weights: Any = None, fused: bool | None = None, data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False, scope: Any = None, renorm: bool = False,
    renorm_clipping: Any = None, renorm_decay: float = 0.99, adjustment: Any = None,
) -> tf.Tensor:
    """Normalize batches by their moments in training, else by moving averages. TF1: same name.

    The scope is "BatchNorm". The other arguments, and errors, are those of
    ``tf.layers.BatchNormalization``.

    Args:
        decay: the momentum of the averages.
        param_initializers: by the names of variables, as ``param_regularizers``.
        updates_collections: collections for the updates of the averages; None to update them with each
            use of the result.
        batch_weights: must be None; ``zero_debias_moving_mean`` must be false.
    """
    if batch_weights is not None or zero_debias_moving_mean:
        raise ValueError("batch_norm() takes no batch_weights= and no zero_debias_moving_mean=.")
    own = {f"{key}_initializer": value for key, value in (param_initializers or {}).items()}
    own |= {f"{key}_regularizer": value for key, value in (param_regularizers or {}).items()}
    getter = _named(variables_collections)
    with tf.variable_scope(scope, "BatchNorm", reuse=reuse, custom_getter=getter) as inside:
        layer = tf.layers.BatchNormalization(
            1 if data_format == "NCHW" else -1, decay, epsilon, center, scale, renorm=renorm,
            renorm_clipping=renorm_clipping, renorm_momentum=renorm_decay, fused=fused,
            trainable=trainable, adjustment=adjustment, _scope=inside, _reuse=reuse, **own,
        )
        result: Any = layer(inputs, training=is_training)
        if updates_collections != tf.GraphKeys.UPDATE_OPS:
            of_graph = tf.get_collection_ref(tf.GraphKeys.UPDATE_OPS)
            of_graph[:] = [update for update in of_graph if update not in layer.updates]
            for update in layer.updates if updates_collections else ():
                tf.add_to_collections(updates_collections, update)
        if not updates_collections:
            with tf.control_dependencies(layer.updates):
                result = tf.identity(result)
        result = result if activation_fn is None else activation_fn(result)
        return _collected(result, outputs_collections)


# --- layers with weights --------------------------------------------------------------------------
_COMMON = {
    "activation_fn": tf.nn.relu, "normalizer_fn": None, "normalizer_params": None,
    "weights_initializer": _XAVIER, "weights_regularizer": None, "biases_initializer": _ZEROS,
    "biases_regularizer": None, "reuse": None, "variables_collections": None,
    "outputs_collections": None, "trainable": True, "scope": None,
}


def _weighted(
    name: str, what: str, scope_name: str, own: dict[str, Any], make: Callable[..., Any]
) -> Callable[..., tf.Tensor]:
    """Return the function of a layer that ``make`` returns for the arguments in ``own`` and others."""

    def function(
        inputs: Any, num_outputs: Any, activation_fn: Any, normalizer_fn: Any, normalizer_params: Any,
        weights_initializer: Any, weights_regularizer: Any, biases_initializer: Any,
        biases_regularizer: Any, reuse: Any, variables_collections: Any, outputs_collections: Any,
        trainable: bool, scope: Any, **arguments: Any,
    ) -> tf.Tensor:
        if not isinstance(num_outputs, int):
            found = type(num_outputs).__name__
            raise ValueError(f"num_outputs should be an int, got {num_outputs!r} of type {found}.")
        getter = _named(variables_collections, kernel="weights", bias="biases")
        with tf.variable_scope(scope, scope_name, reuse=reuse, custom_getter=getter) as inside:
            layer = make(
                num_outputs, **arguments, kernel_initializer=weights_initializer,
                kernel_regularizer=weights_regularizer, bias_initializer=biases_initializer,
                use_bias=normalizer_fn is None and biases_initializer is not None,
                bias_regularizer=biases_regularizer, trainable=trainable, _scope=inside, _reuse=reuse,
            )
            result = layer(inputs)
            if normalizer_fn is not None:
                result = normalizer_fn(result, **(normalizer_params or {}))
            result = result if activation_fn is None else activation_fn(result)
            return _collected(result, outputs_collections)

    doc = (
        f"Return ``activation_fn({what} + biases)``. TF1: same name.\n\n"
        f'    The variables are "weights" and "biases" in the scope "{scope_name}"; None means none.\n'
        "    ``normalizer_fn`` is called with ``normalizer_params`` in place of adding biases.\n"
        "    ValueError if ``num_outputs`` is no int."
    )
    own = {"inputs": REQUIRED, "num_outputs": REQUIRED, **own}
    return add_arg_scope(function_of(name, doc, {**own, **_COMMON}, function))


def _named(collections: Any, **names: str) -> Callable[..., Any]:
    """Return a getter that renames variables, if there are names, and adds them to collections.

    It makes them by ``model_variable``, whose arguments, and those of ``variable``, have an arg_scope.
    """

    def getter(get: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        path, _, last = name.rpartition("/")
        if names and last not in names:  # of the normalizer
            return get(name, *args, **kwargs)
        own = names.get(last, last)
        wanted = collections.get(own) if isinstance(collections, dict) else collections
        extra = [wanted] if isinstance(wanted, str) else [*(wanted or [])]
        kwargs["collections"] = [*(kwargs.get("collections") or ()), *extra]
        path = f"{path}/{own}" if path else own
        return model_variable(path, *args, custom_getter=get, **kwargs)

    return getter


def _conv(
    filters: int, kernel_size: Any, stride: Any, padding: str, data_format: Any, rate: Any, **rest: Any
) -> Any:
    size = kernel_size, stride, padding.lower(), _channels(data_format), rate
    return tf.layers.Conv2D(filters, *size, **rest)


_DENSE = "fully_connected"
fully_connected = _weighted(_DENSE, "inputs @ weights", _DENSE, {}, tf.layers.Dense)
conv2d = convolution2d = _weighted(
    "conv2d", "convolution of images with weights", "Conv",
    {"kernel_size": REQUIRED, "stride": 1, "padding": "SAME", "data_format": None, "rate": 1}, _conv,
)
# fmt: on


# --- training -------------------------------------------------------------------------------------
_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "Adagrad": tf.train.AdagradOptimizer,
    "Adam": tf.train.AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": lambda rate: tf.train.MomentumOptimizer(rate, 0.9),
    "RMSProp": tf.train.RMSPropOptimizer,
    "SGD": tf.train.GradientDescentOptimizer,
}
_SUMMARIES = ("learning_rate", "loss", "global_gradient_norm")


# fmt: off
def optimize_loss(
    loss: Any, global_step: Any, learning_rate: Any, optimizer: Any,
    gradient_noise_scale: float | None = None, gradient_multipliers: Any = None,
    clip_gradients: Any = None, learning_rate_decay_fn: Callable[..., Any] | None = None,
    update_ops: Any = None, variables: Any = None, name: str | None = None,
    summaries: Sequence[str] | None = None, colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> tf.Tensor:
    """Return the loss, whose computation includes a step of an optimizer. TF1: same name.

    Args:
        global_step: by default that of the graph, if there is one; it is incremented.
        learning_rate: the initial value of the variable "learning_rate", a scalar tensor, or None.
        optimizer: "Adagrad", "Adam", "Ftrl", "Momentum" (of 0.9), "RMSProp" or "SGD"; an optimizer; or
            a class or function that takes the rate and returns one.
        gradient_noise_scale: the factor of normal noise on the gradients.
        gradient_multipliers: factors of gradients, by variable or by its name.
        clip_gradients: the greatest global norm, or a function of pairs of gradients and variables.
        learning_rate_decay_fn: called with the rate and the step, returns the rate.
        update_ops: operations to run first; by default those in ``GraphKeys.UPDATE_OPS``.
        summaries: some of "learning_rate", "loss", "global_gradient_norm"; by default all of them.

    ValueError for an unknown optimizer or summary, or a rate that is no scalar.
    """
    wanted = _SUMMARIES if summaries is None else summaries
    if unknown := [one for one in wanted if one not in _SUMMARIES]:
        raise ValueError(f"Summaries should be one of {', '.join(_SUMMARIES)}, got {unknown!r}.")
    step = tf.get_global_step() if global_step is None else global_step
    if step is None and learning_rate_decay_fn is not None:
        raise ValueError("global_step is required for learning_rate_decay_fn.")
    with tf.variable_scope(name, "OptimizeLoss"):
        first = tf.get_collection(tf.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
        with tf.control_dependencies(list(first)):
            loss = tf.identity(loss)
        rate: Any = learning_rate
        if isinstance(rate, int | float):
            start = tf.constant_initializer(rate)
            rate = tf.get_variable("learning_rate", [], initializer=start, trainable=False)
        elif rate is not None and tf.convert_to_tensor(rate).shape.ndims != 0:
            raise ValueError(f"Invalid learning_rate {rate!r}: give a number or a scalar tensor.")
        if rate is not None and learning_rate_decay_fn is not None:
            rate = learning_rate_decay_fn(rate, step)
        chosen = _optimizer(optimizer, rate)
        pairs = chosen.compute_gradients(
            loss, variables, colocate_gradients_with_ops=colocate_gradients_with_ops
        )
        found, factors = [], gradient_multipliers or {}
        for grad, v in pairs:
            if grad is None:
                continue
            if gradient_noise_scale is not None:
                noise = tf.truncated_normal(tf.shape(grad), dtype=grad.dtype)
                grad = grad + gradient_noise_scale * noise
            by = factors.get(v, factors.get(v.op.name))
            found.append((grad if by is None else scalar_mul(by, grad), v))
        if "global_gradient_norm" in wanted:
            scalar("global_norm/gradient_norm", tf.global_norm([grad for grad, _ in found]))
        if callable(clip_gradients):
            found = clip_gradients(found)
        elif clip_gradients is not None:
            clipped, _ = tf.clip_by_global_norm([grad for grad, _ in found], clip_gradients)
            found = [(grad, v) for grad, (_, v) in zip(clipped, found, strict=True)]
        if "loss" in wanted:
            scalar("loss", loss)
        if "learning_rate" in wanted and rate is not None:
            scalar("learning_rate", rate)
        train = chosen.apply_gradients(found, step if increment_global_step else None, name="train")
        with tf.control_dependencies([train]):
            return tf.identity(loss)
# fmt: on


def _optimizer(given: Any, rate: Any) -> Any:
    """Return the optimizer for an argument of :func:`optimize_loss`."""
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            names = ", ".join(_OPTIMIZERS)
            raise ValueError(f"Optimizer name should be one of {names}, you provided {given!r}.")
        if rate is None:
            raise ValueError("Learning rate is required for an optimizer that is given by name.")
        given = _OPTIMIZERS[given]
    if callable(given):
        given = given() if rate is None else given(rate)
    if not isinstance(given, tf.train.Optimizer):
        raise ValueError(f"Unrecognized optimizer {given!r}: give a name, a class or an optimizer.")
    return given
