"""Arrays as TensorProto, read by TensorBoard's own code."""

from __future__ import annotations

import numpy as np
import pytest
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.util.tensor_util import make_ndarray

from asyncmon.summary.values import tensor_proto


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array(2.5),
        np.array([1, -1], ">i4"),
        np.array([[True, False]]),
        np.zeros((0, 3), np.int64),
        np.array([1 + 2j], np.complex64),
        np.arange(8, dtype=np.uint8)[::2],
        np.array([0.5], np.float16),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_numbers_come_back(array: np.ndarray) -> None:
    proto = TensorProto.FromString(tensor_proto("t", array).SerializeToString())
    back = make_ndarray(proto)
    assert back.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(back, array)


def test_strings_come_back() -> None:
    proto = tensor_proto("t", np.array([["a", b"\xff"], ["ü", ""]], object))
    back = make_ndarray(TensorProto.FromString(proto.SerializeToString()))
    assert back.tolist() == [[b"a", b"\xff"], ["ü".encode(), b""]]


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="'t' was given 1; expected strings"):
        tensor_proto("t", np.array([1], object))
    with pytest.raises(TypeError, match="datetime64"):
        tensor_proto("t", np.array(["2020-01-01"], "datetime64[D]"))
