"""A loop over the elements of stacked tensors, and its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon.tf1.scan_loop import scan_loop

pytestmark = pytest.mark.asyncio


async def run(fetches: Any, feeds: Any = None) -> Any:
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        return await sess.run(fetches, feeds)


def of_type(type: str) -> list[Any]:
    return [op for op in tf.get_default_graph().get_operations() if op.type == type]


async def test_weights_have_one_product_for_all_iterations() -> None:
    w, b = tf.Variable(np.eye(3, dtype=np.float32)), tf.Variable(np.zeros(3, np.float32))
    x = tf.placeholder(tf.float32, [None, 3])

    def body(a: Any, _: Any) -> Any:
        return tf.tanh(tf.nn.xw_plus_b(a, w, b)), ()

    y, _ = scan_loop(body, x, tf.zeros([4]))
    dw, db = tf.gradients(y, [w, b])
    back = of_type("Scan")[-1]
    products = [op for op in back.attrs["branches"][0].get_operations() if op.type == "MatMul"]
    assert len(products) == 2  # of which a plan computes one: that of the carried value
    assert len(of_type("StackedProduct")) == len(of_type("StackedSum")) == 1
    a = x
    for _ in range(4):
        a, _ = body(a, None)
    fed = {x: np.arange(6).reshape(2, 3) / 10}
    for one, other in await run(list(zip([dw, db], tf.gradients(a, [w, b]), strict=True)), fed):
        np.testing.assert_allclose(one, other, rtol=1e-5)


async def test_scan_loop_takes_and_returns_structures() -> None:
    pair = {"x": tf.constant([1.0, 2.0, 3.0]), "n": tf.constant([1, 2, 3])}

    def body(total: Any, element: Any) -> Any:
        after = total["sum"] + element["x"]
        return {"sum": after}, (after * 2, [element["n"]])

    last, (twice, [n]) = scan_loop(body, {"sum": tf.constant(0.0)}, pair, reverse=True)
    got = await run([last["sum"], twice, n])
    assert [got[0], got[1].tolist(), got[2].tolist()] == [6, [12, 10, 6], [1, 2, 3]]
    count, _ = scan_loop(lambda i, _: (i + 1, ()), tf.constant(0), (), trips=7)
    assert await run(count) == 7
    with pytest.raises(ValueError, match="needs elements or trips"):
        scan_loop(lambda i, _: (i, ()), tf.constant(0), ())
    with pytest.raises(ValueError, match=r"1\+ dimensional"):
        scan_loop(lambda i, _: (i, ()), tf.constant(0), tf.constant(1.0))
    with pytest.raises(ValueError, match=r"The carried structure .* becomes"):
        scan_loop(lambda i, _: ((i, i), ()), tf.constant(0), tf.zeros([2]))
