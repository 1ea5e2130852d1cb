"""What TensorFlow's MonitoredSession adds to a step; run in its own interpreter, by `harness.Peer`.

Answers ``{"above": name, "place": directory, "turns": m, "steps": n}`` with the seconds that a
monitored run takes above the raw run of the same increment: the two take turns, and the median counts.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import tensorflow.compat.v1 as tf  # type: ignore[import-not-found,unused-ignore]  # optional

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


class Silent(tf.train.SessionRunHook):
    """Overrides nothing that is called per step."""


class Fetching(tf.train.SessionRunHook):
    """Fetches a tensor, and reads it."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self.tensor)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.value = run_values.results


class Work:
    """A monitored session and the raw one of the same increment."""

    def __init__(self, kind: str, place: str) -> None:
        with tf.Graph().as_default() as self.graph:
            step = tf.train.get_or_create_global_step()
            self.train = tf.assign_add(step, 1)
            weight = tf.Variable(1.0, name="weight")
            values = [weight * (0.1 * (i + 1)) for i in range(5)]
            tf.summary.scalar("loss", values[0])
            init = tf.global_variables_initializer()
            self.monitored = self.open(kind, values, f"{place}/tf1")
            self.raw = tf.Session(graph=self.graph)
            self.raw.run(init)

    def open(self, kind: str, values: list[Any], place: str) -> Any:
        hooks: list[Any] = []
        if kind == "silent":
            hooks = [Silent() for _ in range(20)]
        elif kind == "fetching":
            hooks = [Fetching(value) for value in values]
        elif kind == "default":
            hooks = [
                tf.train.StopAtStepHook(last_step=10**9),
                tf.train.LoggingTensorHook({"loss": values[0]}, every_n_iter=100),
                tf.train.NanTensorHook(values[0]),
            ]
            return tf.train.MonitoredTrainingSession(checkpoint_dir=place, hooks=hooks)
        return tf.train.MonitoredSession(hooks=hooks)

    def above(self, turns: int, steps: int) -> float:
        return statistics.median(
            [self.seconds(self.monitored, steps) - self.seconds(self.raw, steps) for _ in range(turns)]
        )

    def seconds(self, session: Any, steps: int) -> float:
        run, train = session.run, self.train
        start = time.perf_counter()
        for _ in range(steps):
            run(train)
        return (time.perf_counter() - start) / steps


def main() -> None:
    works: dict[str, Work] = {}
    for line in sys.stdin:
        request = json.loads(line)
        kind = request["above"]
        if kind not in works:
            works[kind] = Work(kind, request["place"])
        print(
            json.dumps({"seconds": works[kind].above(request["turns"], request["steps"])}), flush=True
        )


main()
