"""``map_fn``, ``scan``, ``foldl``, ``foldr``, ``case``: values, shapes, gradients, refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

pytestmark = pytest.mark.asyncio
X = np.arange(6, dtype=np.float32).reshape(3, 2) + 1


async def run(fetches: Any, feeds: Any = None) -> Any:
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        return await sess.run(fetches, feeds)


async def test_map_fn_of_one_tensor() -> None:
    x = tf.placeholder(tf.float32, [None, 2])
    y = tf.map_fn(lambda row: row * 2, x)
    assert y.shape.as_list() == [None, 2]
    assert (await run(y, {x: X})).tolist() == (X * 2).tolist()
    assert tf.map_fn(lambda row: row[0], tf.constant(X)).shape.as_list() == [3]
    assert tf.map_fn(lambda row: row, x, infer_shape=False).shape.ndims is None


async def test_map_fn_of_structures() -> None:
    pair = {"a": tf.constant([1, 2, 3]), "b": tf.constant(X)}
    total = tf.map_fn(lambda e: tf.cast(e["a"], tf.float32) * e["b"], pair, dtype=tf.float32)
    parts = tf.map_fn(lambda e: (e, [e > 2]), np.array([1, 2, 3]), dtype=(tf.int64, [tf.bool]))
    got, (same, [large]) = await run([total, parts])
    assert got.tolist() == (X * [[1], [2], [3]]).tolist()
    assert same.tolist() == [1, 2, 3]
    assert same.dtype == np.int64
    assert large.tolist() == [False, False, True]


async def test_map_fn_of_nothing() -> None:
    x = tf.placeholder(tf.float32, [None, 2])
    assert (await run(tf.map_fn(lambda row: row * 2, x), {x: X[:0]})).shape == (0, 2)


async def test_map_fn_of_other_numbers_of_elements_is_refused() -> None:
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    with pytest.raises(tf.errors.InvalidArgumentError, match="of 2 iterations is given 3"):
        await run(tf.map_fn(lambda e: e[0] + e[1], (x, y), dtype=tf.float32), {x: [1, 2], y: [1, 2, 3]})
    with pytest.raises(ValueError, match="2 and 3"):
        tf.map_fn(lambda e: e[0] + e[1], (tf.ones(2), tf.ones(3)), dtype=tf.float32)


async def test_map_fn_returns_one_shape() -> None:
    n = tf.placeholder(tf.int32, [None])
    y = tf.map_fn(lambda i: tf.ones([i]), n, dtype=tf.float32)
    assert (await run(y, {n: [2, 2]})).shape == (2, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have one shape"):
        await run(y, {n: [1, 2]})


async def test_map_fn_has_gradients_of_what_it_uses() -> None:
    w, x = tf.Variable(X[:2].T), tf.placeholder(tf.float32, [None, 2])
    y = tf.reduce_sum(tf.map_fn(lambda row: tf.tanh(tf.reduce_sum(w * row, 1)), x) ** 2)
    straight = tf.reduce_sum(tf.tanh(tf.matmul(x, w, transpose_b=True)) ** 2)
    got = await run([tf.gradients(y, [w, x]), tf.gradients(straight, [w, x])], {x: X / 20})
    for one, other in zip(*got, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert tf.gradients(tf.map_fn(lambda row: row * 2, x, back_prop=False), x) == [None]


async def test_map_fn_draws_for_each_element() -> None:
    drawn = await run(tf.map_fn(lambda _: tf.random_uniform([]), tf.zeros([4])))
    assert len(set(drawn.tolist())) == 4


async def test_map_fn_in_map_fn() -> None:
    x = tf.constant(X)
    y = tf.map_fn(lambda row: tf.map_fn(lambda e: e * tf.reduce_sum(row), row), x)
    (dx,) = tf.gradients(y, x)
    sums = X.sum(1, keepdims=True)
    got, grad = await run([y, dx])
    np.testing.assert_allclose(got, X * sums)
    np.testing.assert_allclose(grad, np.broadcast_to(2 * sums, X.shape))


async def test_scan() -> None:
    x = tf.placeholder(tf.float32, [None, 2])
    sums, back = tf.scan(lambda a, e: a + e, x), tf.scan(lambda a, e: a + e, x, reverse=True)
    counted = tf.scan(lambda a, e: (a[0] + 1, a[1] * e), x, (0, np.ones(2, np.float32)))
    totals = tf.scan(lambda a, e: a + tf.reduce_sum(e), x, initializer=10.0, reverse=True)
    assert sums.shape.as_list() == [None, 2]
    got = await run([sums, back, counted, totals], {x: X})
    np.testing.assert_array_equal(got[0], X.cumsum(0))
    np.testing.assert_array_equal(got[1], X[::-1].cumsum(0)[::-1])
    assert got[2][0].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(got[2][1], X.cumprod(0))
    assert got[3].tolist() == [31, 28, 21]
    one = await run([sums, back], {x: X[:1]})
    assert one[0].tolist() == one[1].tolist() == X[:1].tolist()


@pytest.mark.parametrize("reverse", [False, True])
async def test_gradients_of_scan(reverse: bool) -> None:
    w, x = tf.Variable([[0.5, 0.1], [-0.2, 0.3]]), tf.placeholder(tf.float32, [None, 2])
    start = tf.constant([0.1, 0.2])

    def step(a: Any, e: Any) -> Any:
        return tf.tanh(tf.squeeze(tf.matmul(a[None], w), 0) + e)

    def straight() -> Any:
        a, found = start, []
        for i in (2, 1, 0) if reverse else (0, 1, 2):
            a = step(a, x[i])
            found.append(a)
        return tf.stack(found[::-1] if reverse else found)

    weights = tf.constant(X)
    made = [tf.scan(step, x, start, reverse=reverse), straight()]
    grads = [tf.gradients(y * weights, [w, x, start]) for y in made]
    second = [tf.gradients(g[1] ** 2, [w, x, start]) for g in grads]
    got = await run([grads, second], {x: X / 10})
    for one, other in got:
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


async def test_folds() -> None:
    x = tf.placeholder(tf.float32, [None])
    left, right = tf.foldl(lambda a, e: a - e, x), tf.foldr(lambda a, e: a - e, x)
    started = tf.foldr(lambda a, e: (a[0] * 2 + e, a[1] + 1), x, (0.5, 0))  # ((0.5*2 + 4)*2 + 2)*2 + 1
    feeds = {x: [1.0, 2.0, 4.0]}
    assert await run([left, right, started], feeds) == [-5, 1, (25, 3)]
    assert (await run(tf.gradients([left, right], x), feeds))[0].tolist() == [0, -2, 0]
    assert left.shape.as_list() == []


async def test_refusals() -> None:
    wrong: Any = 3
    x: Any = tf.constant(X)
    for function in (tf.map_fn, tf.scan, tf.foldl, tf.foldr):
        with pytest.raises(TypeError, match="fn must be callable"):
            function(wrong, x)
        with pytest.raises(ValueError, match=r"1\+ dimensional Tensor, not a scalar"):
            function(lambda *_: x, 1.0)
    with pytest.raises(ValueError, match="must return the structure"):
        tf.map_fn(lambda row: (row, row), x)
    with pytest.raises(TypeError, match=r"should be of type float32\. Pass dtype=int32"):
        tf.map_fn(lambda row: tf.cast(row, tf.int32), x)
    with pytest.raises(TypeError, match="type float32, but has type int32"):
        tf.scan(lambda a, _: tf.cast(a, tf.int32), x)
    with pytest.raises(ValueError, match="is not an invariant"):
        tf.scan(lambda a, _: tf.concat([a, a], 0), x)
    with pytest.raises(ValueError, match="must return the structure"):
        tf.foldl(lambda a, _: a[0], x, (0, 1))


async def test_stacking_takes_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0
    empty = np.empty

    def counted(shape: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal copied
        copied += int(np.prod(shape))
        return empty(shape, *args, **kwargs)

    monkeypatch.setattr("asyncmon.graph.control.loop.np.empty", counted)
    await run(tf.scan(lambda a, e: a + e, tf.zeros([100, 3]), tf.zeros([3])))
    assert copied == 300


async def test_strings_go_through_as_bytes() -> None:
    words = tf.constant(["a", "b\0"])
    made = [
        tf.map_fn(lambda x: x + "!", words),
        tf.map_fn(lambda x: tf.reshape(x, [1]), words),
        tf.map_fn(lambda _: tf.constant("z"), tf.constant([1, 2]), dtype=tf.string),
        tf.scan(lambda a, x: a + x, words),
        tf.foldl(lambda a, x: a + x, words),
    ]
    assert [np.asarray(x, object).tolist() for x in await run(made)] == [
        [b"a!", b"b\0!"], [[b"a"], [b"b\0"]], [b"z", b"z"], [b"a", b"ab\0"], b"ab\0",
    ]  # fmt: skip


async def test_functions_may_wait_and_change_variables() -> None:
    async def doubled(x: Any) -> Any:
        await asyncio.sleep(0)
        return x * 2

    v = tf.Variable(0.0)

    def body(e: Any) -> Any:
        waited = tf.py_func(doubled, [e], tf.float32)
        waited.set_shape([])
        return waited * v.assign_add(1.0)

    x = tf.placeholder(tf.float32, [None])
    y = tf.map_fn(body, x)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert (await sess.run(y, {x: [1, 2, 3]})).tolist() == [2, 8, 18]
        assert await sess.run(v) == 3
        assert (await sess.run(y, {x: [1]})).tolist() == [8]


async def test_an_error_in_an_iteration_names_its_node() -> None:
    x = tf.placeholder(tf.float32, [None, 2])
    n = tf.placeholder(tf.int32, [])
    y = tf.map_fn(lambda row: tf.reshape(row, [n]), x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Reshape"):
        await run(y, {x: X, n: 3})


async def test_names_and_strings() -> None:
    words = tf.constant([b"a", b"bc"])
    twice = tf.map_fn(lambda word: tf.py_func(lambda w: w + w, [word], tf.string), words)
    assert (await run(twice)).tolist() == [b"aa", b"bcbc"]
    assert tf.map_fn(lambda e: e, words, name="mine").op.name.startswith("mine/")


# -- case


async def values(result: Any, a: Any, b: Any) -> list[Any]:
    """Return the result for each pair of truth values, False first; the name of an error for one."""
    found: list[Any] = []
    async with tf.Session() as sess:
        for first in (False, True):
            for second in (False, True):
                try:
                    found.append(await sess.run(result, {a: first, b: second}))
                except tf.errors.InvalidArgumentError as error:
                    found.append(str(error).split(" evaluated")[0].split("[")[-1])
    return found


def predicates() -> tuple[Any, Any]:
    return tf.placeholder(tf.bool, [], "a"), tf.placeholder(tf.bool, [], "b")


def one() -> Any:
    return tf.constant(1)


def two() -> Any:
    return tf.constant(2)


def three() -> Any:
    return tf.constant(3)


async def test_the_first_true_predicate_chooses() -> None:
    a, b = predicates()
    assert await values(tf.case([(a, one), (b, two)], default=three), a, b) == [3, 2, 1, 1]
    assert await values(tf.case({b: two, a: one}, three), a, b) == [3, 2, 1, 1]


async def test_no_default() -> None:
    a, b = predicates()
    none = "None of the conditions"
    assert await values(tf.case([(a, one), (b, two)]), a, b) == [none, 2, 1, 1]
    assert await values(tf.case([(a, one)]), a, b) == [none, none, 1, 1]


async def test_exclusive() -> None:
    a, b = predicates()
    several = "More than one condition"
    chosen = tf.case([(a, one), (b, two)], default=three, exclusive=True)
    assert await values(chosen, a, b) == [3, 2, 1, several]
    assert await values(tf.case([(a, one)], exclusive=True, default=two), a, b) == [2, 2, 1, 1]


async def test_only_the_chosen_function_runs() -> None:
    a, b = predicates()
    v = tf.Variable(0)
    chosen = tf.case([(a, lambda: v.assign_add(1)), (b, lambda: v.assign_add(10))], lambda: v + 0)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run(chosen, {a: False, b: True}) == 10
        assert await sess.run(chosen, {a: True, b: True}) == 11
        assert await sess.run(chosen, {a: False, b: False}) == 11


async def test_structures_and_strict() -> None:
    a, b = predicates()
    pair = tf.case([(a, lambda: (tf.constant(1), [tf.constant(2)]))], lambda: (three(), [three()]))
    assert await values(pair, a, b) == [(3, [3])] * 2 + [(1, [2])] * 2
    single = [(a, lambda: [one()]), (b, lambda: [two()])]
    assert await values(tf.case(single, lambda: [three()]), a, b) == [3, 2, 1, 1]
    assert await values(tf.case(single, lambda: [three()], strict=True), a, b) == [[3], [2], [1], [1]]


async def test_gradients() -> None:
    a, b = predicates()
    x = tf.constant(3.0)
    y = tf.case([(a, lambda: x * x), (b, lambda: 2 * x)], lambda: x, exclusive=True)
    assert await values(tf.gradients(y, x)[0], a, b) == [1, 2, 6, "More than one condition"]


async def test_case_refuses() -> None:
    a, _ = predicates()
    wrong: Any = 3
    refused: list[tuple[Any, Any, str]] = [
        (wrong, None, "must be a list, tuple, or dict"),
        ([wrong], None, "must be a 2-tuple"),
        ([(a, one, two)], None, "must be a 2-tuple"),
        ([(True, one)], None, "pred must be a Tensor"),
        ([(tf.constant(1), one)], None, "pred must be Tensor of type bool"),
        ([(a, wrong)], None, "must be callable"),
        ([(a, one)], wrong, "default must be callable"),
    ]
    for pairs, default, text in refused:
        with pytest.raises(TypeError, match=text):
            tf.case(pairs, default)
    with pytest.raises(ValueError, match="at least one pair"):
        tf.case([])
    with pytest.raises(ValueError, match="must have the same type"):
        tf.case([(a, one)], lambda: tf.constant(1.0))
