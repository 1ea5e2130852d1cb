"""Batches of single examples: order, padding, the last one, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

pytestmark = pytest.mark.asyncio


async def produced(fetch: Any) -> list[Any]:
    """Return the values of a fetch in a monitored session, until the end of the data."""
    found = []
    async with tf.train.MonitoredTrainingSession(log_step_count_steps=None) as sess:
        while not sess.should_stop():
            found.append(await sess.run(fetch))
    return found


def numbers(count: int, epochs: int = 1) -> tf.Tensor:
    return tf.train.range_input_producer(count, epochs, shuffle=False).dequeue()


async def test_batches_are_in_order_and_the_last_partial_one_is_dropped() -> None:
    x = numbers(10)
    batch = tf.train.batch([x, tf.stack([x, x])], 4)
    assert [one.shape.as_list() for one in batch] == [[4], [4, 2]]
    found = await produced(batch)
    assert [x.tolist() for x, _pairs in found] == [[0, 1, 2, 3], [4, 5, 6, 7]]


async def test_the_last_batch_may_be_smaller() -> None:
    batch = tf.train.batch({"x": numbers(10)}, 4, allow_smaller_final_batch=True)
    assert batch["x"].shape.as_list() == [None]
    found = await produced(batch)
    assert [one["x"].tolist() for one in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


async def test_rows_of_many_examples() -> None:
    x = numbers(4)
    batch = tf.train.batch([tf.stack([x, x + 100])], 4, enqueue_many=True)
    assert batch.shape.as_list() == [4]
    assert [one.tolist() for one in await produced(batch)] == [[0, 100, 1, 101], [2, 102, 3, 103]]


async def test_padding_to_the_largest_example() -> None:
    x = numbers(4)
    batch = tf.train.batch([tf.fill([x], x)], 2, dynamic_pad=True, shapes=[[None]])
    assert [one.tolist() for one in await produced(batch)] == [[[0], [1]], [[2, 2, 0], [3, 3, 3]]]


async def test_several_runners_lose_nothing() -> None:
    batch = tf.train.batch([numbers(100, 2)], 10, num_threads=4, capacity=20)
    found = np.concatenate(await produced(batch))
    assert sorted(found) == sorted([*range(100)] * 2)


async def test_several_sources() -> None:
    sources = [{"x": numbers(20)}, {"x": numbers(20) + 100}]
    found = np.concatenate([one["x"] for one in await produced(tf.train.batch_join(sources, 4))])
    assert sorted(found) == [*range(20), *range(100, 120)]


async def test_shuffled_batches_are_mixed_and_whole() -> None:
    batch = tf.train.shuffle_batch([numbers(100)], 10, 60, 40, num_threads=2, seed=1)
    found = np.concatenate(await produced(batch))
    assert sorted(found) == list(range(100))
    assert max(found[:10]) > 15
    tf.reset_default_graph()
    joined = tf.train.shuffle_batch_join(
        [[numbers(15)], [numbers(15)]], 7, 20, 10, 3, allow_smaller_final_batch=True
    )
    found = np.concatenate(await produced(joined))
    assert sorted(found) == sorted([*range(15)] * 2)


async def test_what_is_masked_out_is_left_out() -> None:
    x = numbers(20)
    kept = tf.boolean_mask([x], [tf.equal(x % 3, 0)])
    (found,) = await produced(tf.train.batch([kept], 7, enqueue_many=True, shapes=[[]]))
    assert found.tolist() == [0, 3, 6, 9, 12, 15, 18]


async def test_names_collections_and_summaries_are_tf1s() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.zeros([3])
        assert tf.train.batch([x], 4, capacity=7).op.name == "batch"
        assert tf.train.shuffle_batch([x], 4, 20, 5, num_threads=3, name="mix").op.name == "mix"
        summaries = [one.op.name for one in graph.get_collection(tf.GraphKeys.SUMMARIES)]
        assert summaries == ["batch/fraction_of_7_full", "mix/fraction_over_5_of_15_full"]
        first, second = graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        assert (first.name, second.name) == ("batch/fifo_queue", "mix/random_shuffle_queue")
        assert [op.name for op in second.enqueue_ops] == ["mix/random_shuffle_queue_enqueue"] * 3


def of(*shapes: Any) -> list[tf.Tensor]:
    return [tf.placeholder(tf.float32, shape) for shape in shapes]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: tf.train.batch([], 4), ValueError, "at least one tensor"),
        (lambda: tf.train.batch(tf.zeros([3]), 4), TypeError, "Give a list or a dict"),
        (lambda: tf.train.batch_join([], 4), ValueError, "at least one set of tensors"),
        (lambda: tf.train.batch(of(None), 4), ValueError, "Cannot infer Tensor's rank"),
        (lambda: tf.train.batch(of([None]), 4), ValueError, "shapes"),
        (lambda: tf.train.batch(of([]), 4, enqueue_many=True), ValueError, "rank at least 1"),
        (lambda: tf.train.batch(of([2], [3]), 4, shapes=[[2]]), ValueError, "same length"),
        (lambda: tf.train.batch_join([of([2]), of([3])], 4), ValueError, r"\(2,\) and \(3,\)"),
        (lambda: tf.train.batch_join([of([2]), of([2], [2])], 4), ValueError, "one length"),
        (lambda: tf.train.batch_join([of([]), [1]], 4), TypeError, "types to be consistent"),
        (lambda: tf.train.batch_join([{"a": 1}, {"b": 1}], 4), ValueError, "same keys"),
        (lambda: tf.train.shuffle_batch([1], 4, 10, 10), ValueError, "capacity 10 must be bigger"),
    ],
)
async def test_what_cannot_be_batched_is_refused(make: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        make()
