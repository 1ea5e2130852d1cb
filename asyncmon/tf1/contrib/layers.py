"""TF1: ``tf.contrib.layers``: layers with ``arg_scope``, xavier_initializer, l2_regularizer.

Common arguments of layers:

* ``scope``: the variable scope; by default the name that is given for each layer.
* ``variables_collections``: collections for the variables, in addition to ``MODEL_VARIABLES``; or a
  dict with those of "weights" and of "biases".
* ``outputs_collections``: collections for the result.
* ``data_format``: "NHWC" or "NCHW".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncmon import graph as tf
from asyncmon.tf1.contrib.framework import add_arg_scope
from asyncmon.tf1.contrib.optimize_loss import optimize_loss as optimize_loss
from asyncmon.tf1.signatures import REQUIRED, function_of

__all__ = [
    "avg_pool2d", "batch_norm", "conv2d", "conv2d_transpose", "convolution2d", "dropout", "flatten",
    "fully_connected", "l2_regularizer", "max_pool2d", "optimize_loss", "repeat", "xavier_initializer",
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
    formats = {None: "channels_last", "NHWC": "channels_last", "NCHW": "channels_first"}
    if data_format not in formats:
        raise ValueError(f"data_format has to be either NCHW or NHWC, got {data_format!r}.")
    return formats[data_format]


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> tf.Tensor:
    """Flatten all dimensions but the first into one. TF1: same name. The scope is "Flatten"."""
    with tf.name_scope(scope, "Flatten"):
        return _collected(tf.layers.flatten(inputs), outputs_collections)


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: int | None = None,
) -> tf.Tensor:
    """Drop elements in training, keep each with ``keep_prob``. TF1: same name. Scope "Dropout".

    The other arguments are those of ``tf.layers.dropout``.
    """
    with tf.variable_scope(scope, "Dropout"):
        found = tf.layers.dropout(inputs, 1 - keep_prob, noise_shape, seed, is_training)
        return _collected(found, outputs_collections)


def _pooling(name: str, layer: Any, scope_name: str) -> Callable[..., tf.Tensor]:
    arguments = {
        "inputs": REQUIRED, "kernel_size": REQUIRED, "stride": 2, "padding": "VALID",
        "data_format": "NHWC", "outputs_collections": None, "scope": None,
    }  # fmt: skip

    def pool(
        inputs: Any, kernel_size: Any, stride: Any, padding: str, data_format: Any,
        outputs_collections: Any, scope: Any,
    ) -> tf.Tensor:  # fmt: skip
        with tf.name_scope(scope, scope_name):
            found = layer(inputs, kernel_size, stride, padding.lower(), _channels(data_format))
            return _collected(found, outputs_collections)

    doc = f"Pool images as ``tf.layers`` does, with the scope {scope_name!r}. TF1: same name."
    return add_arg_scope(function_of(name, doc, arguments, pool))


max_pool2d = _pooling("max_pool2d", tf.layers.max_pooling2d, "MaxPool2D")
avg_pool2d = _pooling("avg_pool2d", tf.layers.average_pooling2d, "AvgPool2D")


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Callable[..., Any] | None = None,
    param_initializers: dict[str, Any] | None = None,
    param_regularizers: dict[str, Any] | None = None,
    updates_collections: Any = tf.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_decay: float = 0.99,
    adjustment: Any = None,
) -> tf.Tensor:
    """Normalize batches by their moments in training, else by moving averages. TF1: same name.

    The scope is "BatchNorm", with the variables "beta", "gamma", "moving_mean" and "moving_variance".

    Args:
        decay: the momentum of the averages.
        param_initializers: initializers by the names of the variables.
        param_regularizers: likewise, for "beta" and "gamma".
        updates_collections: collections for the updates of the averages; None to update them with each
            use of the result.
        batch_weights: must be None; ``zero_debias_moving_mean`` must be false.

    The other arguments, and errors, are those of ``tf.layers.BatchNormalization``.
    """
    if batch_weights is not None or zero_debias_moving_mean:
        raise ValueError("batch_norm() takes no batch_weights= and no zero_debias_moving_mean=.")
    own = {f"{key}_initializer": value for key, value in (param_initializers or {}).items()}
    own |= {f"{key}_regularizer": value for key, value in (param_regularizers or {}).items()}
    getter = _named(variables_collections, {})
    with tf.variable_scope(scope, "BatchNorm", reuse=reuse, custom_getter=getter) as inside:
        layer = tf.layers.BatchNormalization(
            -1 if _channels(data_format) == "channels_last" else 1, decay, epsilon, center, scale,
            renorm=renorm, renorm_clipping=renorm_clipping, renorm_momentum=renorm_decay, fused=fused,
            trainable=trainable, adjustment=adjustment, _scope=inside, _reuse=reuse, **own,
        )  # fmt: skip
        result: Any = layer(inputs, training=is_training)
        if updates_collections != tf.GraphKeys.UPDATE_OPS:
            of_graph = tf.get_collection_ref(tf.GraphKeys.UPDATE_OPS)
            of_graph[:] = [update for update in of_graph if update not in layer.updates]
            for update in layer.updates if updates_collections else ():
                tf.add_to_collections(updates_collections, update)
        if not updates_collections:
            with tf.control_dependencies(layer.updates):
                result = tf.identity(result)
        if activation_fn is not None:
            result = activation_fn(result)
        return _collected(result, outputs_collections)


# --- layers with weights --------------------------------------------------------------------------
_COMMON = {
    "activation_fn": tf.nn.relu, "normalizer_fn": None, "normalizer_params": None,
    "weights_initializer": _XAVIER, "weights_regularizer": None, "biases_initializer": _ZEROS,
    "biases_regularizer": None, "reuse": None, "variables_collections": None,
    "outputs_collections": None, "trainable": True, "scope": None,
}  # fmt: skip
_WINDOWS = {
    "inputs": REQUIRED, "num_outputs": REQUIRED, "kernel_size": REQUIRED, "stride": 1,
    "padding": "SAME", "data_format": None,
}  # fmt: skip


def _weighted(
    name: str, doc: str, scope_name: str, own: dict[str, Any], make: Callable[..., Any]
) -> Callable[..., tf.Tensor]:
    """Return the function of a layer that ``make`` returns for its own and some common arguments."""

    def function(
        inputs: Any, activation_fn: Any, normalizer_fn: Any, normalizer_params: Any,
        weights_initializer: Any, weights_regularizer: Any, biases_initializer: Any,
        biases_regularizer: Any, reuse: Any, variables_collections: Any, outputs_collections: Any,
        trainable: bool, scope: Any, **arguments: Any,
    ) -> tf.Tensor:  # fmt: skip
        if type(arguments["num_outputs"]) is not int:
            found = arguments["num_outputs"]
            raise ValueError(f"num_outputs should be an int, got {found!r} of {type(found).__name__}.")
        getter = _named(variables_collections, _NAMES)
        with tf.variable_scope(scope, scope_name, reuse=reuse, custom_getter=getter) as inside:
            layer = make(
                weights_initializer, weights_regularizer, **arguments,
                use_bias=normalizer_fn is None and biases_initializer is not None,
                bias_initializer=biases_initializer, bias_regularizer=biases_regularizer,
                trainable=trainable, _scope=inside, _reuse=reuse,
            )  # fmt: skip
            result: Any = layer(inputs)
            if normalizer_fn is not None:
                result = normalizer_fn(result, **(normalizer_params or {}))
            if activation_fn is not None:
                result = activation_fn(result)
            return _collected(result, outputs_collections)

    text = (
        f'{doc} TF1: same name.\n\n    The variables are "weights" and "biases" in the scope '
        f'"{scope_name}".\n    ``normalizer_fn`` is called with the sum and ``normalizer_params`` in '
        "place of adding biases,\n    ``activation_fn`` after it; None for no such function. "
        "ValueError if ``num_outputs`` is no int."
    )
    return add_arg_scope(function_of(name, text, {**own, **_COMMON}, function))


_NAMES = {"kernel": "weights", "bias": "biases"}


def _named(collections: Any, names: dict[str, str]) -> Callable[..., Any]:
    """Return a getter that renames variables and adds them to collections."""

    def getter(get: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        path, _, last = name.rpartition("/")
        if names and last not in names:  # of the normalizer
            return get(name, *args, **kwargs)
        own = names.get(last, last)
        wanted = collections.get(own) if isinstance(collections, dict) else collections
        keys = [tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES]
        extra = [wanted] if isinstance(wanted, str) else [*(wanted or [])]
        kwargs["collections"] = [*(kwargs.get("collections") or keys), *extra]
        return get(f"{path}/{own}" if path else own, *args, **kwargs)

    return getter


def _conv(layer: Any) -> Callable[..., Any]:
    def make(
        start: Any, regularizer: Any, *, num_outputs: int, kernel_size: Any, stride: Any, padding: str,
        data_format: Any, rate: Any = 1, **common: Any,
    ) -> Any:  # fmt: skip
        dilation = {} if layer is tf.layers.Conv2DTranspose else {"dilation_rate": rate}
        return layer(
            num_outputs, kernel_size, stride, padding.lower(), _channels(data_format), **dilation,
            kernel_initializer=start, kernel_regularizer=regularizer, **common,
        )  # fmt: skip

    return make


fully_connected = _weighted(
    "fully_connected", "Return ``activation_fn(inputs @ weights + biases)``.", "fully_connected",
    {"inputs": REQUIRED, "num_outputs": REQUIRED},
    lambda start, regularizer, num_outputs, **common: tf.layers.Dense(
        num_outputs, kernel_initializer=start, kernel_regularizer=regularizer, **common),
)  # fmt: skip
conv2d = convolution2d = _weighted(
    "conv2d", "Return ``activation_fn(convolution of images + biases)``.", "Conv",
    {**_WINDOWS, "rate": 1}, _conv(tf.layers.Conv2D),
)  # fmt: skip
conv2d_transpose = _weighted(
    "conv2d_transpose", "Return the transpose of a convolution, with biases.", "Conv2d_transpose",
    _WINDOWS, _conv(tf.layers.Conv2DTranspose),
)  # fmt: skip


def repeat(inputs: Any, repetitions: int, layer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Apply a layer several times, in the scopes "NAME/NAME_1" and so on. TF1: same name.

    ``scope`` is NAME, by default the name of the layer. The other arguments are for the layer.
    """
    name = kwargs.pop("scope", None) or getattr(layer, "__name__", "Repeat")
    with tf.variable_scope(name):
        for i in range(repetitions):
            inputs = layer(inputs, *args, scope=f"{name}_{i + 1}", **kwargs)
        return inputs
