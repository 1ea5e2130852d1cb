"""Print, Assert, check_numerics."""

from __future__ import annotations

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.errors import InvalidArgumentError

pytestmark = pytest.mark.asyncio


async def test_print_writes_and_passes_on(capsys: pytest.CaptureFixture[str]) -> None:
    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    p = tf.Print(x, [x, tf.constant("word")], message="now: ", first_n=2)
    every = tf.Print(x, [x], summarize=-1, first_n=-1)
    async with tf.Session() as sess:
        for _ in range(3):
            assert (await sess.run(p)).tolist() == [1, 2, 3, 4]
        assert capsys.readouterr().err == "now: [1 2 3...][word]\n" * 2
        await sess.run(every)
        assert capsys.readouterr().err == "[1 2 3 4]\n"
        (grad,) = tf.gradients(p * 3.0, [x])
        assert (await sess.run(grad)).tolist() == [3] * 4


async def test_assert_fails_with_its_data() -> None:
    x = tf.placeholder(tf.float32, [])
    check = tf.Assert(x > 0, ["x was", x], name="positive")
    with tf.control_dependencies([check]):
        y = tf.identity(x)
    async with tf.Session() as sess:
        assert await sess.run([check, y], {x: 1}) == [None, 1]
        with pytest.raises(InvalidArgumentError, match=r"assertion failed: \[x was\] \[-1\]") as caught:
            await sess.run(y, {x: -1})
        assert "positive" in caught.value.__notes__[0]
    with pytest.raises(TypeError, match="must be a bool scalar"):
        tf.Assert(x, [])


@pytest.mark.parametrize(
    ("value", "found"), [([1, np.nan], "NaN"), ([np.inf, 1], "Inf"), ([-np.inf, np.nan], "Inf and NaN")]
)
async def test_check_numerics(value: list[float], found: str) -> None:
    x = tf.placeholder(tf.float32, [None])
    y = tf.check_numerics(x, "x is bad", name="check")
    async with tf.Session() as sess:
        assert (await sess.run(y, {x: [1, 1e38]})).tolist() == np.float32([1, 1e38]).tolist()
        assert (await sess.run(y, {x: []})).tolist() == []
        with pytest.raises(
            InvalidArgumentError, match=f"x is bad : Tensor had {found} values"
        ) as caught:
            await sess.run(y, {x: value})
        assert "check" in caught.value.__notes__[0]


async def test_check_numerics_checks_the_gradient() -> None:
    x = tf.placeholder(tf.float32, [])
    (grad,) = tf.gradients(tf.sqrt(tf.check_numerics(x, "x")), [x])
    async with tf.Session() as sess:
        assert await sess.run(grad, {x: 1}) == 0.5
        with pytest.raises(InvalidArgumentError, match="detected in gradient"):
            await sess.run(grad, {x: 0})
    with pytest.raises(TypeError, match="floating"):
        tf.check_numerics(1, "x")
