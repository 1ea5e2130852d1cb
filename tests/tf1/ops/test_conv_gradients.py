"""The gradients of convolutions as ops by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon import errors

RNG = np.random.default_rng(4)
X, W = np.ones((1, 4, 4, 2)), np.ones((2, 2, 2, 3))  # whose output is of shape (1, 4, 4, 3)
nn = tf.nn


def test_the_gradients_by_themselves(ops: Any) -> None:
    x, w = RNG.normal(size=(2, 5, 5, 2)), RNG.normal(size=(3, 3, 2, 3))
    g = RNG.normal(size=(2, 5, 5, 3))

    def loss(a: Any, b: Any) -> Any:
        return tf.reduce_sum(nn.conv2d(a, b, 1, "SAME") * g)

    by_x, by_w = ops.gradients(loss, x, w)

    def run_x(b: Any, d: Any) -> Any:
        return nn.conv2d_backprop_input(x.shape, b, d, 1, "SAME")

    ops.agree(run_x, by_x, w, g)

    def run_w(a: Any, d: Any) -> Any:
        return nn.conv2d_backprop_filter(a, w.shape, d, 1, "SAME")

    ops.agree(run_w, by_w, x, g)
    with pytest.raises(ValueError, match="data_format='NHWC' only"):
        nn.conv2d_backprop_filter(x, w.shape, g, 1, "SAME", data_format="NCHW")


@pytest.mark.parametrize(
    "shape", [(1, 4, 4, 2), (1, 4, 4, 1), (1, 3, 4, 3), (1, 1, 1, 3), (2, 4, 4, 3), (4, 4, 3)]
)
@pytest.mark.parametrize("strides", [1, 2])
def test_gradients_of_another_shape_are_refused_in_the_run(ops: Any, shape: Any, strides: int) -> None:
    grad = np.ones(shape)

    def by_input(w: Any, g: Any) -> Any:
        return nn.conv2d_backprop_input(X.shape, w, g, strides, "SAME")

    def by_filter(x: Any, g: Any) -> Any:
        return nn.conv2d_backprop_filter(x, W.shape, g, strides, "SAME")

    for function, other in ((by_input, W), (by_filter, X)):
        with pytest.raises(errors.InvalidArgumentError, match=r"must be equal|must be rank 4"):
            ops.compute(function, other, grad, known="nothing")


def test_sizes_that_do_not_fit_are_refused_in_the_run(ops: Any) -> None:
    grad = np.ones((1, 4, 4, 3))

    def by_input(sizes: Any) -> Any:
        return nn.conv2d_backprop_input(sizes, W, grad, 1, "SAME")

    def by_filter(sizes: Any) -> Any:
        return nn.conv2d_backprop_filter(X, sizes, grad, 1, "SAME")

    for function, sizes in ((by_input, [1, 4, 4, 1]), (by_filter, [2, 2, 64, 3])):
        with pytest.raises(errors.InvalidArgumentError, match="Depth of input"):
            ops.compute(function, np.array(sizes, np.int32), known="rank")
        with pytest.raises(errors.InvalidArgumentError, match="must have 4 dimensions"):
            ops.compute(function, np.array(sizes[:3], np.int32), known="rank")
    for function, sizes in ((by_input, [1, 4, 5, 2]), (by_filter, [2, 2, 2, 4])):
        with pytest.raises(errors.InvalidArgumentError, match="The gradient has shape"):
            ops.compute(function, np.array(sizes, np.int32), known="rank")
