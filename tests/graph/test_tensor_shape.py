from __future__ import annotations

import pytest

from asyncmon.graph import TensorShape
from asyncmon.graph.tensor_shape import as_shape


def test_a_shape_is_a_tuple() -> None:
    shape = TensorShape([None, 3])
    assert shape == (None, 3)
    assert shape == [None, 3]
    assert shape != (None,)
    assert (shape[1], len(shape), shape.ndims, shape.rank) == (3, 2, 2, 2)
    assert (shape.as_list(), shape.dims, str(shape)) == ([None, 3], (None, 3), "(?, 3)")
    assert str(TensorShape([3])) == "(3,)"
    assert repr(shape) == "TensorShape((None, 3))"
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
    assert [as_shape(x) for x in (None, 3, [2, -1], TensorShape([1]), TensorShape(None))] == [
        None, (3,), (2, None), (1,), None,
    ]  # fmt: skip
    with pytest.raises(TypeError, match="Cannot use 'ab' as a shape"):
        as_shape("ab")
    with pytest.raises(ValueError, match="negative"):
        as_shape([-3])
