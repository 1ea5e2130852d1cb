"""What saving does to the steps beside it: ``python tests/benchmarks/checkpoint_steps.py [STEPS]``.

A dense network, 1024-4096-4096-10 with Adam (250 MB of state), trained by a monitored session that
saves every 10 steps, into the page cache where there is ``/dev/shm``. The peer is TensorFlow 1's own
``CheckpointSaverHook``, in the interpreter that ``ASYNCMON_PEER_PYTHON`` names.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import models
from harness import Row, show

EVERY = 10
SIZES = [1024, 4096, 4096, 10]
SHAPE = [64, 1024]
WARMUP = 5
PLACE = "/dev/shm" if Path("/dev/shm").is_dir() else None


def build(tf: Any, step: Any) -> tuple[Any, dict[Any, Any]]:
    """Return what a step runs, and its feeds."""
    model = models.mlp(tf, SIZES)
    images, labels = models.batch(SHAPE)
    fetches = tf.group(model.step, tf.assign_add(step, 1))
    return fetches, {model.images: images, model.labels: labels}


async def ours(directory: str, steps: int) -> tuple[list[float], list[bool]]:
    import asyncmon as am

    seconds, busy = [], []
    with am.graph.Graph().as_default():
        fetches, feeds = build(am.graph, am.create_global_step())
        saver = am.Saver(max_to_keep=2)
        session = am.MonitoredTrainingSession(
            checkpoint_dir=directory,
            scaffold=am.Scaffold(saver=saver),
            save_checkpoint_steps=EVERY,
            save_checkpoint_secs=None,
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
        )
        async with session as sess:
            for _ in range(steps):
                saving = saver.busy
                start = time.perf_counter()
                await sess.run(fetches, feeds)
                seconds.append(time.perf_counter() - start)
                busy.append(saving or saver.busy)
    return seconds[WARMUP:], busy[WARMUP:]


def tf1(directory: str, steps: int) -> list[float]:
    """Do the same with TensorFlow; called in the peer's interpreter."""
    import tensorflow.compat.v1 as tf  # type: ignore[import-not-found,unused-ignore]

    tf.disable_v2_behavior()
    seconds = []
    with tf.Graph().as_default():
        fetches, feeds = build(tf, tf.train.create_global_step())
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=directory,
            save_checkpoint_steps=EVERY,
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
        ) as sess:
            for _ in range(steps):
                start = time.perf_counter()
                sess.run(fetches, feeds)
                seconds.append(time.perf_counter() - start)
    return seconds[WARMUP:]


def worst(seconds: list[float]) -> float:
    return max(seconds) / statistics.median(seconds)


def ask_peer(steps: int) -> list[float] | None:
    python = os.environ.get("ASYNCMON_PEER_PYTHON")
    if not python:
        return None
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [python, __file__, str(steps), "peer"]
    out = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    seconds: list[float] = json.loads(out.stdout.splitlines()[-1])
    return seconds


def main() -> bool:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    directory = tempfile.mkdtemp(dir=PLACE)
    try:
        if sys.argv[2:] == ["peer"]:
            print(json.dumps(tf1(directory, steps)))
            return True
        seconds, busy = asyncio.run(ours(directory, steps))
    finally:
        shutil.rmtree(directory)
    beside = [one for one, saving in zip(seconds, busy, strict=True) if saving]
    alone = [one for one, saving in zip(seconds, busy, strict=True) if not saving]
    ratio = worst(seconds)
    flight = statistics.median(beside) / statistics.median(alone)
    theirs = ask_peer(steps)
    rows = [
        Row("median step", f"{statistics.median(seconds) * 1e3:.0f} ms", "", True),
        Row("worst / median, a save every 10 steps", f"{ratio:.2f}", "1.5 or less", ratio <= 1.5),
        Row("median beside a save / without", f"{flight:.2f}", "1.25 or less", flight <= 1.25),
        Row(
            "the same by TF1: worst / median",
            "" if theirs is None else f"{worst(theirs):.2f}",
            "for comparison",
            None if theirs is None else True,
        ),
    ]
    return show("Steps beside saves of 250 MB", rows)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
