"""Work shared among threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph import sharing
from asyncmon.graph.sharing import lent, share


def test_every_call_is_made_once_with_and_without_helpers() -> None:
    with ThreadPoolExecutor(2) as pool:
        for helpers in (None, pool):
            done: list[int] = []
            with lent(helpers):
                share(partial(done.append, i) for i in range(100))
            assert sorted(done) == list(range(100))
    share([])


def test_helpers_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_HELPERS", 1)
    both = threading.Barrier(2, timeout=10)  # passed only when two threads are at work
    with ThreadPoolExecutor(1) as pool, lent(pool):
        share([both.wait, both.wait])  # type: ignore[list-item]  # what they return is not looked at


def test_helpers_that_are_busy_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_HELPERS", 1)
    go_on = threading.Event()
    done: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(go_on.wait, 10)
        with lent(pool):
            share(partial(done.append, i) for i in range(10))
        assert done == list(range(10))
        go_on.set()


def test_helpers_are_lent_to_one_thread_and_taken_back() -> None:
    with ThreadPoolExecutor(1) as pool:
        with lent(pool), lent(None):
            assert sharing._local.helpers is None
        assert sharing._local.helpers is None
        with lent(pool):
            other = pool.submit(lambda: getattr(sharing._local, "helpers", None)).result()
            assert other is None


def test_errors_come_out_and_end_the_rest() -> None:
    done: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        share([fail, partial(done.append, 1)])
    assert done == []


def test_warnings_are_off_in_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_HELPERS", 1)
    both = threading.Barrier(2, timeout=10)

    def divide() -> None:
        both.wait()
        np.divide(np.ones(3), np.zeros(3))

    with ThreadPoolExecutor(1) as pool, lent(pool):
        share([divide, divide])


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
        np.testing.assert_allclose(shared, alone, rtol=1e-9, atol=1e-9)
