"""TF1: ``tf.contrib.layers``: xavier_initializer, l2_regularizer, flatten and fully_connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncmon import graph as tf

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


def flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> tf.Tensor:
    """Flatten all dimensions but the first into one. TF1: same name.

    The result is added to ``outputs_collections``.
    """
    with tf.name_scope(scope, "Flatten"):
        result = tf.layers.flatten(inputs)
        if outputs_collections:
            tf.add_to_collections(outputs_collections, result)
        return result


def fully_connected(
    inputs: Any,
    num_outputs: Any,
    activation_fn: Callable[..., Any] | None = tf.nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: dict[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Regularizer | None = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Regularizer | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """Return ``activation_fn(inputs @ weights + biases)``. TF1: same name.

    Args:
        inputs: tensor of rank 2 or higher with a known last dimension.
        num_outputs: the size of the last dimension of the result.
        activation_fn: None for no activation.
        normalizer_fn: called with the product and ``normalizer_params`` instead of adding biases.
        biases_initializer: None for no biases.
        variables_collections: collections for the variables, in addition to ``MODEL_VARIABLES``; or a
            dict with the collections of "weights" and of "biases".
        outputs_collections: collections for the result.
        scope: the variable scope, "fully_connected" by default.

    The other arguments are those of :func:`tf.layers.dense`, for the variables "weights" and "biases".

    Raises:
        ValueError: ``num_outputs`` is no int, or the rank or the last dimension is unknown.
    """
    if not isinstance(num_outputs, int):
        found = type(num_outputs).__name__
        raise ValueError(f"num_outputs should be an int, got {num_outputs!r} of type {found}.")
    names = {"kernel": "weights", "bias": "biases"}

    def renamed(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        path, _, last = name.rpartition("/")
        if last not in names:  # of the normalizer
            return getter(name, *args, **kwargs)
        own = names[last]
        wanted = variables_collections
        wanted = wanted.get(own) if isinstance(wanted, dict) else wanted
        keys = [tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES]
        extra = [wanted] if isinstance(wanted, str) else [*(wanted or [])]
        kwargs["collections"] = [*(kwargs.get("collections") or keys), *extra]
        return getter(f"{path}/{own}" if path else own, *args, **kwargs)

    with tf.variable_scope(scope, "fully_connected", reuse=reuse, custom_getter=renamed) as inside:
        layer = tf.layers.Dense(
            num_outputs,
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer,
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            _scope=inside,
            _reuse=reuse,
        )
        result: Any = layer(inputs)
        if normalizer_fn is not None:
            result = normalizer_fn(result, **(normalizer_params or {}))
        if activation_fn is not None:
            result = activation_fn(result)
        if outputs_collections:
            tf.add_to_collections(outputs_collections, result)
        output: tf.Tensor = result
        return output
