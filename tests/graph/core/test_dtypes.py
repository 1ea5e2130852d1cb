from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.core import dtypes


@pytest.mark.parametrize(
    ("value", "dtype"),
    [("float32", tf.float32), (np.float32, tf.float32), (np.dtype("i8"), tf.int64), (float, tf.float32),
     (int, tf.int32), (bool, tf.bool), (str, tf.string), ("double", tf.float64),
     (np.dtype("U3"), tf.string), (1, tf.float32), (9, tf.int64),
     (tf.uint8, tf.uint8), (complex, tf.complex128)],
)  # fmt: skip
def test_what_stands_for_a_dtype(value: Any, dtype: tf.DType) -> None:
    assert tf.as_dtype(value) is dtype
    no_own = any(value is kind for kind in (int, str, complex))
    assert (dtype == value) == (not no_own)  # as in the original


def test_the_type_for_numpy_is_the_class_of_scalars() -> None:
    assert tf.float32.as_numpy_dtype is np.float32
    assert tf.bool.as_numpy_dtype is np.bool_
    assert tf.string.as_numpy_dtype is object
    assert tf.int8.as_numpy_dtype(3) == np.int8(3)
    assert (tf.int8.limits, tf.uint16.limits, tf.float32.limits) == ((0, 127), (0, 65535), (0, 1))


@pytest.mark.parametrize("value", ["nonsense", None, np.dtype("M8[s]"), 3.5])
def test_what_does_not(value: Any) -> None:
    assert tf.float32 != value
    with pytest.raises(TypeError, match="Cannot convert value"):
        tf.as_dtype(value)


def test_properties() -> None:
    assert tf.float32.is_floating
    assert tf.uint8.is_integer
    assert tf.uint8.is_unsigned
    assert tf.bool.is_bool
    assert tf.complex64.is_complex
    assert (tf.complex64.real_dtype, tf.int32.real_dtype) == (tf.float32, tf.int32)
    assert (tf.int8.min, tf.int8.max, tf.float64.size) == (-128, 127, 8)
    assert tf.float16.max == np.finfo(np.float16).max
    assert tf.float32.base_dtype is tf.float32
    assert tf.float32.is_compatible_with("float")
    assert (str(tf.float32), repr(tf.int8)) == ("<dtype: 'float32'>", "am.graph.int8")
    with pytest.raises(TypeError, match="no smallest"):
        _ = tf.string.min


def test_a_dtype_stays_the_one_object() -> None:
    assert copy.deepcopy(tf.int8) is tf.int8
    assert pickle.loads(pickle.dumps(dtypes.string)) is tf.string
    assert {tf.int8: 1}[tf.int8] == 1
