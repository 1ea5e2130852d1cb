"""Convolution against the sum it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.nn.conv import filter_gradient
from asyncmon.graph.nn.images import spatial, window_padding
from asyncmon.graph.numerics import windows
from asyncmon.graph.numerics.parallel import Team, using_team
from asyncmon.graph.numerics.windows import Windows

RNG = np.random.default_rng(4)
nn = tf.nn


def reference(x: Any, w: Any, strides: Any, padding: Any, dilations: Any) -> Any:
    """Every window on its own, in double precision."""
    (down, right), (dh, dw) = strides, dilations
    geometry = Windows(x.shape, w.shape[:2], strides, padding, dilations)
    (rows, columns), reach = geometry.counts, geometry.dilated
    padded = np.pad(x, ((0, 0), *geometry.around, (0, 0)))
    result = np.zeros((len(x), rows, columns, w.shape[3]))
    for i in range(rows):
        for j in range(columns):
            window = padded[
                :, i * down : i * down + reach[0] : dh, j * right : j * right + reach[1] : dw
            ]
            result[:, i, j] = np.tensordot(window, w, 3)
    return result


CASES: list[Any] = [
    (1, "SAME", 1, (3, 3)),
    (1, "VALID", 1, (3, 2)),
    ([2, 2], "SAME", 1, (3, 3)),
    ([1, 2, 1, 1], "VALID", 1, (2, 3)),
    ([3, 2], "SAME", 1, (2, 2)),
    (1, "SAME", 2, (3, 2)),
    (1, "VALID", [1, 2], (3, 3)),
    (1, [[0, 0], [1, 2], [0, 1], [0, 0]], 1, (3, 3)),
    (1, "SAME", 1, (1, 1)),
    (2, "SAME", 1, (1, 1)),
    (1, "SAME", 7, (3, 3)),
    (1, [[0, 0], [3, 3], [4, 4], [0, 0]], 1, (2, 2)),
]


@pytest.mark.parametrize(("strides", "padding", "dilations", "size"), CASES, ids=str)
def test_values_and_both_derivatives(
    ops: Any, strides: Any, padding: Any, dilations: Any, size: Any
) -> None:
    x, w = RNG.normal(size=(2, 6, 5, 2)), RNG.normal(size=(*size, 2, 3))

    def run(a: Any, b: Any) -> Any:
        return nn.conv2d(a, b, strides, padding, dilations=dilations)

    layout = "NHWC"
    expected = reference(
        x,
        w,
        spatial(strides, "", layout),
        window_padding(padding, layout),
        spatial(dilations, "", layout),
    )
    ops.agree(run, expected, x, w, rtol=1e-12)
    ops.agree(run, expected, x.astype("f"), w.astype("f"), rtol=1e-4)
    ops.agree(run, expected, x.astype("e"), w.astype("e"), rtol=3e-2, known=("all",))
    ops.differentiate(run, x, w, order=2, max_elements=4)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID"]),
    dilations=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    depths=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_any_geometry(
    ops: Any, size: Any, window: Any, strides: Any, padding: str, dilations: Any, depths: Any
) -> None:
    if padding == "VALID":
        window = tuple(
            min(k, (n - 1) // d + 1) for k, n, d in zip(window, size, dilations, strict=True)
        )
    x, w = RNG.normal(size=(2, *size, depths[0])), RNG.normal(size=(*window, *depths))

    def run(a: Any, b: Any) -> Any:
        return nn.conv2d(a, b, strides, padding, dilations=dilations)

    ops.agree(run, reference(x, w, strides, padding, dilations), x, w, known=("all",), rtol=1e-10)
    ops.differentiate(run, x, w, order=1, max_elements=3, known=False)


def test_channels_may_come_second(ops: Any) -> None:
    x, w = RNG.normal(size=(2, 2, 6, 5)), RNG.normal(size=(3, 3, 2, 3))

    def run(a: Any, b: Any) -> Any:
        return nn.conv2d(a, b, [1, 1, 2, 2], "SAME", data_format="NCHW")

    expected = reference(x.transpose(0, 2, 3, 1), w, (2, 2), "SAME", (1, 1)).transpose(0, 3, 1, 2)
    ops.agree(run, expected, x, w)


def test_batches_that_take_several_blocks(ops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_BLOCK", 200)
    x, w = RNG.normal(size=(5, 6, 5, 2)), RNG.normal(size=(3, 3, 2, 3))

    def run(a: Any, b: Any) -> Any:
        return nn.conv2d(a, b, 1, "SAME")

    ops.agree(run, reference(x, w, (1, 1), "SAME", (1, 1)), x, w, known=("all",), rtol=1e-10)
    ops.differentiate(run, x, w, order=1, max_elements=3, known=False)


def test_an_empty_batch(ops: Any) -> None:
    found = ops.compute(lambda a: nn.conv2d(a, np.ones((3, 3, 2, 3)), 1, "SAME"), np.ones((0, 4, 4, 2)))
    assert found.shape == (0, 4, 4, 3)


def test_what_does_not_fit_is_refused() -> None:
    x = tf.ones([1, 5, 6, 2])
    for weights, padding, text in (
        (tf.ones([3, 3, 3, 2]), "SAME", r"Depth of input \(2\) is not the depth of the filter \(3\)"),
        (tf.ones([3, 3]), "SAME", "Shape must be rank 4 but is rank 2"),
        (tf.ones([9, 9, 2, 2]), "VALID", "Negative dimension size"),
        (tf.ones([3, 3, 2, 2]), "FULL", "padding must be"),
        (tf.ones([3, 3, 2, 2]), None, "needs strides and padding"),
    ):
        with pytest.raises(ValueError, match=text):
            nn.conv2d(x, weights, 1, padding)
    with pytest.raises(TypeError, match="Input 'filter' of 'Conv2D' Op has type float64"):
        nn.conv2d(x, tf.ones([3, 3, 2, 2], tf.float64), 1, "SAME")


X, W = np.ones((1, 4, 4, 2)), np.ones((2, 2, 2, 3))  # whose output is of shape (1, 4, 4, 3)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("images", "filters", "text"),
    [
        (X, np.ones((2, 2, 3, 1)), r"Depth of input \(2\) is not the depth of the filter \(3\)"),
        (X, np.ones((2, 2, 64, 64)), r"Depth of input \(2\)"),
        (X, np.ones((1, 1, 1, 3)), r"Depth of input \(2\)"),
        (X[..., :1], W, r"Depth of input \(1\)"),
        (X[0], W, "rank 4 but is rank 3"),
        (X, W[0], "rank 4 but is rank 3"),
        (X, np.ones((5, 9, 3, 1)), r"Depth of input \(2\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_the_run(
    ops: Any, images: Any, filters: Any, padding: str, text: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=text):
        ops.compute(lambda a, b: nn.conv2d(a, b, 1, padding), images, filters, known="nothing")


def test_results_do_not_share_the_workspace(ops: Any) -> None:
    x, w = RNG.normal(size=(2, 4, 4, 2)), RNG.normal(size=(3, 3, 2, 2))
    a, b = tf.constant(x), tf.constant(w)
    y = nn.conv2d(a, b, 1, "SAME")
    first, second = ops.evaluate([y, nn.conv2d(a * 2, b, 1, "SAME")])
    np.testing.assert_allclose(second, 2 * first)


@pytest.mark.parametrize("shape", [(0, 4, 4, 2), (2, 0, 4, 2), (2, 4, 0, 2)])
def test_gradients_of_no_windows(ops: Any, shape: Any) -> None:
    def run(x: Any, w: Any) -> Any:
        return nn.conv2d(x, w, 1, "SAME")

    by_x, by_w = ops.gradients(run, np.zeros(shape), np.ones((2, 2, 2, 3)))
    assert by_x.shape == shape
    np.testing.assert_array_equal(by_w, np.zeros((2, 2, 2, 3)))


def test_the_filter_gradient_has_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(windows, "_BLOCK", 400)
    x, g = RNG.normal(size=(23, 6, 6, 4)), RNG.normal(size=(23, 6, 6, 5))

    def run() -> Any:
        sizes = np.array([3, 3, 4, 5])
        return filter_gradient(x, sizes, g, strides=(1, 1), padding="SAME", dilations=(1, 1))

    expected = run()
    team = Team(2, "help")
    with using_team(team):
        for _ in range(5):
            np.testing.assert_array_equal(run(), expected)
    team.close()
