from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon.graph import Dimension, TensorShape
from asyncmon.graph.core.rules import common
from asyncmon.graph.core.shape import as_shape, is_compatible


def test_a_shape_is_a_tuple() -> None:
    shape = TensorShape([None, 3])
    assert shape == (None, 3)
    assert shape == [None, 3]
    assert shape != (None,)
    assert (shape[1], len(shape), shape.ndims, shape.rank) == (3, 2, 2, 2)
    assert (shape.as_list(), shape.dims, str(shape)) == ([None, 3], [None, 3], "(?, 3)")
    assert str(TensorShape([3])) == "(3,)"
    assert repr(shape) == "TensorShape([None, 3])"
    assert hash(shape) == hash((None, 3))


def test_an_unknown_rank() -> None:
    shape = TensorShape(None)
    assert (shape.ndims, shape.dims, str(shape), shape.num_elements()) == (
        None,
        None,
        "<unknown>",
        None,
    )
    assert not shape
    assert TensorShape([])
    assert shape == TensorShape(None)
    assert shape == None  # noqa: E711  # the operator is meant
    assert TensorShape([None]) != None  # noqa: E711  # likewise
    assert shape != TensorShape([])
    with pytest.raises(ValueError, match="unknown rank"):
        len(shape)
    with pytest.raises(ValueError, match="as_list"):
        shape.as_list()


def test_compatibility() -> None:
    assert TensorShape([None, 3]).is_compatible_with((2, 3))
    assert not TensorShape([None, 3]).is_compatible_with((2, 4))
    assert not TensorShape([3]).is_compatible_with((3, 3))
    assert TensorShape(None).is_compatible_with((1,))
    assert TensorShape([2, 3]).is_fully_defined()
    assert TensorShape([2, 3]).num_elements() == 6
    assert TensorShape([None]).num_elements() is None


def test_what_can_be_a_shape() -> None:
    assert [as_shape(x) for x in (None, 3, [2, None], TensorShape([1]), TensorShape(None))] == [
        None, (3,), (2, None), (1,), None,
    ]  # fmt: skip
    assert as_shape(np.array([2, 3])) == (2, 3)
    assert as_shape((Dimension(None), Dimension(2), np.int64(3))) == (None, 2, 3)
    with pytest.raises(TypeError, match="Cannot use 'ab' as a shape"):
        as_shape("ab")
    with pytest.raises(ValueError, match="Dimension -1 must be >= 0"):
        as_shape([-1, 10])


def test_dimensions_are_ints_with_their_value() -> None:
    shape = TensorShape([None, 3])
    assert shape[1] == 3
    assert shape[1].value == 3
    assert [type(d) for d in shape.as_list()] == [type(None), int]
    assert shape[1:] == (3,)
    assert isinstance(shape[1:], TensorShape)
    assert TensorShape(None)[2].value is None
    assert TensorShape(None)[1:].ndims is None
    with pytest.raises(ValueError, match="unknown rank"):
        iter(TensorShape(None))


def test_an_unknown_dimension() -> None:
    unknown = TensorShape([None, 3])[0]
    assert isinstance(unknown, Dimension)
    assert (unknown.value, str(unknown), repr(unknown)) == (None, "?", "Dimension(None)")
    assert unknown == None  # noqa: E711  # as None in a shape
    assert [unknown == 3, unknown == Dimension(None), unknown < 4] == [None, None, None]
    assert [d.value for d in (unknown + 1, 2 * unknown, 7 // unknown, Dimension(3) + None)] == [
        None
    ] * 4
    assert unknown.merge_with(3) == 3
    assert unknown.is_compatible_with(7)
    with pytest.raises(TypeError):
        range(unknown)


def test_arithmetic_of_dimensions_gives_dimensions() -> None:
    three = Dimension(3)
    found = [three + 2, 2 * three, 7 - three, Dimension(7) // 2, three % 2]
    assert [d.value for d in found] == [5, 6, 4, 3, 1]
    assert (repr(three), str(three), f"{three}") == ("Dimension(3)", "3", "3")
    assert three.merge_with(None) is three
    with pytest.raises(ValueError, match="not compatible"):
        three.merge_with(4)
    with pytest.raises(ValueError, match="must be >= 0"):
        Dimension(-1)


def test_shapes_are_put_together() -> None:
    shape = TensorShape([None, 3])
    assert shape.merge_with([2, None]) == (2, 3)
    assert TensorShape(None).merge_with([2]) == (2,)
    assert shape.merge_with(None) == shape
    assert shape.concatenate([4]) == shape + [4] == (None, 3, 4)  # noqa: RUF005  # the operator is meant
    assert [1] + shape == (1, None, 3)  # noqa: RUF005  # likewise
    assert shape.concatenate(None).ndims is None
    assert TensorShape(None).with_rank(2) == (None, None)
    assert shape.with_rank(2) == shape.with_rank_at_least(1) == shape.with_rank_at_most(2) == shape
    assert TensorShape(TensorShape(None)).ndims is None
    assert TensorShape(3) == (3,)


def test_assertions_about_shapes() -> None:
    shape = TensorShape([None, 3])
    shape.assert_has_rank(2)
    shape.assert_is_compatible_with([1, 3])
    for call, text in (
        (lambda: shape.merge_with([2, 4]), r"Shapes \(\?, 3\) and \(2, 4\) are incompatible"),
        (lambda: shape.with_rank(3), "incompatible"),
        (lambda: shape.with_rank_at_least(3), "at least 3"),
        (lambda: shape.with_rank_at_most(1), "at most 1"),
        (lambda: shape.assert_has_rank(1), "must have rank 1"),
        (shape.assert_is_fully_defined, "not fully defined"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


@pytest.mark.parametrize(
    ("x", "y", "fit", "both"),
    [
        (None, (2,), True, None),
        ((None, 3), (2, None), True, (None, None)),
        ((None, 3), (2, 3), True, (None, 3)),
        ((2, 3), (2, 4), False, (2, None)),
        ((2,), (2, 2), False, None),
    ],
)
def test_two_shapes(x: Any, y: Any, fit: bool, both: Any) -> None:
    assert is_compatible(x, y) == is_compatible(y, x) == fit
    assert common(x, y) == common(y, x) == both
