"""Transposed convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

RNG = np.random.default_rng(19)
nn = tf.nn
IMAGES = RNG.normal(size=(2, 6, 5, 3))
FILTERS = RNG.normal(size=(3, 2, 3, 4))


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
