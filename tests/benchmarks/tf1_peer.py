"""What TensorFlow takes for the same work; run in its own interpreter by :class:`harness.Peer`.

Reads a line of JSON, does it, answers with a line of JSON: ``{"open": "mlp", ...}`` builds a model and
``{"steps": n}`` gives the seconds of a step of the one that was opened last, on a ``"core"`` if asked.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import models
import tensorflow.compat.v1 as tf  # type: ignore[import-not-found,unused-ignore]  # optional
from harness import typical

tf.disable_v2_behavior()


class Work:
    """A model, a session and a batch."""

    def __init__(self, request: dict[str, Any]) -> None:
        kind = request["open"]
        self.graph = tf.Graph()
        with self.graph.as_default():
            if kind == "mlp":
                model = models.mlp(tf, request["sizes"])
            else:
                model = models.conv_net(tf) if kind == "conv" else models.counter(tf)
        self.session = tf.Session(graph=self.graph)
        self.session.run(model.init)
        self.fetches = model.step
        self.feeds = {}
        if model.images is not None:
            images, labels = models.batch(request["shape"])
            self.feeds = {model.images: images, model.labels: labels}

    def seconds(self, steps: int) -> float:
        """Return what a step takes."""
        run, fetches, feeds = self.session.run, self.fetches, self.feeds
        start = time.perf_counter()
        for _ in range(steps):
            run(fetches, feed_dict=feeds)
        return (time.perf_counter() - start) / steps


def first_run(nodes: int) -> dict[str, float]:
    """Return the seconds of the first run of a graph."""
    with tf.Graph().as_default() as graph:
        top, init = models.tower(tf, nodes), tf.global_variables_initializer()
    with tf.Session(graph=graph) as session:
        session.run(init)
        start = time.perf_counter()
        session.run(top)
        return {"first": time.perf_counter() - start}


def main() -> None:
    work: Work | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if "open" in request:
            work = Work(request)
            answer: dict[str, Any] = {}
        elif "build" in request:
            answer = first_run(request["build"])
        else:
            assert work is not None
            answer = {"seconds": typical(work.seconds, request["steps"], request.get("core"))}
        print(json.dumps(answer), flush=True)


main()
