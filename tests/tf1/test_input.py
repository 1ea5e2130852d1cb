"""Input producers fill queues once per epoch; batches are dequeued in order, padded, shuffled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon.errors import InvalidArgumentError, NotFoundError, OutOfRangeError

pytestmark = pytest.mark.asyncio


async def produced(fetch: Any, count: int | None = None) -> list[Any]:
    """Return the values of a fetch in a monitored session: a given number, or all."""
    found = []
    async with tf.train.MonitoredTrainingSession(log_step_count_steps=None) as sess:
        while not sess.should_stop() and (count is None or len(found) < count):
            found.append(await sess.run(fetch))
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others, "the session's tasks have ended"
    return found


async def test_strings_come_in_order_or_shuffled_in_each_epoch() -> None:
    names = [f"f{i}" for i in range(6)]
    queue = tf.train.string_input_producer(names, num_epochs=2, shuffle=False)
    found = [tf.compat.as_text(one) for one in await produced(queue.dequeue())]
    assert found == names * 2
    tf.reset_default_graph()
    queue = tf.train.string_input_producer(tf.constant(names), num_epochs=3, seed=1)
    found = [tf.compat.as_text(one) for one in await produced(queue.dequeue())]
    epochs = [found[:6], found[6:12], found[12:]]
    assert all(sorted(epoch) == names for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


async def test_without_epochs_it_continues_for_ever() -> None:
    queue = tf.train.range_input_producer(3, shuffle=False)
    assert await produced(queue.dequeue(), 8) == [0, 1, 2, 0, 1, 2, 0, 1]


async def test_slices_of_several_tensors_belong_together() -> None:
    images, labels = np.arange(20.0).reshape(10, 2), np.arange(10)
    image, label = tf.train.slice_input_producer([images, labels], num_epochs=1, seed=3)
    assert image.shape.as_list() == [2]
    found = await produced([image, label])
    assert sorted(int(label) for _image, label in found) == list(range(10))
    assert all((image == images[label]).all() for image, label in found)


async def test_rows_of_a_tensor() -> None:
    queue = tf.train.input_producer(tf.constant([[1, 2], [3, 4]]), num_epochs=1, shuffle=False)
    assert [one.tolist() for one in await produced(queue.dequeue())] == [[1, 2], [3, 4]]


async def test_more_elements_than_the_queue_holds_let_the_training_continue() -> None:
    """The producer of an epoch waits for room without the lock that each training step takes."""
    step = tf.train.create_global_step()
    index = tf.train.range_input_producer(300, num_epochs=2, shuffle=False, capacity=4).dequeue()
    x = tf.train.batch([index], 5, capacity=8)
    train = tf.assign_add(step, 1)
    found = await produced([x, train])
    assert [int(one) for x, _step in found for one in x] == list(range(300)) * 2
    assert found[-1][1] == 120


async def test_epochs_are_counted_in_a_local_variable() -> None:
    limited = tf.train.limit_epochs(tf.constant(5), 2)
    assert [v.op.name for v in tf.local_variables()] == ["limit_epochs/epochs"]
    assert tf.global_variables() == []
    async with tf.Session() as sess:
        await sess.run(tf.local_variables_initializer())
        assert [await sess.run(limited) for _ in range(2)] == [5, 5]
        with pytest.raises(OutOfRangeError, match="Reached limit of 2"):
            await sess.run(limited)
        assert await sess.run(tf.local_variables()[0]) == 2
    assert tf.train.limit_epochs(limited) is limited


async def test_names_collections_and_summaries_are_tf1s() -> None:
    with tf.Graph().as_default() as graph:
        queue = tf.train.string_input_producer(["a"], num_epochs=1, capacity=10)
        assert queue.name == "input_producer"
        (summary,) = graph.get_collection(tf.GraphKeys.SUMMARIES)
        assert summary.op.name == "input_producer/fraction_of_10_full"
        (runner,) = graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        assert runner.name == "input_producer"
        assert runner.enqueue_ops[0].name == "input_producer/input_producer_EnqueueMany"
        (epochs,) = tf.local_variables()
        assert epochs.op.name == "input_producer/limit_epochs/epochs"
        image, _ = tf.train.slice_input_producer([tf.zeros([5, 2]), tf.zeros([5])], name="mine")
        assert image.op.name == "mine/GatherV2"
        assert len(graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)) == 2


async def test_files_are_matched_once(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name)
    names = tf.train.match_filenames_once(str(tmp_path / "*.txt"))
    queue = tf.train.string_input_producer(names, num_epochs=2, shuffle=False)
    _, value = tf.WholeFileReader().read(queue)
    assert [bytes(one) for one in await produced(value)] == [b"a", b"b"] * 2
    tf.reset_default_graph()
    names = tf.train.match_filenames_once(str(tmp_path / "*.none"))
    with pytest.raises(InvalidArgumentError, match="requires a non-null input tensor"):
        await produced(tf.train.string_input_producer(names).dequeue())


async def test_a_missing_file_ends_the_session_with_its_name(tmp_path: Path) -> None:
    queue = tf.train.string_input_producer([str(tmp_path / "absent")])
    _, value = tf.TextLineReader().read(queue)
    with pytest.raises(NotFoundError, match="absent; No such file or directory"):
        await produced(value)
    tf.reset_default_graph()
    queue = tf.train.string_input_producer([str(tmp_path / "absent")])
    _, value = tf.TextLineReader().read(queue)
    with pytest.raises(NotFoundError, match="absent; No such file or directory"):
        await produced(tf.train.batch([value], 2))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: tf.train.string_input_producer([]), "requires a non-null input tensor"),
        (lambda: tf.train.slice_input_producer([]), "Expected at least one tensor"),
        (lambda: tf.train.limit_epochs(tf.zeros([]), 0), "num_epochs must be > 0 not 0"),
        (lambda: tf.train.input_producer(tf.placeholder(tf.int32, [3, None])), "`element_shape` must"),
        (lambda: tf.train.string_input_producer(tf.zeros([3])), "string"),
    ],
)
async def test_what_cannot_be_produced_is_refused(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


# -- batches


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


async def test_names_and_summaries_of_batches_are_tf1s() -> None:
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


async def test_batch_join_pads_where_one_of_the_sources_varies() -> None:
    varies = tf.placeholder_with_default([1, 2], [None])
    for sources in ([[varies], [[3, 4, 5]]], [[[3, 4, 5]], [varies]]):
        batched = tf.train.batch_join(sources, 2, dynamic_pad=True)
        assert batched.shape.as_list() == [2, None]
    (rows,) = await produced(batched, 1)
    assert sorted(map(len, rows)) in ([2, 2], [3, 3])


@pytest.mark.parametrize("many", [False, True])
async def test_a_maybe_batch_has_the_examples_to_keep(many: bool) -> None:
    x = numbers(12)
    example = tf.stack([x, x + 100]) if many else x
    kept = tf.equal(example % 3, 0)
    found = await produced(
        tf.train.maybe_batch([example], kept, 2, enqueue_many=many, allow_smaller_final_batch=True)
    )
    values = [int(value) for batch in found for value in batch]
    wanted = [v for i in range(12) for v in ([i, i + 100] if many else [i]) if v % 3 == 0]
    assert values == wanted


async def test_maybe_batches_of_several_sources_and_in_random_order() -> None:
    x = numbers(8)
    joined = tf.train.maybe_batch_join([{"x": x}, {"x": x}], x < 3, 3, capacity=9)
    assert joined["x"].op.name == "maybe_batch_join"
    tf.reset_default_graph()
    x = tf.stack([numbers(40), 0])
    shuffled = tf.train.maybe_shuffle_batch([x], 5, 30, 10, tf.reduce_any(x > 0), enqueue_many=True)
    (first, *_) = await produced(shuffled, 1)
    assert first.shape == (5,)
    tf.reset_default_graph()
    x = numbers(40)
    shuffled = tf.train.maybe_shuffle_batch_join([[x], [x]], 4, 30, 10, x > 20, seed=1)
    assert all((batch > 20).all() for batch in await produced(shuffled))
