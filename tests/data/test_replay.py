"""A replay buffer: its items, its draws, and its state."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon.data import ReplayBuffer
from asyncmon.data.sum_tree import SumTree

pytestmark = pytest.mark.asyncio


def item(number: int) -> dict[str, Any]:
    return {"x": np.full(3, number, np.float32), "pair": (number, number / 2)}


def filled(count: int, capacity: int = 10, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, seed=1, **options)
    for number in range(count):
        assert buffer.add(item(number)) == number
    return buffer


def draws(buffer: ReplayBuffer, count: int = 5) -> list[int]:
    return np.concatenate([buffer.sample(4).indices for _ in range(count)]).tolist()


async def test_a_batch_is_stacked_like_the_items() -> None:
    batch, indices, weights = filled(7).sample(5)
    assert batch["x"].shape == (5, 3)
    assert batch["x"].dtype == np.float32
    assert isinstance(batch["pair"], tuple)
    np.testing.assert_array_equal(batch["x"][:, 0], indices)
    np.testing.assert_array_equal(batch["pair"][1], indices / 2)
    np.testing.assert_array_equal(weights, np.ones(5))


async def test_the_oldest_items_leave() -> None:
    buffer = filled(25)
    assert (len(buffer), buffer.added) == (10, 25)
    batch, indices, _ = buffer.sample(300)
    assert set(indices.tolist()) == set(range(15, 25))
    np.testing.assert_array_equal(batch["x"][:, 0], indices)


@given(st.lists(st.integers(0, 25), max_size=8), st.integers(1, 12))
@settings(max_examples=50, deadline=None)
async def test_many_at_once_are_as_one_by_one(counts: list[int], capacity: int) -> None:
    one, many = ReplayBuffer(capacity, seed=1), ReplayBuffer(capacity, seed=1)
    number = 0
    for count in counts:
        numbers = np.arange(number, number + count)
        for n in numbers.tolist():
            one.add({"n": n})
        assert many.extend({"n": numbers}).tolist() == numbers.tolist()
        number += count
    assert len(one) == len(many) == min(number, capacity)
    if number:
        np.testing.assert_array_equal(one.sample(50).batch["n"], many.sample(50).batch["n"])


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"x": np.zeros(4, np.float32), "pair": (1, 0.5)}, ValueError),
        ({"x": np.zeros(3, np.float32)}, ValueError),
        ({"x": np.zeros(3, complex), "pair": (1, 0.5)}, ValueError),
        ({"x": "text", "pair": (1, 0.5)}, TypeError),
        ({"x": object(), "pair": (1, 0.5)}, TypeError),
        ({"x": [1.0, 2.0, 3.0], "pair": (1, 0.5)}, TypeError),
    ],
)
async def test_another_item_is_refused(wrong: Any, error: type[Exception]) -> None:
    buffer = filled(3)
    with pytest.raises(error, match=r"item|Items"):
        buffer.add(wrong)
    assert buffer.added == 3


async def test_keys_may_come_in_any_order() -> None:
    buffer = ReplayBuffer(2, seed=1)
    buffer.add({"a": 1, "b": 2})
    buffer.add({"b": 4, "a": 3})
    batch, indices, _ = buffer.sample(20)
    np.testing.assert_array_equal(batch["a"], 2 * indices + 1)
    np.testing.assert_array_equal(batch["b"], 2 * indices + 2)


async def test_priorities_decide() -> None:
    buffer = ReplayBuffer(4, sampling="prioritised", alpha=1.0, beta=1.0, seed=1)
    for number, priority in enumerate([0.0, 1.0, 3.0]):
        buffer.add(number, priority)
    _, indices, weights = buffer.sample(20_000)
    counts = np.bincount(indices, minlength=3) / 20_000
    np.testing.assert_allclose(counts, [0, 0.25, 0.75], atol=0.02)
    # (3 * 1/4) ** -1 and (3 * 3/4) ** -1, divided by the larger
    np.testing.assert_allclose(weights, np.where(indices == 1, 1.0, 1 / 3))
    buffer.update([1, 2], [0.0, 0.0])
    buffer.update([0], [2.0])
    assert set(buffer.sample(100).indices.tolist()) == {0}


async def test_a_new_item_has_the_highest_priority() -> None:
    buffer = ReplayBuffer(3, sampling="prioritised", alpha=1.0, seed=1)
    buffer.add(0, 9.0)
    buffer.update([0], [1e-9])
    buffer.add(1)
    assert set(buffer.sample(50).indices.tolist()) == {1}


async def test_an_update_of_an_item_that_has_left_changes_nothing() -> None:
    buffer = ReplayBuffer(2, sampling="prioritised", alpha=1.0, seed=1)
    for number in range(3):
        buffer.add(number)
    buffer.update([0], [1e9])
    assert set(buffer.sample(50).indices.tolist()) == {1, 2}
    with pytest.raises(ValueError, match="from 0 to 2"):
        buffer.update([3], [1.0])
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="finite and 0 or more"):
            buffer.update([2], [wrong])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.integers(0, 99))
@settings(max_examples=100, deadline=None)
async def test_a_sum_tree_finds_what_a_running_sum_finds(values: list[float], seed: int) -> None:
    tree, numbers = SumTree(len(values)), np.array(values)
    tree.set(np.arange(len(values)), numbers)
    np.testing.assert_allclose(tree.total, numbers.sum())
    found = tree.find(np.random.default_rng(seed).random(100))
    assert found.max() < len(values)
    if numbers.sum() > 0:
        assert (numbers[found] > 0).all()
    below = np.cumsum(numbers) / max(tree.total, 1e-300)
    if (numbers > 1).all():
        points = (below - numbers / tree.total / 2)[:20]
        np.testing.assert_array_equal(tree.find(points), np.arange(len(points)))


@pytest.mark.parametrize("sampling", ["uniform", "prioritised"])
async def test_a_loaded_buffer_draws_the_same(sampling: Any) -> None:
    buffer = filled(17, sampling=sampling)
    buffer.sample(3)
    other = ReplayBuffer(10, sampling=sampling, seed=99)
    other.load_state_dict(buffer.state_dict())
    assert draws(other) == draws(buffer)
    for one in (buffer, other):
        one.add(item(17))
    np.testing.assert_array_equal(other.sample(9).batch["x"], buffer.sample(9).batch["x"])
    with pytest.raises(ValueError, match="capacity of 11"):
        ReplayBuffer(11, sampling=sampling).load_state_dict(buffer.state_dict())


async def test_a_state_keeps_what_is_overwritten_later() -> None:
    buffer = filled(10)
    state = buffer.state_dict()
    for number in range(10, 17):
        buffer.add(item(number))
    other = ReplayBuffer(10, seed=1)
    other.load_state_dict(state)
    assert set(other.sample(200).batch["x"][:, 0].tolist()) == set(range(10))


async def test_only_changed_segments_have_new_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncmon.data.replay._SEGMENT_BYTES", 1)
    buffer = filled(10)

    def parts() -> list[str]:
        return buffer.state_dict()["parts"].split()

    before = parts()
    assert len(before) == 10
    buffer.sample(3)
    assert parts() == before
    buffer.add(item(10))
    assert [a == b for a, b in zip(before, parts(), strict=True)] == [False] + [True] * 9


async def test_batches_wait_for_items_of_any_thread() -> None:
    buffer = ReplayBuffer(10, seed=1)
    batches = buffer.batches(4, least=2)
    assert buffer.batches(4, least=2) is batches
    waiting = asyncio.create_task(anext(batches))
    cancelled = asyncio.create_task(anext(batches))
    await asyncio.sleep(0)
    cancelled.cancel()
    buffer.add(item(0))
    await asyncio.sleep(0)
    assert not waiting.done()
    thread = threading.Thread(target=buffer.add, args=[item(1)])
    thread.start()
    assert (await waiting).batch["x"].shape == (4, 3)
    thread.join()
    assert buffer._waiting == {}


@pytest.mark.parametrize(("size", "is_in_thread"), [(32, False), (40_000, True)])
async def test_only_a_large_batch_lets_other_tasks_run(
    turns: list[None], size: int, is_in_thread: bool
) -> None:
    batches = filled(1).batches(size, least=1)
    await asyncio.sleep(0)
    before = len(turns)
    await anext(batches)
    assert (len(turns) > before) == is_in_thread


async def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ReplayBuffer(0)
    with pytest.raises(ValueError, match="'uniform' or 'prioritised'"):
        ReplayBuffer(1, sampling="other")  # type: ignore[arg-type]  # refused
    with pytest.raises(ValueError, match="beta from 0 to 1"):
        ReplayBuffer(1, beta=2)
    with pytest.raises(ValueError, match="empty"):
        ReplayBuffer(1).sample(1)
    with pytest.raises(ValueError, match="1 item or more"):
        filled(1).sample(0)
    with pytest.raises(ValueError, match="least is from 1"):
        ReplayBuffer(3).batches(2, least=4)
    with pytest.raises(ValueError, match="no priorities"):
        filled(1).update([0], [1.0])


@pytest.mark.parametrize("sampling", ["uniform", "prioritised"])
async def test_loaded_items_are_those_of_the_state_before_and_after_changes(sampling: Any) -> None:
    """Items that were loaded are copied one segment at a time, when they are drawn or replaced."""
    size = 1 << 17  # of numbers: an item has 1 MB, a segment 4 items
    buffer = ReplayBuffer(20, seed=1, sampling=sampling)
    for number in range(16):
        buffer.add(np.full(size, number, np.float64))
    loaded = ReplayBuffer(20, sampling=sampling)
    loaded.load_state_dict(buffer.state_dict())
    again = ReplayBuffer(20, sampling=sampling)
    again.load_state_dict(loaded.state_dict())  # before any copy
    for one in (buffer, loaded, again):
        for number in range(16, 26):
            one.add(np.full(size, number, np.float64))
    first = [each.sample(8) for each in (buffer, loaded, again)]
    for batch, indices, _ in first:
        np.testing.assert_array_equal(batch[:, 0], indices)
        np.testing.assert_array_equal(indices, first[0].indices)


async def test_state_of_loaded_items_keeps_them_when_they_are_replaced() -> None:
    loaded = ReplayBuffer(4)
    loaded.load_state_dict(filled(4, 4).state_dict())
    state = loaded.state_dict()
    for number in range(10, 14):
        loaded.add(item(number))
    back = ReplayBuffer(4)
    back.load_state_dict(state)
    assert sorted(set(back.sample(100).batch["x"][:, 0].tolist())) == [0, 1, 2, 3]


async def test_first_batch_after_a_load_is_that_of_the_saved_buffer() -> None:
    saved = filled(7)
    loaded = ReplayBuffer(10)
    loaded.load_state_dict(saved.state_dict())
    one, other = await anext(saved.batches(4)), await anext(loaded.batches(4))
    np.testing.assert_array_equal(one.batch["x"], other.batch["x"])
    np.testing.assert_array_equal(one.indices, other.indices)


async def test_draws_do_not_change_what_a_save_of_the_batches_has() -> None:
    buffer = filled(4)
    batches = buffer.batches(2)
    before = batches.revision
    await anext(batches)
    assert batches.revision == before
    buffer.add(item(4))
    assert batches.revision > before
