"""Strings are bytes, in the graph and in results; a str is encoded as UTF-8 where it enters."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncmon.graph as tf
from asyncmon import Saver, errors, load_checkpoint, summary
from asyncmon.hooks.logging_tensor import _text

pytestmark = pytest.mark.asyncio

WORD = "wörd"
BYTES = WORD.encode()


async def run(fetches: Any, feeds: Any = None) -> Any:
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        return await sess.run(fetches, feeds)


async def test_a_str_equals_its_bytes() -> None:
    same = tf.equal(tf.constant(["a", WORD]), tf.constant([b"a", BYTES]))
    assert (await run(same)).tolist() == [True, True]


async def test_constants_feeds_and_variables_hold_bytes() -> None:
    p, v = tf.placeholder(tf.string), tf.Variable(["u", WORD])
    for fed in ([WORD, b"b"], np.array([WORD, "b"]), np.array([WORD, b"b"], object)):
        assert (await run(p, {p: fed})).tolist() == [BYTES, b"b"]
        assert fed[0] == WORD
    assert (await run(v)).tolist() == [b"u", BYTES]
    assert (await run(v.assign([WORD, "x"]))).tolist() == [BYTES, b"x"]
    assert await run(tf.constant(WORD)) == BYTES
    assert await run(tf.placeholder_with_default(WORD, [])) == BYTES


async def test_a_string_by_itself_keeps_its_last_zeros_through_ops() -> None:
    p = tf.placeholder(tf.string, [])
    word = tf.add(p, b"\0")
    fetches = [
        word,
        tf.reshape(word, [1]),
        tf.expand_dims(word, 0),
        tf.stack([word, word]),
        tf.zeros_like(word),
        tf.equal(word, "a"),
        tf.cond(tf.equal(word, b"a\0"), lambda: word, lambda: tf.constant("")),
    ]
    found = await run(fetches, {p: "a"})
    assert [np.asarray(x, object).tolist() for x in found] == [
        b"a\0", [b"a\0"], [b"a\0"], [b"a\0", b"a\0"], b"", False, b"a\0",
    ]  # fmt: skip


async def test_a_py_func_gets_bytes_and_may_return_str() -> None:
    shout = tf.py_func(lambda x, y: [x.decode() + "!", *y], [WORD, ["a", b"b"]], tf.string)
    assert (await run(shout)).tolist() == [f"{WORD}!".encode(), b"a", b"b"]
    with pytest.raises(errors.InvalidArgumentError, match="is no string"):
        await run(tf.py_func(lambda: [1], [], tf.string))


async def test_queues_hold_bytes() -> None:
    many = tf.FIFOQueue(3, [tf.string], [[]])
    async with tf.Session() as sess:
        await sess.run(many.enqueue_many([[WORD, b"c\0"]]))
        assert await sess.run(many.dequeue()) == BYTES
        assert (await sess.run(many.dequeue_many(1))).tolist() == [b"c\0"]


async def test_checkpoints_hold_bytes(tmp_path: Any) -> None:
    v = tf.Variable(["a", WORD], name="v")
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        saver = Saver()
        path = await saver.save(sess, str(tmp_path / "m"))
        await sess.load({"v": [WORD, "b"]})
        assert (await sess.run(v)).tolist() == [BYTES, b"b"]
        await saver.restore(sess, path)
        assert (await sess.run(v)).tolist() == [b"a", BYTES]
        with pytest.raises(errors.InvalidArgumentError, match="'v' has dtype string"):
            await sess.load({"v": [1, 2]})
    reader = await load_checkpoint(str(tmp_path))
    assert (await reader.get_tensor("v")).tolist() == [b"a", BYTES]


async def test_a_text_summary_has_the_text() -> None:
    made = summary.Summary.FromString(await run(summary.text("t", tf.add(tf.constant(WORD), "!"))))
    assert made.value[0].tensor is not None
    assert list(made.value[0].tensor.string_val) == [f"{WORD}!".encode()]


async def test_logged_strings_are_text() -> None:
    assert _text(BYTES) == WORD
    assert _text(np.array([BYTES, b"b"], object)) == f"['{WORD}' 'b']"
    assert _text(b"\xff") == "\\xff"


@given(st.lists(st.text() | st.binary(), max_size=4))
async def test_any_text_comes_back_as_its_bytes(items: list[str | bytes]) -> None:
    expected = [item.encode() if isinstance(item, str) else item for item in items]
    with tf.Graph().as_default():
        p = tf.placeholder(tf.string, [None])
        async with tf.Session() as sess:
            fetches = [p, tf.identity(p), tf.constant(items, tf.string)]
            assert [x.tolist() for x in await sess.run(fetches, {p: items})] == [expected] * 3
