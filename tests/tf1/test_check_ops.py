from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon.errors import InvalidArgumentError

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def graph() -> Iterator[Any]:
    with tf.Graph().as_default() as graph:
        yield graph


async def run(fetches: Any, feeds: Any = None) -> Any:
    async with tf.Session() as sess:
        return await sess.run(fetches, feeds)


PAIRS = [
    ("assert_equal", [1, 2], [1, 2], [1, 3]),
    ("assert_none_equal", [1, 2], [3, 4], [3, 2]),
    ("assert_less", [1, 2], [2, 3], [2, 2]),
    ("assert_less_equal", [1, 2], [1, 3], [1, 1]),
    ("assert_greater", [1, 2], [0, 1], [0, 2]),
    ("assert_greater_equal", [1, 2], [1, 1], [2, 1]),
    ("assert_near", [1.0, 2.0], [1.0, 2.0000002], [1.0, 2.1]),
]
SIGNS = [
    ("assert_positive", [1, 2], [0, 1]),
    ("assert_negative", [-1, -2], [-1, 0]),
    ("assert_non_negative", [0, 1], [0, -1]),
    ("assert_non_positive", [0, -1], [0, 1]),
]


@pytest.mark.parametrize(("name", "x", "good", "bad"), PAIRS)
async def test_pairs_are_checked_in_the_run(name: str, x: Any, good: Any, bad: Any) -> None:
    kind = np.result_type(np.array(x), np.float32 if name == "assert_near" else np.int32)
    values = tf.placeholder(tf.as_dtype(np.float32 if kind.kind == "f" else np.int32), [None])
    check = getattr(tf, name)(x, values, message="before")
    await run(check, {values: good})
    with pytest.raises(InvalidArgumentError, match=r"assertion failed: .*before"):
        await run(check, {values: bad})


@pytest.mark.parametrize(("name", "x", "good", "bad"), PAIRS[:-1])
async def test_constants_are_checked_at_once(name: str, x: Any, good: Any, bad: Any) -> None:
    check = getattr(tf, name)
    assert check(x, good).type == "Assert"
    with pytest.raises(InvalidArgumentError, match="did not hold element-wise"):
        check(x, tf.constant(bad))
    with pytest.raises(InvalidArgumentError, match=r"note\nseen\n7"):
        check(x, bad, data=["seen", tf.constant(7)], message="note")


@pytest.mark.parametrize(("name", "good", "bad"), SIGNS)
async def test_signs(name: str, good: Any, bad: Any) -> None:
    values = tf.placeholder(tf.int32, [None])
    check = getattr(tf, name)(values, summarize=2)
    await run(check, {values: good})
    with pytest.raises(InvalidArgumentError, match="did not hold element-wise"):
        await run(check, {values: bad})
    with pytest.raises(InvalidArgumentError, match="did not hold"):
        getattr(tf, name)(bad)


async def test_an_assertion_is_a_control_dependency() -> None:
    x = tf.placeholder(tf.float32, [])
    with tf.control_dependencies([tf.assert_positive(x, ["seen", x])]):
        y = x * 2
    assert await run(y, {x: 1}) == 2
    with pytest.raises(InvalidArgumentError, match=r"\[seen\] \[-1\]"):
        await run(y, {x: -1})


async def test_tolerances() -> None:
    await run(tf.assert_near([1.0, 2.0], [1.1, 2.2], rtol=0.2))
    await run(tf.assert_near([1.0, 2.0], [1.1, 2.1], atol=0.2))
    with pytest.raises(InvalidArgumentError):
        await run(tf.assert_near(tf.constant(1.0, tf.float64), 1.0 + 1e-9))


async def test_ranks() -> None:
    known, unknown = tf.ones([2, 3]), tf.placeholder(tf.float32, None)
    for good in (
        tf.assert_rank(known, 2),
        tf.assert_rank_at_least(known, 1),
        tf.assert_rank_in(known, [1, 2]),
    ):
        assert good.type == "NoOp"
    with pytest.raises(ValueError, match=r"m Tensor ones:0 must have rank 3. Received rank 2, shape"):
        tf.assert_rank(known, 3, message="m")
    with pytest.raises(ValueError, match="must have rank at least 3"):
        tf.assert_rank_at_least(known, 3)
    with pytest.raises(ValueError, match="must have rank in 1, 3"):
        tf.assert_rank_in(known, (1, 3))
    with pytest.raises(ValueError, match="Rank must be a scalar"):
        tf.assert_rank(known, [2])
    with pytest.raises(TypeError, match="Rank must be an integer"):
        tf.assert_rank(known, 2.0)
    for check in (
        tf.assert_rank(unknown, 1),
        tf.assert_rank_at_least(unknown, 1),
        tf.assert_rank_in(unknown, [1, 2]),
    ):
        await run(check, {unknown: [1.0]})
        with pytest.raises(InvalidArgumentError, match="must have rank"):
            await run(check, {unknown: 1.0})


async def test_dtypes() -> None:
    assert tf.assert_integer(tf.constant(1)).type == tf.assert_type(1.0, tf.float32).type == "NoOp"
    with pytest.raises(TypeError, match=r"m Expected 'x' to be integer type\. Found: float32"):
        tf.assert_integer(1.0, message="m")
    with pytest.raises(TypeError, match="must be of type float64, got int32"):
        tf.assert_type(tf.constant(1), tf.float64)


async def test_a_shape_is_ensured() -> None:
    x = tf.placeholder(tf.float32, None)
    y = tf.ensure_shape(x, [None, 2])
    assert y.shape == (None, 2)
    assert (await run(y, {x: [[1, 2]]})).tolist() == [[1, 2]]
    with pytest.raises(InvalidArgumentError, match=r"has shape \[1\], not \[\?,2\]"):
        await run(y, {x: [1]})
    with pytest.raises(ValueError, match="cannot be set"):
        tf.ensure_shape(y, [None, 3])


async def test_what_is_not_finite() -> None:
    x = tf.placeholder(tf.float32, [None])
    checked = tf.verify_tensor_all_finite(x, "here")
    y = tf.log(x, name="y")
    everything = tf.add_check_numerics_ops()
    assert (await run(checked, {x: [1]})).tolist() == [1]
    with pytest.raises(InvalidArgumentError, match="here : Tensor had NaN values"):
        await run(checked, {x: [np.nan]})
    await run([y, everything], {x: [1]})
    with pytest.raises(InvalidArgumentError, match="y:0 : Tensor had Inf values"):
        await run(everything, {x: [0]})
    with pytest.raises(ValueError, match="needs a tensor and a message"):
        tf.verify_tensor_all_finite(x)
    with pytest.raises(ValueError, match="both 't' and 'x'"):
        tf.verify_tensor_all_finite(x, "here", x=x)
    tf.cond(x[0] > 0, lambda: 1.0, lambda: 2.0)
    with pytest.raises(ValueError, match="inside of control flow: 'cond"):
        tf.add_check_numerics_ops()
