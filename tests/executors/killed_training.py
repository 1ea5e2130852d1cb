"""A training with a pipeline that is killed: ``python killed_training.py KIND DIR SEED TARGET PORT``.

It prints each step, and at its end how often each element was consumed in the surviving history, and
whether the data or the target has ended it, not a signal.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import numpy as np

import asyncmon as am
from asyncmon.data import from_iterable
from asyncmon.executors import ProcessExecutor
from asyncmon.programs import FunctionProgram

COUNT, SIZE = 48, 4
TOKEN = "a token of a test"
GRACE_SECS = 20


def blocking(element: int) -> int:
    """A call in a child process, which dies sometimes."""
    dice = random.Random()
    if dice.random() < 0.02:
        os._exit(1)
    am.system.portable.pause(0.02 * dice.random())
    return element


async def waiting(element: int) -> int:
    await asyncio.sleep(0.02 * random.random())
    return element


@asynccontextmanager
async def served(made: Any, port: int) -> AsyncIterator[None]:
    """Serve the leases of a pipeline."""
    import uvicorn

    config = uvicorn.Config(
        made.app(token=TOKEN, lease_secs=0.5), port=port, lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]  # its own signals stay
    serving = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await serving


async def main(kind: str, directory: str, seed: int, target: int, port: int) -> None:
    dice = random.Random(seed)
    program = FunctionProgram({"counts": np.zeros(COUNT, int)})

    @program.step
    async def add(state: Any, batch: Any) -> None:
        await asyncio.sleep(0.02)
        np.add.at(state["counts"], batch, 1)

    executors: dict[str, Any] = {
        "tasks": waiting,
        "processes": ProcessExecutor(blocking, processes=2),
        "http": None,
    }
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=directory, hooks=[am.StopAtStepHook(last_step=target)],
        save_checkpoint_steps=dice.choice([1, 2, 3]), save_checkpoint_secs=None,
        save_summaries_steps=0, log_step_count_steps=0, stop_grace_period_secs=GRACE_SECS,
    ) as sess:  # fmt: skip
        made = sess.produce(
            from_iterable(range(COUNT)).shuffle(16, seed=5), executors[kind], name="made",
            workers=dice.choice([2, 5]), depth=dice.choice([4, 12]), ordered=dice.random() < 0.3,
            max_age=dice.choice([None, 1, 3]), keep=dice.choice([None, "results"]),
        )  # fmt: skip
        report({"step": sess.global_step})
        async with served(made, port) if kind == "http" else nullcontext():
            async for batch in made.batches(SIZE):
                await sess.run("add", {"batch": [item.value for item in batch]})
                report({"step": sess.global_step})
        counts = (await sess.peek("counts")).tolist()
        is_whole = made.statistics().consumed == COUNT or sess.global_step == target
        report({"counts": counts, "step": sess.global_step, "is_whole": is_whole})


def report(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(given[0], given[1], *map(int, given[2:])))
