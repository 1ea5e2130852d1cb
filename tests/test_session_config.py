"""``tf.ConfigProto``: accepted options, their effects, and messages about the others."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from asyncmon import errors, session_config
from asyncmon import graph as tf
from asyncmon.graph.numerics.blas import blas_threads
from asyncmon.graph.numerics.parallel import CORES
from asyncmon.protobuf import run_options
from asyncmon.session_config import SessionConfig, UnusedOptions

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def _unreported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(session_config, "_reported", set())
    caplog.set_level(logging.INFO, "asyncmon")


async def test_fields_without_meaning_are_named_once_in_one_line(caplog: Any) -> None:
    for _ in range(2):
        config = SessionConfig(
            allow_soft_placement=True,
            device_filters=["/job:ps"],
            device_count={"GPU": 0},
            gpu_options=UnusedOptions(per_process_gpu_memory_fraction=0.3),
            graph_options=UnusedOptions(optimizer_options=UnusedOptions(opt_level=-1)),
        )
        config.log_device_placement = True
        config.gpu_options.allow_growth = True
        config.graph_options.optimizer_options.global_jit_level = 1
        config.graph_options.rewrite_options.memory_optimization = 1
        config.experimental.collective_nccl = True
        config.inter_op_parallelism_threads = 2
        async with tf.Session(config=config):
            pass
    assert caplog.messages == [
        "SessionConfig: device_count, device_filters,"
        " experimental.collective_nccl, gpu_options.per_process_gpu_memory_fraction,"
        " gpu_options.allow_growth, graph_options.optimizer_options.opt_level,"
        " graph_options.optimizer_options.global_jit_level,"
        " graph_options.rewrite_options.memory_optimization, log_device_placement: set, and without"
        " effect in this engine."
    ]


async def test_options_without_effect_are_read_back_and_copied() -> None:
    config = SessionConfig()
    assert not config.gpu_options.allow_growth
    config.gpu_options.allow_growth = True
    config.device_count["GPU"] = 0
    for copied in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert copied == config
        assert copied.gpu_options.allow_growth is True
        assert copied.gpu_options == {"allow_growth": True}


async def test_nothing_is_said_of_defaults_and_of_what_has_a_meaning(caplog: Any) -> None:
    config = SessionConfig(
        allow_soft_placement=False,
        gpu_options=UnusedOptions(allow_growth=False),
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=1,
        operation_timeout_in_ms=1000,
        inline_ms=2,
        workers=3,
    )
    async with tf.Session(config=config):
        pass
    assert caplog.messages == []


async def test_a_field_that_does_not_exist_is_refused() -> None:
    config: Any = SessionConfig()
    for message in (config, config.rpc_options):
        with pytest.raises(AttributeError, match="timeout_sec"):
            message.timeout_sec = 1
    arguments: Any = {"allow_soft_plaecment": True}
    with pytest.raises(TypeError, match="allow_soft_plaecment"):
        SessionConfig(**arguments)


@pytest.mark.parametrize(
    "name", ["intra_op_parallelism_threads", "inter_op_parallelism_threads", "operation_timeout_in_ms"]
)
async def test_negative_numbers_are_refused_when_a_session_is_made(name: str) -> None:
    arguments: Any = {name: -1}
    with pytest.raises(ValueError, match=f"{name} must be 0 or more, got -1"):
        SessionConfig(**arguments)
    config = SessionConfig()
    setattr(config, name, -1)
    with pytest.raises(ValueError, match=f"{name} must be 0 or more, got -1"):
        tf.Session(config=config)


async def test_inter_op_threads_are_how_many_runs_compute_at_once() -> None:
    """With two threads two functions meet; with one, all runs have the same thread."""
    both = threading.Barrier(2, timeout=10)
    seen: set[int] = set()

    def meet(x: Any) -> Any:
        both.wait()
        return x

    def note(x: Any) -> Any:
        seen.add(threading.get_ident())
        return x

    x = tf.placeholder(tf.float32, [])
    meeting, noted = (tf.py_func(f, [x], tf.float32) for f in (meet, note))
    async with tf.Session(config=SessionConfig(inline_ms=0, inter_op_parallelism_threads=2)) as sess:
        await _gather(sess, meeting, {x: 1.0}, 2)
    async with tf.Session(config=SessionConfig(inline_ms=0, inter_op_parallelism_threads=1)) as sess:
        await _gather(sess, noted, {x: 1.0}, 8)
    assert len(seen) == 1
    assert threading.get_ident() not in seen


async def _gather(sess: tf.Session, fetch: Any, feeds: Any, count: int) -> None:
    await asyncio.gather(*[sess.run(fetch, feeds) for _ in range(count)])


@pytest.mark.skipif(not blas_threads.is_controllable, reason="this BLAS has no setting for threads")
@pytest.mark.parametrize(("threads", "expected"), [(1, 1), (2, 1), (0, None)])
@pytest.mark.parametrize("inline_ms", [0, 1e9])
async def test_intra_op_threads_leave_blas_one_thread(
    threads: int, expected: int | None, inline_ms: float
) -> None:
    before, seen = blas_threads.limit, []

    def look(x: Any) -> Any:
        seen.append(blas_threads.limit)
        return x

    a = tf.placeholder(tf.float64, [None, None])
    y = tf.py_func(look, [a @ a], tf.float64)
    config = SessionConfig(inline_ms=inline_ms, intra_op_parallelism_threads=threads)
    async with tf.Session(config=config) as sess:
        array = np.random.default_rng(0).normal(size=(20, 20))
        np.testing.assert_allclose(await sess.run(y, {a: array}), array @ array)
    assert seen == [before if expected is None else expected]
    assert blas_threads.limit == before


@pytest.mark.parametrize("threads", [1, 2, 5])
async def test_intra_op_threads_are_how_many_take_part(threads: int) -> None:
    async with tf.Session(config=SessionConfig(intra_op_parallelism_threads=threads)) as sess:
        assert sess.backend.executor.team.size == threads - 1
    async with tf.Session() as sess:
        assert sess.backend.executor.team.size == CORES - 1


async def test_the_timeout_is_that_of_runs_without_one() -> None:
    queue = tf.FIFOQueue(1, tf.float32, [])
    element = queue.dequeue()
    async with tf.Session(config=SessionConfig(operation_timeout_in_ms=20)) as sess:
        with pytest.raises(errors.DeadlineExceededError, match="longer than 20 ms"):
            await sess.run(element)
        with pytest.raises(errors.DeadlineExceededError, match="longer than 10 ms"):
            await sess.run(element, options=tf.RunOptions(timeout_in_ms=10))
        with pytest.raises(errors.DeadlineExceededError, match="longer than 20 ms"):
            await sess.run(element, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE))
        longer = tf.RunOptions(timeout_in_ms=60_000)
        await sess.run(queue.enqueue(1.0), options=longer)
        assert await sess.run(element, options=longer) == 1.0


async def test_run_options_without_meaning_are_named_once(
    caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_options, "_reported", set())
    options = tf.RunOptions(report_tensor_allocations_upon_oom=True)
    one = tf.constant(1)
    async with tf.Session() as sess:
        assert [await sess.run(one, options=options) for _ in range(2)] == [1, 1]
    assert caplog.messages == [
        "RunOptions: report_tensor_allocations_upon_oom: set, and without effect in this engine."
    ]
