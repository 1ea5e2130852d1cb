"""Convolutions of sequences, transposed, dilated, and of each channel by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.kernels import depthwise

RNG = np.random.default_rng(19)
nn = tf.nn
IMAGES = RNG.normal(size=(2, 6, 5, 3))
FILTERS = RNG.normal(size=(3, 2, 3, 4))
EACH = RNG.normal(size=(3, 2, 3, 2))


def _depthwise(x: Any, w: Any, **settings: Any) -> Any:
    """Each channel as an image of one channel."""
    parts = [nn.conv2d(x[..., i : i + 1], w[:, :, i : i + 1], **settings) for i in range(w.shape[2])]
    return tf.concat(parts, -1)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("stride", "rate"), [(1, 1), (2, 1), (3, 1), (1, 2)])
def test_depthwise(ops: Any, padding: str, stride: int, rate: int) -> None:
    def run(a: Any, b: Any) -> Any:
        return nn.depthwise_conv2d(a, b, [1, stride, stride, 1], padding, rate=[rate, rate])

    def reference(a: Any, b: Any) -> Any:
        return _depthwise(a, b, strides=stride, padding=padding, dilations=rate)

    expected = ops.compute(reference, IMAGES, EACH)
    np.testing.assert_allclose(ops.compute(run, IMAGES, EACH), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ops.compute(run, IMAGES, EACH, known="nothing"), expected, atol=1e-12)
    for found, wanted in zip(
        ops.gradients(run, IMAGES, EACH), ops.gradients(reference, IMAGES, EACH), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


def test_depthwise_in_other_layouts_and_precisions(ops: Any) -> None:
    first = IMAGES.transpose(0, 3, 1, 2)

    def run(a: Any, b: Any) -> Any:
        return nn.depthwise_conv2d(a, b, [1, 1, 2, 2], "SAME", data_format="NCHW")

    expected = ops.compute(lambda a, b: _depthwise(a, b, strides=2, padding="SAME"), IMAGES, EACH)
    np.testing.assert_allclose(ops.compute(run, first, EACH).transpose(0, 2, 3, 1), expected, 1e-10)
    halves = ops.compute(
        lambda a, b: nn.depthwise_conv2d_native(a, b, [1, 2, 2, 1], "SAME"),
        IMAGES.astype(np.float16),
        EACH.astype(np.float16),
    )
    assert halves.dtype == np.float16
    np.testing.assert_allclose(halves, expected, rtol=0.02, atol=0.02)


def test_separable(ops: Any) -> None:
    mixing = RNG.normal(size=(1, 1, 6, 4))
    found = ops.compute(
        lambda a, b, c: nn.separable_conv2d(a, b, c, [1, 1, 1, 1], "VALID"), IMAGES, EACH, mixing
    )
    each = ops.compute(lambda a, b: _depthwise(a, b, strides=1, padding="VALID"), IMAGES, EACH)
    np.testing.assert_allclose(found, each @ mixing[0, 0], rtol=1e-10)
    with pytest.raises(ValueError, match=r"must be \[1, 1, \.\.\.\]"):
        nn.separable_conv2d(IMAGES, EACH, EACH, 1, "VALID")


@pytest.mark.parametrize("layout", ["NWC", "NCW"])
@pytest.mark.parametrize(("stride", "dilations"), [(1, None), ([2], None), ([1, 3, 1], [1]), (1, 2)])
def test_conv1d(ops: Any, layout: str, stride: Any, dilations: Any) -> None:
    x, w = IMAGES[:, 0], FILTERS[:, 0]
    if layout == "NCW" and isinstance(stride, list) and len(stride) == 3:
        stride = [1, 1, 3]
    step = stride if isinstance(stride, int) else max(stride)
    apart = dilations if isinstance(dilations, int) else 1
    wanted = ops.compute(
        lambda a, b: nn.conv2d(a[:, None], b[None], [1, step], "SAME", dilations=[1, apart])[:, 0], x, w
    )

    def run(a: Any, b: Any) -> Any:
        return nn.conv1d(a, b, stride, "SAME", data_format=layout, dilations=dilations)

    given, back = (x, wanted) if layout == "NWC" else (x.transpose(0, 2, 1), wanted.transpose(0, 2, 1))
    np.testing.assert_allclose(ops.compute(run, given, w), back, rtol=1e-12)


def test_conv1d_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="must be rank 3 but is rank 4"):
        nn.conv1d(IMAGES, FILTERS[0], 1, "SAME")
    with pytest.raises(ValueError, match="length 1 or 3 but was 2"):
        nn.conv1d(IMAGES[0], FILTERS[0], [1, 2], "SAME")
    with pytest.raises(ValueError, match="'NWC' or 'NCW'"):
        nn.conv1d(IMAGES[0], FILTERS[0], 1, "SAME", data_format="WNC")


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_transposed_is_the_gradient_by_the_images(ops: Any, layout: str, stride: int) -> None:
    small = RNG.normal(size=(2, -(-6 // stride), -(-5 // stride), 4))

    def wanted(v: Any, w: Any) -> Any:
        x = tf.zeros(IMAGES.shape, tf.float64)
        return tf.gradients(nn.conv2d(x, w, stride, "SAME"), x, v)[0]

    expected = ops.compute(wanted, small, FILTERS)
    turned = layout == "NCHW"
    shape = [2, 3, 6, 5] if turned else [2, 6, 5, 3]

    def run(v: Any, w: Any) -> Any:
        return nn.conv2d_transpose(v, w, shape, [stride, stride], "SAME", layout)

    given = small.transpose(0, 3, 1, 2) if turned else small
    found = ops.compute(run, given, FILTERS)
    np.testing.assert_allclose(found.transpose(0, 2, 3, 1) if turned else found, expected, rtol=1e-10)
    ops.differentiate(run, given, FILTERS, order=1, known=True, max_elements=4)


def test_transposed_takes_a_shape_of_tensors(ops: Any) -> None:
    def run(v: Any) -> Any:
        result = nn.conv2d_transpose(v, FILTERS, tf.stack([tf.shape(v)[0], 6, 5, 3]), [1, 2, 2, 1])
        assert result.shape.as_list()[1:] == [6, 5, 3]
        return result

    assert ops.compute(run, np.ones((2, 3, 3, 4)), known="rank").shape == (2, 6, 5, 3)
    with pytest.raises(ValueError, match="needs an output_shape"):
        nn.conv2d_transpose(np.ones((2, 3, 3, 4)), FILTERS, strides=2)
    with pytest.raises(ValueError, match=r"Dimensions must be equal|Shapes"):
        nn.conv2d_transpose(np.ones((2, 3, 3, 4)), FILTERS, [2, 9, 9, 3], 2)


def test_dilated_and_of_either_rank(ops: Any) -> None:
    wanted = ops.compute(lambda a, b: nn.conv2d(a, b, 1, "SAME", dilations=2), IMAGES, FILTERS)
    for run in (
        lambda a, b: nn.atrous_conv2d(a, b, 2, "SAME"),
        lambda a, b: nn.convolution(a, b, "SAME", dilation_rate=[2, 2]),
    ):
        np.testing.assert_allclose(ops.compute(run, IMAGES, FILTERS), wanted, rtol=1e-12)
    found = ops.compute(
        lambda a, b: nn.convolution(a, b, "VALID", strides=[2]), IMAGES[0], FILTERS[:, 0]
    )
    wanted = ops.compute(lambda a, b: nn.conv1d(a, b, 2, "VALID"), IMAGES[0], FILTERS[:, 0])
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(ValueError, match="rank 3 or 4"):
        nn.convolution(tf.zeros([1, 2]), tf.zeros([1, 2]), "SAME")


def test_depths_that_differ_are_refused(ops: Any) -> None:
    with pytest.raises(ValueError, match=r"Dimensions must be equal|are incompatible"):
        nn.depthwise_conv2d(IMAGES, EACH[:, :, :2], [1, 1, 1, 1], "SAME")
    with pytest.raises(errors.InvalidArgumentError):
        ops.compute(
            lambda a, b: nn.depthwise_conv2d(a, b, 1, "SAME"), IMAGES, EACH[:, :, :2], known="nothing"
        )


def test_depths_that_differ_in_a_kernel_are_refused() -> None:
    settings: Any = {"strides": (1, 1), "padding": "SAME", "dilations": (1, 1)}
    with pytest.raises(errors.InvalidArgumentError, match=r"Depth of input \(3\) is not the depth"):
        depthwise.convolve(IMAGES, EACH[:, :, :2], **settings)
    out = np.empty_like(EACH)
    grad = np.ones((2, 6, 5, 6))
    found = depthwise.filter_gradient(IMAGES, np.array(EACH.shape), grad, out, **settings)
    assert found is out
