"""What saving does to the steps beside it: ``python tests/benchmarks/checkpoint_steps.py``.

A dense network, 1024-4096-4096-10 with Adam (250 MB of state), trained by a monitored session that
saves every 10 steps, into the page cache where there is ``/dev/shm``. One slow step decides about the
worst, so five sessions are trained, and the median of each figure is shown; as many without saves show
what the machine itself does to the worst step. The copies of the first snapshot and the first files
take memory that is new to the process. On a virtual machine that gives free memory back to its host
after some seconds, the faults of 240 MB take 0.4 s or more, and 0.02 s where the memory was in use just
before. Later saves get what retention has freed. So the first are shown apart. The peers train the
same: TensorFlow 1 with its ``CheckpointSaverHook``, in the interpreter that ``ASYNCMON_PEER_PYTHON``
names, and PyTorch with ``torch.distributed.checkpoint.async_save``, in that of
``ASYNCMON_TORCH_PYTHON``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import models
from harness import QUICK, Row, command, quiet_environment

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

EVERY = 10
SIZES = [1024, 4096, 4096, 10]
SHAPE = [64, 1024]
WARMUP = 5
FIRST = 30  # steps after those, until checkpoints are written over deleted ones
SESSIONS = 5
PLACE = "/dev/shm" if Path("/dev/shm").is_dir() else None


def build(tf: Any, step: Any) -> tuple[Any, dict[Any, Any]]:
    """Return what a step runs, and its feeds."""
    model = models.mlp(tf, SIZES)
    images, labels = models.batch(SHAPE)
    fetches = tf.group(model.step, tf.assign_add(step, 1))
    return fetches, {model.images: images, model.labels: labels}


async def ours(directory: str, steps: int, every: int | None = EVERY) -> tuple[list[float], list[bool]]:
    import asyncmon as am

    seconds, busy = [], []
    with am.graph.Graph().as_default():
        fetches, feeds = build(am.graph, am.create_global_step())
        saver = am.Saver(max_to_keep=2)
        session = am.MonitoredTrainingSession(
            checkpoint_dir=directory,
            scaffold=am.Scaffold(saver=saver),
            save_checkpoint_steps=every,
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


def torch(directory: str, steps: int) -> list[float]:
    """Do the same with PyTorch; called in the peer's interpreter."""
    import numpy as np
    import torch as pt  # type: ignore[import-not-found,unused-ignore]
    import torch.distributed.checkpoint as dcp  # type: ignore[import-not-found,unused-ignore]

    layers = []
    for inputs, outputs in itertools.pairwise(SIZES):
        layers += [pt.nn.Linear(inputs, outputs), pt.nn.ReLU()]
    model = pt.nn.Sequential(*layers[:-1])
    optimizer = pt.optim.Adam(model.parameters())
    rng = np.random.default_rng(0)
    images = pt.from_numpy(rng.standard_normal(SHAPE).astype(np.float32))
    labels = pt.from_numpy(rng.integers(0, SIZES[-1], SHAPE[0]))
    seconds, saving = [], None
    for step in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        pt.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if step % EVERY == 0:
            if saving is not None:
                saving.result()
                shutil.rmtree(f"{directory}/{step - EVERY}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            saving = dcp.async_save(state, checkpoint_id=f"{directory}/{step}", no_dist=True)
        seconds.append(time.perf_counter() - start)
    assert saving is not None
    saving.result()
    return seconds[WARMUP:]


PEERS = {"TF1": ("ASYNCMON_PEER_PYTHON", tf1), "torch async_save": ("ASYNCMON_TORCH_PYTHON", torch)}


def worst(seconds: list[float]) -> float:
    return max(seconds) / statistics.median(seconds)


def listed(numbers: list[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in numbers)


def ask_peer(name: str, steps: int) -> list[float] | None:
    python = os.environ.get(PEERS[name][0])
    if not python:
        return None
    command = [python, __file__, "peer", name, str(steps)]
    out = subprocess.run(command, capture_output=True, text=True, env=quiet_environment(), check=True)
    seconds: list[float] = json.loads(out.stdout.splitlines()[-1])
    return seconds


def in_a_directory(train: Callable[[str], T]) -> T:
    directory = tempfile.mkdtemp(dir=PLACE)
    try:
        return train(directory)
    finally:
        shutil.rmtree(directory)


def measured() -> list[Row]:
    steps = 60 if QUICK else 100
    medians, worsts, begins, flights, undisturbed = [], [], [], [], []
    for _ in range(1 if QUICK else SESSIONS):
        seconds, busy = in_a_directory(lambda directory: asyncio.run(ours(directory, steps)))
        beside = [one for one, saving in zip(seconds, busy, strict=True) if saving]
        alone = [one for one, saving in zip(seconds, busy, strict=True) if not saving]
        medians.append(statistics.median(seconds))
        worsts.append(worst(seconds[FIRST:]))
        begins.append(max(seconds[:FIRST]) / statistics.median(seconds[FIRST:]))
        flights.append(statistics.median(beside) / statistics.median(alone))
        bare, _ = in_a_directory(lambda directory: asyncio.run(ours(directory, steps, None)))
        undisturbed.append(worst(bare[FIRST:]))
    ratio, flight = statistics.median(worsts), statistics.median(flights)
    rows = [
        Row("median step", f"{statistics.median(medians) * 1e3:.0f} ms", ""),
        Row(
            "worst / median, a save every 10 steps",
            f"{ratio:.2f} ({listed(worsts)})",
            "1.3 or less",
            ratio <= 1.3,
        ),
        Row(
            "worst of the first saves / median",
            f"{statistics.median(begins):.2f} ({listed(begins)})",
            "2 or less",
            statistics.median(begins) <= 2,
        ),
        Row(
            "worst / median without saves",
            f"{statistics.median(undisturbed):.2f} ({listed(undisturbed)})",
            "to compare",
        ),
        Row("median beside a save / without", f"{flight:.2f}", "1.25 or less", flight <= 1.25),
    ]
    for name in PEERS:
        theirs = ask_peer(name, steps)
        if theirs is not None:
            said = f"{worst(theirs[FIRST:]):.2f} of {statistics.median(theirs) * 1e3:.0f} ms"
            rows.append(Row(f"worst / median by {name}", said, "to compare"))
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["peer"]:
        _, train = PEERS[sys.argv[2]]
        print(json.dumps(in_a_directory(lambda directory: train(directory, int(sys.argv[3])))))
    else:
        sys.exit(command("steps beside saves of 250 MB", {"checkpoint_steps": measured}))
