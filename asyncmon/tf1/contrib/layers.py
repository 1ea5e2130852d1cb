"""TF1: ``tf.contrib.layers``: initializers, regularizers, flatten and fully_connected."""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING, Any

from asyncmon import graph as tf
from asyncmon.missing_names import missing_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Regularizer = Callable[[Any], tf.Tensor | None]


# --- initializers ---------------------------------------------------------------------------------
def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = tf.float32,
) -> Callable[..., tf.Tensor]:
    """Return an initializer of random numbers of the variance ``factor / n``. TF1: same name.

    Args:
        factor: see above.
        mode: n is the number of inputs ("FAN_IN"), of outputs ("FAN_OUT") or their mean ("FAN_AVG").
        uniform: draw uniform numbers rather than normal ones at most 2 deviations from 0.
        seed: of the random numbers.
        dtype: of calls which give none.

    Raises:
        TypeError: an unknown mode, or a dtype that is not of floats.
    """
    own = tf.as_dtype(dtype)
    if not own.is_floating:
        raise TypeError("Cannot create initializer for non-floating point type.")
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise TypeError(f"Unknown mode {mode} [FAN_IN, FAN_OUT, FAN_AVG]")

    def initialize(shape: Any, dtype: Any = None, partition_info: Any = None) -> tf.Tensor:
        dims = [int(d) for d in shape]
        *field, inputs, outputs = dims if len(dims) > 1 else (dims or [1]) * 2
        inputs, outputs = inputs * prod(field), outputs * prod(field)
        fan = {"FAN_IN": inputs, "FAN_OUT": outputs, "FAN_AVG": (inputs + outputs) / 2}[mode]
        kind = own if dtype is None else dtype
        if uniform:
            limit = sqrt(3.0 * factor / fan)
            return tf.random_uniform(dims, -limit, limit, kind, seed)
        return tf.truncated_normal(dims, 0.0, sqrt(1.3 * factor / fan), kind, seed)

    return initialize


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32
) -> Callable[..., tf.Tensor]:
    """Return an initializer that keeps the scale of the gradients. TF1: same name.

    That of :func:`variance_scaling_initializer` with a factor of 1 and "FAN_AVG".
    """
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer
_XAVIER, _ZEROS = xavier_initializer(), tf.zeros_initializer()


# --- regularizers ---------------------------------------------------------------------------------
def _scaled(
    scale: Any, scope: str | None, default: str, penalty: Callable[[Any], tf.Tensor]
) -> Regularizer:
    """Return the regularizer of a penalty; a scale of 0 gives None, for no penalty."""
    if isinstance(scale, int):
        raise ValueError(f"scale cannot be an integer: {scale}")
    if isinstance(scale, float):
        if scale < 0.0:
            raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale:g}")
        if scale == 0.0:
            return lambda _: None

    def regularize(weights: Any) -> tf.Tensor:
        with tf.name_scope(scope, default, [weights]) as name:
            by = tf.convert_to_tensor(scale, weights.dtype, name="scale")
            return tf.multiply(by, penalty(weights), name=name)

    return regularize


def l1_regularizer(scale: Any, scope: str | None = None) -> Regularizer:
    """Return a regularizer of ``scale`` times the sum of absolute values. TF1: same name.

    Raises:
        ValueError: an int, or a scale less than 0.
    """
    return _scaled(scale, scope, "l1_regularizer", lambda w: tf.reduce_sum(tf.abs(w)))


def l2_regularizer(scale: Any, scope: str | None = None) -> Regularizer:
    """Return a regularizer of ``scale`` times half the sum of squares. TF1: same name.

    Raises:
        ValueError: an int, or a scale less than 0.
    """
    return _scaled(scale, scope, "l2_regularizer", tf.nn.l2_loss)


def l1_l2_regularizer(
    scale_l1: Any = 1.0, scale_l2: Any = 1.0, scope: str | None = None
) -> Regularizer | None:
    """Return a regularizer of :func:`l1_regularizer` and :func:`l2_regularizer`. TF1: same name."""
    for name, scale in (("scale_l1", scale_l1), ("scale_l2", scale_l2)):
        if isinstance(scale, int):
            raise ValueError(f"{name} cannot be an integer: {scale}")
    scope = scope or "l1_l2_regularizer"
    if scale_l1 == 0.0:
        return l2_regularizer(scale_l2, scope)
    if scale_l2 == 0.0:
        return l1_regularizer(scale_l1, scope)
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope)


def sum_regularizer(
    regularizer_list: Iterable[Regularizer | None], scope: str | None = None
) -> Regularizer | None:
    """Return a regularizer that adds up others; None if there are none. TF1: same name."""
    regularizers = [r for r in regularizer_list if r is not None]
    if not regularizers:
        return None

    def regularize(weights: Any) -> tf.Tensor | None:
        with tf.name_scope(scope, "sum_regularizer", [weights]) as name:
            penalties = [p for p in (r(weights) for r in regularizers) if p is not None]
            return tf.add_n(penalties, name=name) if penalties else None

    return regularize


def apply_regularization(
    regularizer: Regularizer, weights_list: Iterable[Any] | None = None
) -> tf.Tensor:
    """Return the sum of the penalties of weights, which joins ``REGULARIZATION_LOSSES``.

    TF1: same name. By default the weights are those of ``GraphKeys.WEIGHTS``.

    Raises:
        ValueError: no weights, or a penalty that is not a scalar.
    """
    weights = list(weights_list or tf.get_collection(tf.GraphKeys.WEIGHTS))
    if not weights:
        raise ValueError("No weights to regularize.")
    with tf.name_scope("get_regularization_penalty", values=weights) as scope:
        found = [regularizer(w) for w in weights]
        penalties = [tf.constant(0.0) if p is None else p for p in found]
        for penalty in penalties:
            if penalty.shape.ndims != 0:
                raise ValueError(
                    "regularizer must return a scalar Tensor instead of a Tensor with rank "
                    f"{penalty.shape.ndims}."
                )
        total = tf.add_n(penalties, name=scope)
        tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, total)
        return total


# --- layers ---------------------------------------------------------------------------------------
def flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> tf.Tensor:
    """Return a tensor with all dimensions but the first made one. TF1: same name.

    The result joins ``outputs_collections``.
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
        inputs: tensor of rank 2 or higher; its last dimension is known and taken in.
        num_outputs: the size of the last dimension of the result.
        activation_fn: relu, unless it is given; None leaves the sum.
        normalizer_fn: called with the product in place of adding biases.
        normalizer_params: its other arguments.
        weights_initializer: of "weights".
        weights_regularizer: its loss joins ``REGULARIZATION_LOSSES``.
        biases_initializer: of "biases"; None for no biases.
        biases_regularizer: as ``weights_regularizer``.
        reuse: share the variables of an earlier layer of this scope.
        variables_collections: collections, beside ``MODEL_VARIABLES``, that the variables join; or a
            dict of those for "weights" and for "biases".
        outputs_collections: those that the result joins.
        trainable: whether optimizers find the variables.
        scope: the variable scope, "fully_connected" by default.

    Raises:
        ValueError: ``num_outputs`` is no int, or the rank or the last dimension is not known.
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


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "contrib.layers.", globals())
