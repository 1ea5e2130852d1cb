"""What gradients of loops keep, and what plans compute of loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.control.loop import Stacks

pytestmark = pytest.mark.asyncio


async def run(fetches: Any, feeds: Any = None) -> Any:
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        return await sess.run(fetches, feeds)


def of_type(type: str) -> list[Any]:
    return [op for op in tf.get_default_graph().get_operations() if op.type == type]


async def test_what_nothing_uses_is_not_computed() -> None:
    def body(i: Any, a: Any, b: Any) -> Any:
        return i + 1, a * 2, tf.check_numerics(b * np.nan, "computed")

    _, a, b = tf.while_loop(lambda i, *_: i < 3, body, [0, 1.0, 5.0])
    assert await run(a) == 8
    with pytest.raises(InvalidArgumentError, match="computed"):
        await run(b)


async def test_only_gradients_keep_what_iterations_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    put = Stacks.put

    def counted(self: Stacks, at: int, values: Any) -> None:
        kept.append(len(values))
        put(self, at, values)

    monkeypatch.setattr(Stacks, "put", counted)
    x = tf.placeholder(tf.float32, [2])
    _, y = tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, tf.tanh(a) * x), [0, x])
    (dx,) = tf.gradients(y, x)
    async with tf.Session() as sess:
        await sess.run(y, {x: [1, 2]})
        assert kept == []
        await sess.run(dx, {x: [1, 2]})
        assert kept == [1] * 3  # of each iteration tanh(a) alone: its gradient needs no more


async def test_what_all_iterations_share_is_not_kept() -> None:
    w = tf.Variable([[0.5, 0.1], [0.2, 0.3]])
    x = tf.placeholder(tf.float32, [2, 2])

    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.matmul(a, tf.nn.softmax(w * 2)) + tf.exp(x)

    _, y = tf.while_loop(lambda i, _: i < 3, body, [0, x])
    tf.gradients(y, [w, x])
    (loop,) = of_type("While")
    assert [t.op.type for t in loop.attrs["stacks"]] == ["Placeholder"]  # the carried value
