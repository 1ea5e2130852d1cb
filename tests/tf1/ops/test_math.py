"""Inverse trigonometric functions, and hyperbolic ones: values against numpy, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

ANY = np.array([[-1.7, -0.6, 0.3], [0.8, 1.4, 2.3]])
POSITIVE = np.array([[0.2, 0.7, 1.1], [1.9, 2.4, 5.0]])
UNIT = np.array([[-0.9, -0.3, 0.1], [0.4, 0.6, 0.8]])

FUNCTIONS = [
    (tf.asin, np.arcsin, UNIT),
    (tf.acos, np.arccos, UNIT),
    (tf.atan, np.arctan, ANY),
    (tf.sinh, np.sinh, ANY),
    (tf.cosh, np.cosh, ANY),
    (tf.asinh, np.arcsinh, ANY),
    (tf.acosh, np.arccosh, POSITIVE + 1),
    (tf.atanh, np.arctanh, UNIT),
]


def _name(case: Any) -> str:
    return str(getattr(case, "__name__", ""))


@pytest.mark.parametrize(("function", "reference", "x"), FUNCTIONS, ids=_name)
def test_functions(ops: Any, function: Any, reference: Any, x: Any) -> None:
    ops.agree(function, reference(x), x, rtol=1e-12)
    ops.agree(function, reference(x), x.astype("f"), rtol=1e-5, known=("all",))
    ops.agree(function, reference(x), x.astype("e"), rtol=1e-2, known=("all",))
    ops.differentiate(function, x)


def test_the_angle_of_a_point(ops: Any) -> None:
    ops.agree(tf.atan2, np.arctan2(ANY, ANY[0] * 2), ANY, ANY[0] * 2, rtol=1e-12)
    ops.differentiate(tf.atan2, ANY, ANY[0] * 2, max_elements=4)
    assert tf.atan2(1.0, x=2.0).op.type == "Atan2"
    with pytest.raises(TypeError, match="int32"):
        tf.atan2(1, 2)


def test_a_function_looks_as_if_written_by_hand() -> None:
    assert (tf.asin.__name__, tf.asin.__module__) == ("asin", "asyncmon.tf1.ops.math")
    assert "Return the inverse sine. TF1: ``tf.asin``." in str(tf.asin.__doc__)
