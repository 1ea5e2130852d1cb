"""Summaries of each kind of value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asyncmon.summary import Summary
from asyncmon.summary.values import (
    batch_of_images,
    frozen_array,
    histogram_summary,
    hparams_summary,
    image_summary,
    scalar_number,
    scalar_summary,
    summary_bytes,
    text_summary,
)


def only_value(data: bytes) -> Summary.Value:
    (value,) = Summary.FromString(data).value
    return value


@pytest.mark.parametrize("value", [1, 1.0, True, np.float32(1), np.int64(1), np.array(1.0)])
def test_any_single_number_is_a_scalar(value: Any) -> None:
    assert scalar_number("x", value) == 1.0
    assert only_value(scalar_summary("x", value)) == Summary.Value("x", 1.0)


def test_a_histogram_with_nan_is_left_out_with_one_warning_su_5(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SU-5: it must not kill training."""
    for _ in range(3):
        assert histogram_summary("layer/w", [1.0, math.nan]) is None
    assert histogram_summary("layer/v", [math.inf]) is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "Nan in summary histogram for: layer/w" in caplog.text
    assert "Infinity in Histogram for: layer/v" in caplog.text


@pytest.mark.parametrize(
    ("max_outputs", "tags"), [(0, ["i"]), (1, ["i/image"]), (3, ["i/image/0", "i/image/1"])]
)
def test_tags_of_images_are_tf1s_su_6(max_outputs: int, tags: list[str]) -> None:
    """SU-6."""
    summary = Summary.FromString(image_summary("i", np.zeros((2, 3, 4, 1), np.uint8), max_outputs))
    assert [value.tag for value in summary.value] == tags
    first = summary.value[0].image
    assert (first.height, first.width, first.colorspace) == (3, 4, 1)


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 1), (1, 3, 4, 1)])
def test_one_image_is_a_batch_of_one(shape: tuple[int, ...]) -> None:
    assert batch_of_images(np.zeros(shape)).shape == (1, 3, 4, 1)


@pytest.mark.parametrize(
    ("text", "shape", "strings"),
    [
        ("a", [], [b"a"]),
        (b"\xff", [], [b"\xff"]),
        (["a", "é"], [2], [b"a", "é".encode()]),
        ([["a", "b"], ["c", "d"]], [2, 2], [b"a", b"b", b"c", b"d"]),
        (np.array(["a", b"b"], object), [2], [b"a", b"b"]),
    ],
)
def test_text_is_a_tensor_of_strings_su_7(text: Any, shape: list[int], strings: list[bytes]) -> None:
    """SU-7."""
    value = only_value(text_summary("note", text))
    assert value.metadata.plugin_data.plugin_name == "text"
    assert [dim.size for dim in value.tensor.tensor_shape.dim] == shape
    assert list(value.tensor.string_val) == strings


def test_equal_hyperparameters_are_one_group() -> None:
    def group(**hparams: Any) -> bytes:
        content = only_value(hparams_summary(hparams, 0.0)).metadata.plugin_data.content
        return content[content.index(b'"@') :]

    assert group(lr=0.1, layers=2) == group(layers=np.int64(2), lr=np.float64(0.1))
    assert group(lr=0.1) != group(lr=0.2)


def test_a_summary_may_come_as_a_scalar_of_strings() -> None:
    data = scalar_summary("x", 1.0)
    array = np.empty((), object)
    array[()] = data
    assert summary_bytes(array) == data
    assert summary_bytes(Summary.FromString(data)) == data


def test_an_array_that_can_be_changed_is_copied() -> None:
    array = np.ones(3)
    assert frozen_array(array) is not array
    view = array.view()
    view.flags.writeable = False  # and array could still change it
    assert frozen_array(view).base is None
    array.flags.writeable = False
    assert frozen_array(array) is array
    assert frozen_array(array[1:]).base is array
    assert frozen_array([1.0, 2.0]).tolist() == [1.0, 2.0]


def test_memory_of_something_else_is_copied() -> None:
    buffer = bytearray(8)
    array = np.frombuffer(buffer, np.uint8)
    array.flags.writeable = False
    frozen = frozen_array(array)
    buffer[0] = 1
    assert frozen[0] == 0
    constant = np.frombuffer(b"12345678", np.uint8)
    assert frozen_array(constant) is constant
