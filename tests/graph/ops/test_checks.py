"""Print, Assert, check_numerics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.errors import InvalidArgumentError

pytestmark = pytest.mark.asyncio
MATRIX = np.array([[1, 2], [3, 4]])


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
    with pytest.raises(TypeError, match="parameter 'tensor' has DataType int32"):
        tf.check_numerics(1, "x")


@pytest.mark.parametrize(
    ("value", "summarize", "text"),
    [
        (np.float32([1, 2, 3.5, 4, 5]), 3, "[1 2 3.5...]"),
        (7, 3, "[7]"),
        (7, 0, "[...]"),
        (np.array("word", object), 3, "[word]"),
        (np.array(["a", b"b\xff"], object), 3, r"[a b\xff]"),
        (np.array([True, False]), 3, "[1 0]"),
        (np.float32(1e-9), 3, "[1e-09]"),
        (np.float32(123456.789), 3, "[123456.789]"),
        (np.float32(0.1), 3, "[0.1]"),
        (np.float64(1 / 3), 3, "[0.33333333333333331]"),
        (np.float64(0.1), 3, "[0.1]"),
        (np.float16(0.1), 3, "[0.0999755859]"),
        (np.float32([1e20, np.nan, -np.inf]), 3, "[1e+20 nan -inf]"),
        (np.zeros(0), 3, "[]"),
        (MATRIX, 10, "[[1 2][3 4]]"),
        (MATRIX, -1, "[[1 2][3 4]]"),
        (MATRIX, 3, "[[1 2][3...]...]"),
        (MATRIX, 2, "[[1 2]...]"),
        (np.arange(8).reshape(2, 2, 2), 5, "[[[0 1][2 3]][[4...]]...]"),
        (np.arange(8).reshape(2, 2, 2), 4, "[[[0 1][2 3]]...]"),
        (np.arange(8).reshape(2, 2, 2), 3, "[[[0 1][2...]]...]"),
        (MATRIX, 0, "[...]"),
        (np.zeros((2, 0)), 3, "[]"),
        (np.zeros((0, 2)), 3, "[]"),
    ],
)
async def test_values_are_written_as_the_original_writes_them(
    capsys: pytest.CaptureFixture[str], value: Any, summarize: int, text: str
) -> None:
    async with tf.Session() as sess:
        await sess.run(tf.Print(0, [tf.constant(value)], summarize=summarize))
    assert capsys.readouterr().err == f"{text}\n"
