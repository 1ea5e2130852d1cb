"""``case``: which function is chosen, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import asyncmon.tf1 as tf

pytestmark = pytest.mark.asyncio


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


async def test_refusals() -> None:
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
