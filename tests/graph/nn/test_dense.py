"""The parts of a dense layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

RNG = np.random.default_rng(9)
nn = tf.nn


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3), (2, 2, 2, 3)])
def test_bias_add_along_the_last_dimension(ops: Any, shape: Any) -> None:
    x, b = RNG.normal(size=shape), RNG.normal(size=3)
    ops.agree(nn.bias_add, x + b, x, b)
    ops.differentiate(nn.bias_add, x, b, max_elements=4)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 2, 2)])
def test_bias_add_along_the_second_dimension(ops: Any, shape: Any) -> None:
    x, b = RNG.normal(size=shape), RNG.normal(size=3)

    def run(v: Any, w: Any) -> Any:
        return nn.bias_add(v, w, data_format="NCHW")

    expected = x + b.reshape(3, *[1] * (len(shape) - 2))
    ops.agree(run, expected, x, b)
    ops.differentiate(run, x, b, max_elements=4)


def test_integers_are_added_too(ops: Any) -> None:
    assert ops.compute(nn.bias_add, np.ones((2, 3), np.int32), np.ones(3, np.int32)).dtype == np.int32


def test_what_does_not_fit_is_refused() -> None:
    x = tf.ones([2, 3])
    for value, bias, text in (
        (x, tf.ones([2]), "must be equal, but are 3 and 2"),
        (x, x, "Shape must be rank 1 but is rank 2"),
        (tf.ones([3]), tf.ones([3]), "at least rank 2 but is rank 1"),
    ):
        with pytest.raises(ValueError, match=text):
            nn.bias_add(value, bias)
    with pytest.raises(ValueError, match="`data_format` must be"):
        nn.bias_add(x, tf.ones([3]), data_format="CHWN")
    with pytest.raises(ValueError, match="must be equal, but are 3 and 2"):
        nn.bias_add(x[..., tf.newaxis], tf.ones([2]), data_format="NCHW")
    for value in (x, x[0]):
        with pytest.raises(ValueError, match="at least rank 3 but is rank"):
            nn.bias_add(value, tf.ones([3]), data_format="NCHW")
    with pytest.raises(TypeError, match="Input 'bias' of 'BiasAdd' Op has type float64"):
        nn.bias_add(x, tf.ones([3], tf.float64))


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    ("value", "bias"),
    [
        ((2, 3), (1,)),
        ((2, 3), (2,)),
        ((2, 3), ()),
        ((3, 3), (3, 3)),
        ((2, 3), (1, 3)),
        ((3,), (3,)),
        ((), (1,)),
        ((1, 1), (3,)),
        ((2, 4, 5, 4), (1,)),
    ],
)
def test_what_does_not_fit_fails_in_the_run(ops: Any, value: Any, bias: Any, data_format: str) -> None:
    def run(x: Any, b: Any) -> Any:
        return nn.bias_add(x, b, data_format)

    arrays = np.ones(value), np.ones(bias)
    fits = len(bias) == 1 and len(value) >= (3 if data_format == "NCHW" else 2)
    for known in ("rank", "nothing") if fits else ("nothing",):  # else refused when it is built
        with pytest.raises(
            errors.InvalidArgumentError, match=r"must be equal|must be (at least )?rank"
        ):
            ops.compute(run, *arrays, known=known)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_gradient_without_rows_is_refused(ops: Any, shape: Any, data_format: str) -> None:
    def run(x: Any, b: Any, grad: Any) -> Any:
        return tf.gradients(nn.bias_add(x, b, data_format), b, grad_ys=[grad])[0]

    arrays = np.ones((2, 3)), np.ones(3), np.ones(shape)
    with pytest.raises(errors.InvalidArgumentError, match="must be at least rank"):
        ops.compute(run, *arrays, known="nothing")


@pytest.mark.parametrize("shape", [(2, 0), (2, 3, 0), (0, 0), (0, 3)])
def test_a_bias_of_nothing(ops: Any, shape: Any) -> None:
    x, b = np.zeros(shape), np.zeros(shape[-1])
    ops.agree(nn.bias_add, x, x, b)
    by_x, by_b = ops.gradients(nn.bias_add, x, b)
    assert by_x.shape == shape
    assert by_b.tolist() == [0] * shape[-1]
