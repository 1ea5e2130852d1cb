"""Work shared among threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.numerics.parallel import (
    Team,
    is_splitting,
    parallel_for,
    split_products,
    team_seconds,
    using_team,
)


@pytest.fixture
def team() -> Iterator[Team]:
    team = Team(1, "help")
    yield team
    team.close()


def test_every_call_is_made_once_with_and_without_helpers(team: Team) -> None:
    for helpers in (None, team):
        done: list[int] = []
        with using_team(helpers):
            parallel_for(partial(done.append, i) for i in range(100))
        assert sorted(done) == list(range(100))
    parallel_for([])


def test_helpers_take_part_and_it_is_known_for_how_long(team: Team) -> None:
    both = threading.Barrier(2, timeout=10)  # passed only when two threads are at work

    def work() -> None:
        both.wait()
        sum(range(10_000))

    with using_team(team):
        parallel_for([work, work])
        assert team_seconds() > 0
    assert team_seconds() == 0


class CountingTeam(Team):
    def __init__(self) -> None:
        super().__init__(0, "counting")
        self.batches = 0

    def run_all(self, calls: Iterable[Callable[[], object]]) -> float:
        self.batches += 1
        return super().run_all(calls)


def test_a_team_helps_one_thread_inside_with_only() -> None:
    team = CountingTeam()
    with using_team(team):
        with using_team(None):
            parallel_for([int])
        assert team.batches == 0
        parallel_for([int])
        assert team.batches == 1
        thread = threading.Thread(target=parallel_for, args=([int],))
        thread.start()
        thread.join()
    parallel_for([int])
    assert team.batches == 1


def test_errors_come_out_and_end_the_rest() -> None:
    def fail() -> None:
        raise ValueError("no")

    for helpers in (None, Team(0, "nobody")):
        done: list[int] = []
        with using_team(helpers), pytest.raises(ValueError, match="no"):
            parallel_for([fail, partial(done.append, 1)])
        assert done == []


def test_products_are_split_inside_with_only() -> None:
    assert not is_splitting()
    with split_products():
        with split_products():
            assert is_splitting()
        assert is_splitting()
    assert not is_splitting()


@pytest.mark.asyncio
async def test_kernels_of_a_session_share_its_threads() -> None:
    x = np.random.default_rng(0).normal(size=(24, 12, 12, 8))
    w = np.random.default_rng(1).normal(size=(3, 3, 8, 8))
    images, filters = tf.placeholder(tf.float64, x.shape), tf.Variable(w)
    y = tf.nn.conv2d(images, filters, 1, "SAME")
    grads = tf.gradients(tf.reduce_sum(y * y), [images, filters])
    found: list[Any] = []
    for config in (tf.SessionConfig(inline_ms=0), tf.SessionConfig(inline_ms=1e9)):
        async with tf.Session(config=config) as sess:
            await sess.run(tf.global_variables_initializer())
            found.append(await sess.run([y, *grads], {images: x}))
    for shared, alone in zip(*found, strict=True):
        np.testing.assert_array_equal(shared, alone)


@pytest.mark.asyncio
async def test_a_heavy_step_gives_the_same_bits_wherever_it_runs() -> None:
    rng = np.random.default_rng(0)
    x = tf.placeholder(tf.float32, [None, 300])
    hidden = tf.nn.relu(x @ tf.Variable(rng.normal(size=(300, 800)).astype(np.float32)))
    loss = tf.reduce_sum(hidden @ tf.Variable(rng.normal(size=(800, 300)).astype(np.float32)))
    grads = tf.gradients(loss, tf.trainable_variables())
    feeds = {x: rng.normal(size=(200, 300)).astype(np.float32)}
    found: list[Any] = []
    for config in (
        tf.SessionConfig(inline_ms=0),
        tf.SessionConfig(inline_ms=1e9),
        tf.SessionConfig(inline_ms=0, intra_op_parallelism_threads=1),
    ):
        async with tf.Session(config=config) as sess:
            await sess.run(tf.global_variables_initializer())
            found += [await sess.run([loss, *grads], feeds) for _ in range(3)]
    for results in found[1:]:
        for got, want in zip(results, found[0], strict=True):
            np.testing.assert_array_equal(got, want)
