"""``tf.contrib.training.HParams``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import asyncmon.tf1 as tf

Evaluate = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("graph")
HParams = tf.contrib.training.HParams


def test_hparams_keep_their_types() -> None:
    hparams = HParams(rate=0.1, steps=3, name="x", deep=True, sizes=[1, 2], extra=None)
    assert hparams.parse("rate=1,steps=4, name=a b,deep=false,sizes=[5, 6,7]") is hparams
    assert hparams.values() == {
        "rate": 1.0, "steps": 4, "name": "a b", "deep": False, "sizes": [5, 6, 7], "extra": None,
    }  # fmt: skip
    assert isinstance(hparams.rate, float)
    hparams.override_from_dict({"deep": True, "sizes": (8,)}).set_hparam("rate", 2)
    assert (hparams.deep, hparams.sizes, hparams.rate) == (True, [8], 2.0)
    hparams.parse_json('{"steps": 5}')
    assert hparams.steps == 5
    assert hparams.set_hparam("extra", None) is None
    hparams.extra = 3
    assert hparams.get("extra") == 3
    assert hparams.to_json(sort_keys=True) == (
        '{"deep": true, "extra": 3, "name": "a b", "rate": 2.0, "sizes": [8], "steps": 5}'
    )
    assert copy.deepcopy(hparams).values() == hparams.values()


def test_hparams_are_found_by_name() -> None:
    hparams = HParams(rate=0.1)
    assert "rate" in hparams
    assert (hparams.get("rate"), hparams.get("other", 5), hparams.get("other")) == (0.1, 5, None)
    assert repr(hparams) == "HParams([('rate', 0.1)])"
    with pytest.raises(AttributeError, match="no value 'other'"):
        _ = hparams.other


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda h: h.add_hparam("rate", 1), "is reserved: rate"),
        (lambda h: h.add_hparam("values", 1), "is reserved: values"),
        (lambda h: h.add_hparam("none", []), "cannot be empty: none"),
        (lambda h: h.set_hparam("steps", 1.5), "Could not cast hparam 'steps'"),
        (lambda h: h.set_hparam("deep", 1), "Could not cast hparam 'deep'"),
        (lambda h: h.set_hparam("name", 1), "Could not cast hparam 'name'"),
        (lambda h: h.set_hparam("rate", [1.0]), "Must not pass a list"),
        (lambda h: h.set_hparam("sizes", 1), "Must pass a list"),
        (lambda h: h.parse("other=1"), "Unknown hyperparameter type for other"),
        (lambda h: h.parse("steps=1,steps=2"), "Multiple assignments to variable 'steps'"),
        (lambda h: h.parse("steps=x"), "Could not parse hparam 'steps' of type 'int'"),
        (lambda h: h.parse("deep=maybe"), "Could not parse hparam 'deep'"),
        (lambda h: h.parse("steps"), "Malformed hyperparameter value: steps"),
        (lambda h: HParams(hparam_def=object()), "hparam_def must be None"),
    ],
)
def test_hparams_refuse(act: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act(HParams(rate=0.1, steps=3, name="x", deep=True, sizes=[1, 2]))
    with pytest.raises(KeyError):
        HParams().set_hparam("rate", 1)
