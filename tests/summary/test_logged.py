"""The values that can be logged by hand, and the errors of others."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.summary import Image
from asyncmon.summary.logged import MOST_TEXT, checked_config, logged_values, plain_numbers


class Raising:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise ZeroDivisionError("no value")


def test_numbers_texts_arrays_and_images_by_tag() -> None:
    picture, samples = Image(np.zeros((4, 4))), np.arange(3)
    found, _ = logged_values(
        {
            "a": 1,
            "b": np.float32(0.5),
            "c": [2.0],
            "nan": math.nan,
            "t": "x",
            "h": samples,
            "i": picture,
        }
    )
    assert [found[tag] for tag in "abcti"] == [1.0, 0.5, 2.0, "x", picture]
    assert isinstance(found["nan"], float)
    assert math.isnan(found["nan"])
    samples[:] = 7  # a logged array is a copy
    assert found["h"].tolist() == [0, 1, 2]  # type: ignore[union-attr]  # an array
    assert plain_numbers(found) | {"nan": 0.0} == {
        "a": 1.0, "b": 0.5, "c": 2.0, "nan": 0.0, "h/min": 0.0, "h/max": 2.0, "h/mean": 1.0,
    }  # fmt: skip
    assert logged_values("loss", True) == ({"loss": 1.0}, {})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "it is None, a NoneType; expected a number, an array"),
        (object, "expected a number"),
        ([object()], "expected a number"),
        ([[1], [1, 2]], r"it is \[\[1\], \[1, 2\]\], a list"),
        ({"y": 1.0}, "a dict; expected"),
        (1j, "expected a number"),
        (np.array(["a", "b"]), "expected a number"),
        (np.zeros(0), "it is an empty array; expected one number or more"),
        ("a" * (MOST_TEXT + 1), "1,048,577 characters; at most 1,048,576"),
        (Raising(), "ZeroDivisionError: no value"),
    ],
)
def test_a_value_that_cannot_be_logged_takes_no_others_with_it(value: Any, reason: str) -> None:
    found, refused = logged_values({"a": 1.0, "x": value, "b": 2.0})
    assert found == {"a": 1.0, "b": 2.0}
    assert list(refused) == ["x"]
    assert re.search(reason, refused["x"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((3, 1.0), "takes a tag and a value, or a mapping of values by tag; got 3 and 1.0"),
        (({"x": 1.0}, 2.0), "takes a tag and a value"),
        (({3: 1.0},), "the tag 3; expected a name"),
        (("", 1.0), "the tag ''; expected a name"),
    ],
)
def test_a_call_without_tags_is_an_error(args: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        logged_values(*args)


def test_odd_numbers_and_tags_are_converted() -> None:
    found, refused = logged_values(
        {"big": 10**400, "small": -(10**400), "third": Fraction(1, 4), "two\nlines\t": 1.0}
    )
    assert refused == {}
    assert found == {"big": math.inf, "small": -math.inf, "third": 0.25, "two lines ": 1.0}


def test_a_step_beyond_64_bits_is_refused_with_its_tags() -> None:
    assert logged_values("x", 1.0, step=2**63) == (
        {}, {"x": "it has the step 9223372036854775808, which has more than 64 bits"},
    )  # fmt: skip
    assert logged_values("x", 1.0, step=2**63 - 1) == ({"x": 1.0}, {})


def test_a_tensor_without_data_is_refused() -> None:
    torch = pytest.importorskip("torch")
    found, refused = logged_values({"x": torch.ones(2, device="meta"), "y": 1.0})
    assert found == {"y": 1.0}
    assert refused["x"].startswith("NotImplementedError: Cannot copy out of meta tensor")


def test_tensors_and_arrays_of_other_libraries_are_converted() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    found, _ = logged_values(
        {
            "torch": torch.ones(2, dtype=torch.bfloat16, requires_grad=True),
            "scalar": torch.tensor(0.5, requires_grad=True),
            "jax": jax.numpy.ones(2, "bfloat16"),
        }
    )
    assert found["scalar"] == 0.5
    assert [np.asarray(found[name]).tolist() for name in ("torch", "jax")] == [[1.0, 1.0]] * 2


def test_a_step_is_a_whole_number() -> None:
    assert logged_values("x", 1.0, step=np.int64(3)) == ({"x": 1.0}, {})  # type: ignore[arg-type]  # converted
    with pytest.raises(TypeError, match=r"the step 1\.5; expected a whole number or None"):
        logged_values("x", 1.0, step=1.5)  # type: ignore[arg-type]  # refused


def test_an_image_has_two_or_three_axes() -> None:
    assert Image(np.zeros((2, 3, 3), np.uint8)).png().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"of shape \[5\]; expected \[height, width\]"):
        Image(np.zeros(5))
    with pytest.raises(ValueError, match="last dim 1, 3, or 4"):
        Image(np.zeros((2, 3, 2)))
    with pytest.raises(TypeError, match="int64 values; expected uint8 or floats"):
        Image(np.zeros((2, 3), int))


def test_hyperparameters_are_plain_values_by_name() -> None:
    assert checked_config({"rate": np.float64(0.1), "n": 3, "on": True, "name": "x"}) == {
        "rate": 0.1, "n": 3, "on": True, "name": "x",
    }  # fmt: skip
    odd = {"layers": [1, 2], "seed": None, "path": Path("a"), "big": 10**400, "nan": math.nan}
    found = checked_config(odd)
    assert found.pop("nan") != 0.0
    assert found == {"layers": "[1, 2]", "seed": "None", "path": "a", "big": str(10**400)[:1000]}
    with pytest.raises(TypeError, match="takes a mapping of values by name, got 3"):
        checked_config(3)
