"""Train, and serve the monitor: ``serve_session.py LOGDIR PORT``."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import uvicorn

import asyncmon as am
from asyncmon import graph as g


class Careless(am.SessionRunHook):
    """Fails now and then."""

    on_error = "log"

    async def after_run(self, run_context: Any, run_values: am.SessionRunValues) -> None:
        if run_values.step % 200 == 7:
            raise ValueError("<i>no luck</i>")


async def play(element: int) -> int:
    await asyncio.sleep(0.001)
    return element


async def train(session: am.MonitoredSession, train_op: Any) -> None:
    async with session:
        async for _ in session.produce(range(1_000_000), play, max_age=3, name="games"):
            await session.run(train_op)
            await asyncio.sleep(0.005)


async def main(logdir: str, port: int) -> None:
    with g.name_scope("input"):
        queue = g.FIFOQueue(32, g.float32, [2], name="points")
        feed = queue.enqueue(g.random_uniform([2]))
    am.add_queue_runner(am.QueueRunner(queue, [feed]))
    x = queue.dequeue()
    slope = g.Variable(0.0, name="slope")
    loss = g.reduce_mean(g.square(slope * x - 3 * x))
    am.summary.scalar("loss", loss)
    step = am.get_or_create_global_step()
    train_op = g.train.GradientDescentOptimizer(0.02).minimize(loss, step)
    session = am.MonitoredTrainingSession(
        checkpoint_dir=logdir,
        hooks=[am.StopAtStepHook(last_step=100_000), Careless()],
        save_summaries_steps=5,
        save_checkpoint_secs=600,
    )
    training = asyncio.create_task(train(session, train_op))
    app = am.monitor.create_app({"line": session, "files": logdir})
    config = uvicorn.Config(app, "127.0.0.1", port, log_level="warning", timeout_graceful_shutdown=2)
    listener = config.bind_socket()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)  # noqa: T201 -- the test reads it
    await uvicorn.Server(config).serve([listener])
    session.request_stop("the server stops")
    await training


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
