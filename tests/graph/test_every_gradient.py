"""Every op with a gradient has it checked, in each precision and over shapes that hypothesis picks.

An op with a gradient that has no case here fails the last test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, mutually_broadcastable_shapes

from asyncmon import graph as tf
from tests.graph.op_checks import (
    check_gradient,
    differentiable,
    distinct,
    ops_of,
    several,
    types_of,
)  # fmt: skip

nn = tf.nn


SMOOTH = "negative exp expm1 square sin cos tan tanh sigmoid erf erfc identity conj"
POSITIVE = "abs log log1p sqrt rsqrt reciprocal sign"
ROUNDING = "floor ceil rint round"
ACTIVATIONS = "elu selu softplus softsign swish gelu relu relu6 leaky_relu l2_loss"
REDUCTIONS = ["sum", "mean", "max", "min", "prod", "logsumexp"]
ARITHMETIC = "add subtract multiply maximum minimum squared_difference"
QUOTIENTS = "divide realdiv pow div_no_nan floormod floordiv"


def _dropped(x: Any) -> Any:
    """Half of x dropped; the same half in each precision."""
    draws = distinct(tuple(x.shape), 0.0, 1.0, 5)
    return tf.create_op("Dropout", (x, tf.cast(draws, x.dtype), tf.cast(0.5, x.dtype)))


def _scattered(x: Any) -> Any:
    rows = tf.reshape(tf.stack([x, x]), [2, -1])
    return tf.scatter_nd([[1], [1]], rows, [3, x.shape.num_elements()])


def _named(module: Any, names: str, low: float, high: float) -> dict[str, Any]:
    return {name: (getattr(module, name), low, high) for name in names.split()}


# name -> function, and the range of its argument, off its kinks
UNARY: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    **_named(tf, SMOOTH, -0.95, 0.9),
    **_named(tf, POSITIVE, 0.3, 2.2),
    **_named(tf, ROUNDING, 0.1, 0.4),
    **_named(nn, ACTIVATIONS, -1.03, 0.97),
    "gelu tanh": (lambda x: nn.gelu(x, approximate=True), -1.0, 1.0),
    "cast": (lambda x: tf.cast(tf.cast(x, tf.float64), x.dtype), -1.0, 1.0),
    "clip": (lambda x: tf.clip_by_value(x, -0.403, 0.507), -1.0, 1.0),
    "check": (lambda x: tf.check_numerics(x, "wrong"), -1.0, 1.0),
    "print": (lambda x: tf.Print(x, [], "", first_n=0), -1.0, 1.0),
    "default": (lambda x: tf.placeholder_with_default(x, x.shape), -1.0, 1.0),
    "where": (lambda x: tf.where(x > 0.011, x * x, 2.0 * x), -1.0, 1.0),
    "broadcast_to": (lambda x: tf.broadcast_to(x, [2, *x.shape]), -1.0, 1.0),
    "reshape": (lambda x: tf.reshape(x, [-1]), -1.0, 1.0),
    "transpose": (tf.transpose, -1.0, 1.0),
    "expand": (lambda x: tf.expand_dims(x, 0), -1.0, 1.0),
    "squeeze": (lambda x: tf.squeeze(tf.expand_dims(x, 0), 0), -1.0, 1.0),
    "add_n": (lambda x: tf.add_n([x, x * x, x]), -1.0, 1.0),
    "stack": (lambda x: tf.stack([x, x * x], -1), -1.0, 1.0),
    "slice": (lambda x: tf.slice(x, [0] * len(x.shape), [1] * len(x.shape)), -1.0, 1.0),
    "index": (lambda x: x[..., ::-1, None], -1.0, 1.0),
    "reverse": (lambda x: tf.reverse(x, [0]), -1.0, 1.0),
    "pad": (lambda x: tf.pad(x, [[1, 2]] * len(x.shape)), -1.0, 1.0),
    "mirror": (lambda x: tf.pad(x, [[1, 1]] * len(x.shape), "SYMMETRIC"), -1.0, 1.0),
    "tile": (lambda x: tf.tile(x, [2] * len(x.shape)), -1.0, 1.0),
    "cond": (lambda x: tf.cond(tf.reduce_sum(x) < 99.0, lambda: x * x, lambda: x), -1.0, 1.0),
    "fill": (lambda x: tf.fill([2, 3], tf.reshape(x, [-1])[0]), -1.0, 1.0),
    "softmax": (nn.softmax, -1.0, 1.0),
    "log_softmax": (nn.log_softmax, -1.0, 1.0),
    "top_k": (lambda x: nn.top_k(x, 1)[0], -1.0, 1.0),
    "cumsum": (lambda x: tf.cumsum(x, -1, exclusive=True), -1.0, 1.0),
    "cumprod": (lambda x: tf.cumprod(x, -1, reverse=True), 0.5, 1.5),
    "boolean_mask": (lambda x: tf.boolean_mask(x, x > 0.011), -1.0, 1.0),
    "gather": (lambda x: tf.gather(x, [0, 0], axis=-1), -1.0, 1.0),
    "gather rows": (lambda x: tf.gather(x * 1.0, [0, 0]), -1.0, 1.0),
    "gather_nd": (lambda x: tf.gather_nd(x, [[0], [0]]), -1.0, 1.0),
    "gather batch": (
        lambda x: tf.gather(tf.stack([x, x * x]), [[0], [0]], axis=1, batch_dims=1),
        -1.0,
        1.0,
    ),
    "segments": (lambda x: tf.unsorted_segment_sum(tf.stack([x, x * x]), [1, -1], 3), -1.0, 1.0),
    "scatter_nd": (_scattered, -1.0, 1.0),
    "concat": (lambda x: tf.concat([x, x * x], -1), -1.0, 1.0),
    "split": (lambda x: tf.split(tf.concat([x, x * x], 0), 2)[1:], -1.0, 1.0),
    "split sizes": (lambda x: tf.split(tf.concat([x, x * x], 0), [x.shape[0], -1])[1:], -1.0, 1.0),
    "unstack": (lambda x: tf.unstack(tf.stack([x, x * x]))[1:], -1.0, 1.0),
    "dropout": (_dropped, -1.0, 1.0),
    "global norm": (lambda x: tf.clip_by_global_norm([x, x * x], 0.1)[0], 0.5, 1.0),
}
BINARY: dict[str, tuple[Callable[[Any, Any], Any], tuple[float, float], tuple[float, float]]] = {
    **{name: (getattr(tf, name), (-1.0, 1.0), (-0.93, 1.07)) for name in ARITHMETIC.split()},
    **{name: (getattr(tf, name), (0.3, 1.3), (1.4, 2.7)) for name in QUOTIENTS.split()},
    "select": (lambda x, y: tf.where(tf.less(x, y), x + y, x * y), (-1.0, 1.0), (-0.93, 1.07)),
}
IMAGES, FILTERS = distinct((1, 4, 4, 2), -1.0, 1.0), distinct((2, 2, 2, 3), -1.0, 1.0)
MATRIX, OTHER = distinct((3, 4), -1.0, 1.0), distinct((4, 2), -1.0, 1.0)
SQUARE = distinct((2, 3, 3), -1.0, 1.0)


def _average(x: Any, scale: Any, offset: Any) -> Any:
    return tf.layers.batch_normalization(x, training=True, center=False, scale=False) * scale + offset


def _pooled_back_and_forth(x: Any, back: Any, flow: Any) -> Any:
    (grad,) = tf.gradients(nn.max_pool(x, 2, 2, "VALID"), x, flow)
    return tf.gradients(grad, flow, back)[0]


def _twice(x: Any) -> Any:
    return tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y * x), [0, x])[1]


def _recurrent(x: Any, w: Any, bias: Any, rows: Any) -> Any:
    def body(i: Any, h: Any) -> Any:
        return i + 1, tf.tanh(tf.matmul(h, w) + bias) + tf.gather(rows, [[0, 1, 0], [2, 1, 1]])[i]

    return tf.while_loop(lambda i, h: i < 2, body, [0, x])[1]


# name -> function and arguments of fixed shapes
FIXED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "matmul": (tf.matmul, (MATRIX, OTHER)),
    "matmul turned": (
        lambda x, y: tf.matmul(x, y, transpose_a=True, transpose_b=True),
        (OTHER, MATRIX),
    ),
    "matmul batches": (tf.matmul, (SQUARE, SQUARE[0])),
    "einsum": (lambda x, y: tf.einsum("bij,bkj->bik", x, y), (SQUARE, SQUARE)),
    "einsum diagonal": (lambda x: tf.einsum("bii->i", x), (SQUARE,)),
    "tensordot": (lambda x, y: tf.tensordot(x, y, [[2], [0]]), (SQUARE, MATRIX)),
    "tensordot of any rank": (
        lambda x, y: tf.tensordot(tf.placeholder_with_default(x, None), y, [[2], [0]]),
        (SQUARE, MATRIX),
    ),
    "embedding_lookup": (
        lambda x, y: nn.embedding_lookup([x, y], [[0, 4], [3, 0]]),
        (MATRIX, MATRIX[:2]),
    ),
    "bias_add": (nn.bias_add, (MATRIX, MATRIX[0])),
    "conv2d": (lambda x, w: nn.conv2d(x, w, 1, "SAME"), (IMAGES, FILTERS)),
    "conv2d strides": (lambda x, w: nn.conv2d(x, w, 2, "VALID"), (IMAGES, FILTERS)),
    "max_pool": (lambda x: nn.max_pool(x, 2, 2, "VALID"), (IMAGES,)),
    "max_pool thrice": (_pooled_back_and_forth, (IMAGES, IMAGES, IMAGES[:, ::2, ::2])),
    "avg_pool": (lambda x: nn.avg_pool(x, 2, 1, "SAME"), (IMAGES,)),
    "cross entropy": (
        lambda x, y: nn.softmax_cross_entropy_with_logits_v2(labels=nn.softmax(y), logits=x),
        (MATRIX, MATRIX),
    ),
    "sparse cross entropy": (
        lambda x: nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 3, 1], logits=x),
        (MATRIX,),
    ),
    "sigmoid cross entropy": (
        lambda x, y: nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x),
        (MATRIX, MATRIX * 0.4 + 0.5),
    ),
    "weights in a loop": (_recurrent, (SQUARE[0], SQUARE[1], SQUARE[1, 0], SQUARE[0])),
    "batch_norm": (_average, (OTHER, np.array([0.7, 1.2]), np.array([0.1, -0.2]))),
}


@pytest.mark.parametrize("name", UNARY)
@several
@given(shape=array_shapes(min_dims=1, max_dims=3, max_side=3))
def test_one_operand(ops: Any, name: str, shape: tuple[int, ...]) -> None:
    function, low, high = UNARY[name]
    check_gradient(ops, function, distinct(shape, low, high))


@pytest.mark.parametrize("name", REDUCTIONS)
@several
@given(shape=array_shapes(min_dims=1, max_dims=3, max_side=3), data=st.data())
def test_reductions(ops: Any, name: str, shape: tuple[int, ...], data: st.DataObject) -> None:
    axes = data.draw(st.none() | st.lists(st.integers(0, len(shape) - 1), unique=True))
    keepdims = data.draw(st.booleans())
    function = getattr(tf, f"reduce_{name}")
    check_gradient(ops, lambda x: function(x, axes, keepdims), distinct(shape, -1.0, 1.0))


@pytest.mark.parametrize("name", BINARY)
@several
@given(shapes=mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3, min_side=1))
def test_two_operands_of_shapes_that_broadcast(ops: Any, name: str, shapes: Any) -> None:
    function, *ranges = BINARY[name]
    arrays = [
        distinct(shape, *within, seed)
        for seed, (shape, within) in enumerate(zip(shapes.input_shapes, ranges, strict=True))
    ]
    check_gradient(ops, function, *arrays)


@pytest.mark.parametrize("name", FIXED)
def test_operands_of_shapes_that_fit(ops: Any, name: str) -> None:
    function, arrays = FIXED[name]
    check_gradient(ops, function, *arrays)


def test_a_loop_has_derivatives(ops: Any) -> None:
    ops.differentiate(_twice, MATRIX, known=False)


def test_the_value_of_a_variable_has_its_gradient(ops: Any) -> None:
    v = tf.Variable(MATRIX)
    (grad,) = tf.gradients(tf.square(v.read_value()), v)
    np.testing.assert_allclose(ops.evaluate(grad), 2 * MATRIX)


def test_every_op_with_a_gradient_has_a_case() -> None:
    x = distinct((2, 3), 0.3, 0.9)
    seen: set[str] = set()
    for function, *_ in UNARY.values():
        seen |= types_of(function, x)
    for name in REDUCTIONS:
        seen |= types_of(getattr(tf, f"reduce_{name}"), x)
    for binary, *_ in BINARY.values():
        seen |= types_of(binary, x, x[0])
    for fixed, arrays in FIXED.values():
        seen |= types_of(fixed, *arrays)
    seen |= types_of(_twice, MATRIX)
    seen.add("ReadVariable")  # the test above
    seen |= {"AsyncIf", "AsyncWhile", "AsyncScan"}  # rules of If, While, Scan
    assert differentiable(ops_of("asyncmon.graph")) - seen == set()
