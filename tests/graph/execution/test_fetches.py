"""RA-1: results come back in the structure of the fetches."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.execution.fetches import FetchMap, fetch_key

pytestmark = pytest.mark.asyncio

Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Result:
    a: Any
    b: Any


class AttrsLike:
    """The parts of a class of attrs that fetches read."""

    @dataclasses.dataclass
    class Field:
        name: str
        init: bool = True

    __attrs_attrs__ = (Field("a"),)

    def __init__(self, a: Any) -> None:
        self.a = a


@pytest.fixture
def elements() -> tuple[tf.Tensor, tf.Tensor, tf.Operation]:
    return tf.constant(1, name="a"), tf.constant([2.0], name="b"), tf.no_op("op")


async def run(fetches: Any) -> Any:
    async with tf.Session() as sess:
        first = await sess.run(fetches)
        second = await sess.run(fetches)
        assert type(first) is type(second)
        return second


async def test_nested_structures_come_back_ra_1(elements: Any) -> None:
    """RA-1."""
    a, b, op = elements
    got = await run({"list": [a, (b, op)], "point": Point(a, [b]), "again": a})
    assert got == {"list": [1, (2.0, None)], "point": Point(1, [2.0]), "again": 1}
    assert type(got["point"]) is Point
    assert type(got["list"][1]) is tuple


async def test_mappings_keep_their_type_and_order_ra_1(elements: Any) -> None:
    """RA-1."""
    a, b, _ = elements
    ordered = await run(OrderedDict([("z", a), ("a", b)]))
    assert type(ordered) is OrderedDict
    assert list(ordered) == ["z", "a"]
    counted = await run(defaultdict(list, {"k": a}))
    assert counted == {"k": 1}
    assert counted["new"] == []
    assert type(await run(MappingProxyType({"k": a}))) is MappingProxyType


async def test_classes_with_fields_come_back_ra_1(elements: Any) -> None:
    """RA-1."""
    a, b, op = elements
    assert await run(Result(a, [b, op])) == Result(1, [2.0, None])
    assert (await run(AttrsLike(a))).a == 1


async def test_empty_structures_return_themselves_ra_3() -> None:
    """RA-3."""
    assert await run([]) == []
    assert await run({}) == {}
    assert await run(()) == ()
    assert await run([[], {}]) == [[], {}]


async def test_none_is_refused_ra_3() -> None:
    """RA-3."""
    async with tf.Session() as sess:
        with pytest.raises(
            TypeError, match=r'^Argument `fetch` = None has invalid type "NoneType"\. Cannot be None'
        ):
            await sess.run(None)
        with pytest.raises(TypeError, match="Cannot be None"):
            await sess.run([None])


async def test_names_and_variables_can_be_fetched(elements: Any) -> None:
    v = tf.Variable(3, name="v")
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run(["a:0", "op", v, "v:0"]) == [1, None, 3, 3]


async def test_a_tensor_requested_twice_is_computed_once() -> None:
    calls = []
    x = tf.py_func(lambda: calls.append(1) or np.float32(1), [], tf.float32)
    assert await run([x, {"again": x}]) == [1, {"again": 1}]
    assert len(calls) == 2  # run() runs twice


@pytest.mark.parametrize(
    ("fetch", "error", "text"),
    [(3, TypeError, "Fetch argument 3 has invalid type 'int'"),
     ("nothing:0", ValueError, "Fetch argument 'nothing:0' cannot be interpreted as a Tensor"),
     ("a:b", ValueError, "cannot be interpreted as a Tensor"),
     (np.zeros(2), TypeError, "invalid type 'ndarray'")],
)  # fmt: skip
async def test_what_cannot_be_fetched(fetch: Any, error: type[Exception], text: str) -> None:
    async with tf.Session() as sess:
        with pytest.raises(error, match=text):
            await sess.run([fetch])


async def test_a_fetch_of_another_graph_is_refused() -> None:
    with tf.Graph().as_default():
        foreign = tf.constant(1, name="foreign")
    async with tf.Session() as sess:
        with pytest.raises(ValueError, match=r"foreign:0.*is not an element of this graph"):
            await sess.run(foreign)


async def test_equal_keys_mean_equal_structures(elements: Any) -> None:
    a, b, _ = elements
    different = [
        a,
        [a],
        (a,),
        [[a]],
        {"x": a},
        {"y": a},
        [a, b],
        Point(a, b),
        (a, b),
        Result(a, b),
        ["a:0"],
    ]
    keys = [fetch_key(fetches) for fetches in different]
    assert len(set(keys)) == len(keys)
    assert fetch_key([a, {"x": (b,)}]) == fetch_key([a, {"x": (b,)}])


async def test_elements_are_collected_once_in_order(elements: Any) -> None:
    a, b, op = elements
    assert FetchMap(tf.get_default_graph(), [b, (a, b), {"o": op}]).elements == [b, a, op]


async def test_indexed_slices_come_back_as_their_parts() -> None:
    x = tf.placeholder(tf.float32, [3, 2])
    (grad,) = tf.gradients(tf.gather(x, [2, 0]), x)
    bare = tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
    async with tf.Session() as sess:
        found, other = await sess.run([grad, bare], {x: np.ones((3, 2))})
    assert isinstance(found, tf.IndexedSlicesValue)
    assert found.values.tolist() == [[1, 1], [1, 1]]
    assert found.indices.tolist() == [2, 0]
    assert found.dense_shape.tolist() == [3, 2]
    assert other.dense_shape is None
