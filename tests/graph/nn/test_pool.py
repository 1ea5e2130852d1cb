"""Pooling against every window on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.numerics.windows import Windows

RNG = np.random.default_rng(6)
X = RNG.permutation(2 * 5 * 6 * 2).reshape(2, 5, 6, 2) / 10.0
nn = tf.nn


def reference(x: Any, ksize: Any, strides: Any, padding: Any, reduce: Any) -> Any:
    windows = Windows(x.shape, ksize, strides, padding)
    rows, columns = windows.counts
    padded = np.pad(x, ((0, 0), *windows.around, (0, 0)), constant_values=np.nan)
    result = np.zeros((len(x), rows, columns, x.shape[3]))
    for i in range(rows):
        for j in range(columns):
            top, left = i * strides[0], j * strides[1]
            window = padded[:, top : top + ksize[0], left : left + ksize[1]]
            result[:, i, j] = reduce(window, axis=(1, 2))
    return result


CASES = [
    ((2, 2), (2, 2), "SAME"),
    ((2, 2), (2, 2), "VALID"),
    ((3, 3), (1, 1), "SAME"),
    ((3, 2), (2, 1), "VALID"),
    ((1, 1), (2, 2), "SAME"),
    ((2, 3), (3, 3), "SAME"),
    ((2, 2), (1, 2), ((1, 0), (0, 1))),
]


@pytest.mark.parametrize(("function", "reduce"), [(nn.max_pool, np.nanmax), (nn.avg_pool, np.nanmean)])
@pytest.mark.parametrize(("ksize", "strides", "padding"), CASES, ids=str)
def test_values_and_both_derivatives(
    ops: Any, function: Any, reduce: Any, ksize: Any, strides: Any, padding: Any
) -> None:
    given = padding if isinstance(padding, str) else [[0, 0], *padding, [0, 0]]

    def run(x: Any) -> Any:
        return function(x, ksize, strides, given)

    ops.agree(run, reference(X, ksize, strides, padding, reduce), X, rtol=1e-12)
    ops.differentiate(run, X, order=2, max_elements=6)


def test_integers_and_negative_numbers_are_pooled(ops: Any) -> None:
    x = -np.ones((1, 3, 3, 1), np.int32)
    found = ops.compute(lambda a: nn.max_pool(a, 2, 2, "SAME"), x)
    assert found.dtype == np.int32
    assert (found == -1).all()
    with pytest.raises(TypeError, match="'value'"):
        nn.avg_pool(tf.constant(x), 2, 2, "SAME")


def test_of_equal_elements_the_first_gets_the_gradient(ops: Any) -> None:
    x = np.ones((1, 2, 2, 1))
    (grad,) = ops.gradients(lambda a: nn.max_pool(a, 2, 2, "VALID"), x)
    assert grad.reshape(-1).tolist() == [1, 0, 0, 0]


def test_second_derivatives_flow_through_the_choice(ops: Any) -> None:
    for order in (2, 3):
        ops.differentiate(
            lambda x, n=order: nn.max_pool(x, 3, 1, "SAME") ** n, X + 0.5, order=order, max_elements=3
        )


def test_channels_may_come_second(ops: Any) -> None:
    x = X.transpose(0, 3, 1, 2)
    for function, reduce in ((nn.max_pool, np.nanmax), (nn.avg_pool, np.nanmean)):
        expected = reference(X, (2, 2), (2, 2), "SAME", reduce).transpose(0, 3, 1, 2)

        def run(a: Any, f: Any = function) -> Any:
            return f(a, [1, 1, 2, 2], [1, 1, 2, 2], "SAME", "NCHW")

        ops.agree(run, expected, x)


def test_what_does_not_fit_is_refused() -> None:
    x = tf.constant(X)
    with pytest.raises(ValueError, match="Negative dimension size"):
        nn.max_pool(x, 9, 1, "VALID")
    with pytest.raises(ValueError, match="Shape must be rank 4"):
        nn.max_pool(x[0], 2, 1, "VALID")
    with pytest.raises(ValueError, match="ksize must be 1 in the batch and depth"):
        nn.max_pool(x, [2, 1, 1, 1], 1, "VALID")
    assert nn.max_pool2d(input=x, ksize=2, strides=2, padding="SAME").shape == (2, 3, 3, 2)


@pytest.mark.parametrize("function", [nn.max_pool, nn.avg_pool])
def test_shapes_that_do_not_fit_are_refused_in_the_run(ops: Any, function: Any) -> None:
    for shape in ((4, 4, 2), (1, 1, 4, 4, 2)):
        with pytest.raises(errors.InvalidArgumentError, match="must be rank 4"):
            ops.compute(lambda x: function(x, 2, 2, "SAME"), np.ones(shape), known="nothing")


@pytest.mark.parametrize("function", [nn.max_pool, nn.avg_pool])
@pytest.mark.parametrize("shape", [(), (2,), (1, 2, 2, 1), (1, 1, 1, 2), (2, 2, 2, 2)])
def test_gradients_of_another_shape_are_refused_in_the_run(ops: Any, function: Any, shape: Any) -> None:
    def run(x: Any, grad: Any) -> Any:
        return tf.gradients(function(x, 2, 2, "SAME"), x, grad_ys=[grad])[0]

    with pytest.raises(errors.InvalidArgumentError, match="must be equal"):
        ops.compute(run, np.ones((1, 4, 4, 2)), np.ones(shape), known="nothing")
