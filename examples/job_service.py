"""A service that trains on request: jobs by HTTP, three at once, continued after each restart.

    python examples/job_service.py --port 8000
    curl localhost:8000/jobs/ -H 'content-type: application/json' -d '{"kind": "digits", "params": {"rate": 0.5}}'
    curl localhost:8000/jobs/NAME/events -H 'accept: text/event-stream'

SIGTERM saves and ends all jobs; the next start resumes them. The page with their charts is /train/.
"""  # noqa: E501

import argparse
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import asyncmon as am
from asyncmon import graph as g

DIGITS = Path(__file__).parent / "data" / "digits.npz"


def model(rate: float) -> g.Graph:
    """Return the graph of a softmax regression."""
    graph = g.Graph()
    with graph.as_default():
        x = g.placeholder(g.float32, [None, 64], name="x")
        y = g.placeholder(g.int64, [None], name="y")
        weights = g.get_variable("weights", [64, 10], initializer=g.zeros_initializer())
        logits = g.matmul(x, weights)
        losses = g.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        right = g.equal(g.argmax(logits, 1), y)
        g.reduce_mean(g.cast(right, g.float32), name="accuracy")
        step = am.get_or_create_global_step()
        optimizer = g.train.GradientDescentOptimizer(rate)
        optimizer.minimize(g.reduce_mean(losses, name="loss"), global_step=step, name="train")
    return graph


async def train(job: am.jobs.RunningJob) -> None:
    """Train for `steps` steps. A job that is continued starts with its last checkpoint."""
    with np.load(DIGITS) as digits:
        images = (digits["images"].reshape(-1, 64) / 16).astype(np.float32)
        labels = digits["labels"].astype(np.int64)
    async with am.MonitoredTrainingSession(
        program=model(job.params.get("rate", 0.5)),
        checkpoint_dir=job.directory,
        hooks=[am.StopAtStepHook(last_step=job.params.get("steps", 1_000))],
    ) as sess:
        while not sess.should_stop():
            rows = np.random.default_rng(sess.global_step).integers(1_500, size=32)
            feeds = {"x:0": images[rows], "y:0": labels[rows]}
            _, loss = await sess.run(["train", "loss:0"], feeds)
            if sess.global_step % 100 == 0:
                held_out = {"x:0": images[1_500:], "y:0": labels[1_500:]}
                accuracy = await sess.peek("accuracy:0", held_out)
                job.report(sess.global_step, loss=loss, accuracy=accuracy)


def service(directory: str, executor: str) -> Starlette:
    """Return the application, whose lifespan runs the queue."""
    queue = am.jobs.JobQueue(directory, max_running=3, grace=10.0, keep=100)
    queue.kind("digits", executor=executor)(train)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with queue:
            yield

    pages = [Mount("/jobs", am.jobs.create_app(queue)), Mount("/train", page(directory))]
    return Starlette(routes=pages, lifespan=lifespan)


def page(directory: str) -> Starlette:
    """Return the monitor of all jobs, which are runs."""
    return am.monitor.create_app(str(Path(directory, "runs")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--dir", default="jobs")
    parser.add_argument("--executor", choices=["inline", "process"], default="inline")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    uvicorn.run(service(options.dir, options.executor), port=options.port)
