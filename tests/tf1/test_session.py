"""``tf.InteractiveSession``, and ``tf.ConfigProto`` as programs of TF1 write it."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys

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
        "SessionConfig: device_count,"
        " gpu_options.per_process_gpu_memory_fraction, gpu_options.allow_growth,"
        " graph_options.optimizer_options.opt_level, graph_options.optimizer_options.global_jit_level:"
        " set, and without effect in this engine."
    ]


async def test_an_interactive_session_is_the_default_until_it_is_closed() -> None:
    graph, before = tf.Graph(), tf.get_default_graph()
    sess = tf.InteractiveSession(graph=graph)
    assert tf.get_default_graph() is graph
    assert await tf.constant(2).eval() == 2
    async with tf.Session() as inner:
        assert tf.get_default_session() is inner
    newer = tf.InteractiveSession()
    assert tf.get_default_session() is newer
    await newer.close()
    assert tf.get_default_session() is sess
    await sess.close()
    await sess.close()
    assert tf.get_default_session() is None
    assert tf.get_default_graph() is before


async def test_it_works_at_the_prompt_where_each_line_has_a_context_of_its_own() -> None:
    lines = [
        "import asyncmon.tf1 as tf",
        "sess = tf.InteractiveSession()",
        "v = tf.get_variable('v', initializer=[1.0, 2.0])",
        "await tf.global_variables_initializer().run()",
        "print('sum', await tf.reduce_sum(v).eval(), tf.get_default_graph() is sess.graph)",
        "await sess.close()",
        "print('after', tf.get_default_session())",
    ]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "asyncio"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHON_BASIC_REPL": "1"},
    )
    assert "sum 3.0 True" in done.stdout, done.stderr
    assert "after None" in done.stdout, done.stderr
