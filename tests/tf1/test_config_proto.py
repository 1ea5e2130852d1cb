"""``tf.ConfigProto`` as programs of TF1 write it."""

from __future__ import annotations

import logging

import pytest

import asyncmon.tf1 as tf
from asyncmon import session_config

pytestmark = pytest.mark.asyncio


async def test_messages_in_messages_are_accepted_and_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_config, "_reported", set())
    caplog.set_level(logging.INFO, "asyncmon")
    optimizer = tf.OptimizerOptions(opt_level=tf.OptimizerOptions.L0)
    config = tf.ConfigProto(
        allow_soft_placement=True,
        device_count={"GPU": 0},
        gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.5),
        graph_options=tf.GraphOptions(optimizer_options=optimizer),
        intra_op_parallelism_threads=1,
    )
    config.gpu_options.allow_growth = True
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    async with tf.Session(config=config) as sess:
        assert await sess.run(tf.constant(3)) == 3
    assert caplog.messages == [
        "SessionConfig: allow_soft_placement, device_count,"
        " gpu_options.per_process_gpu_memory_fraction, gpu_options.allow_growth,"
        " graph_options.optimizer_options.opt_level, graph_options.optimizer_options.global_jit_level:"
        " set, and without effect in this engine."
    ]
