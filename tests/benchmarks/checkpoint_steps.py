"""What saving does to the steps beside it: ``python tests/benchmarks/checkpoint_steps.py``.

A dense network, 1024-4096-4096-10 with Adam (250 MB of state), trained by a monitored session that
saves every 10 steps, into the page cache where there is ``/dev/shm``. One slow step decides about the
worst, so five sessions are trained, and the median of each figure is shown; as many without saves show
what the machine itself does to the worst step. The copies of the first snapshot and the first files
take memory that is new to the process. On a virtual machine that gives free memory back to its host
after some seconds, the faults of 240 MB take 0.4 s or more, and 0.02 s where the memory was in use just
before. Later saves get what retention has freed. So the first are shown apart.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import models
from harness import QUICK, Row, command

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


def worst(seconds: list[float]) -> float:
    return max(seconds) / statistics.median(seconds)


def listed(numbers: list[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in numbers)


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
    with_saves, bare, flight, first = map(statistics.median, (worsts, undisturbed, flights, begins))
    said = (
        f"{with_saves:.2f} ({listed(worsts)}); without saves {bare:.2f} ({listed(undisturbed)}); first "
        f"saves {first:.2f}; the median beside a save {flight:.2f} of that without"
    )
    what = f"worst over median step ({statistics.median(medians) * 1e3:.0f} ms) with saves of 250 MB"
    ratio = with_saves / bare
    return [Row(what, said, "1.3x without", ratio <= 1.3, {"without": ratio})]


if __name__ == "__main__":
    sys.exit(command("steps beside saves of 250 MB", {"checkpoint_steps": measured}))
