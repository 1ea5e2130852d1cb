"""The values that can be logged by hand, and the errors of others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asyncmon.summary import Image
from asyncmon.summary.logged import MOST_TEXT, checked_config, logged_values, plain_numbers


def test_numbers_texts_arrays_and_images_by_tag() -> None:
    picture, samples = Image(np.zeros((4, 4))), np.arange(3)
    found = logged_values(
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
    assert found["h"].tolist() == [0, 1, 2]  # type: ignore[union-attr]
    assert plain_numbers(found) | {"nan": 0.0} == {
        "a": 1.0, "b": 0.5, "c": 2.0, "nan": 0.0, "h/min": 0.0, "h/max": 2.0, "h/mean": 1.0,
    }  # fmt: skip
    assert logged_values("loss", True) == {"loss": 1.0}


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (("x", None), TypeError, "'x' is None, a NoneType; expected a number, an array"),
        (("x", object), TypeError, "expected a number"),
        (("x", [object()]), TypeError, "expected a number"),
        (("x", [[1], [1, 2]]), TypeError, r"'x' is \[\[1\], \[1, 2\]\], a list"),
        (("x", {"y": 1.0}), TypeError, "a dict; expected"),
        (("x", 1j), TypeError, "expected a number"),
        (("x", np.array(["a", "b"])), TypeError, "expected a number"),
        (("x", np.zeros(0)), ValueError, "'x' is an empty array; expected one number or more"),
        (("x", "a" * (MOST_TEXT + 1)), ValueError, "1,048,577 characters; at most 1,048,576"),
        ((3, 1.0), TypeError, "takes a tag and a value, or a mapping of values by tag; got 3 and 1.0"),
        (({"x": 1.0}, 2.0), TypeError, "takes a tag and a value"),
        (({3: 1.0},), TypeError, "the tag 3; expected a name"),
        (("", 1.0), TypeError, "the tag ''; expected a name"),
    ],
)
def test_other_values_are_refused(args: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        logged_values(*args)


def test_tensors_and_arrays_of_other_libraries_are_converted() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    found = logged_values(
        {
            "torch": torch.ones(2, dtype=torch.bfloat16, requires_grad=True),
            "scalar": torch.tensor(0.5, requires_grad=True),
            "jax": jax.numpy.ones(2, "bfloat16"),
        }
    )
    assert found["scalar"] == 0.5
    assert [np.asarray(found[name]).tolist() for name in ("torch", "jax")] == [[1.0, 1.0]] * 2


def test_a_step_is_a_whole_number() -> None:
    assert logged_values("x", 1.0, step=np.int64(3)) == {"x": 1.0}  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"the step 1\.5; expected a whole number or None"):
        logged_values("x", 1.0, step=1.5)  # type: ignore[arg-type]


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
    with pytest.raises(TypeError, match=r"'layers' is \[1\]; expected a bool, number or string"):
        checked_config({"layers": [1]})
    with pytest.raises(TypeError, match="takes a mapping of values by name, got 3"):
        checked_config(3)
