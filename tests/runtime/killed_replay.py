"""Trains on samples of a replay buffer: ``python killed_replay.py DIR STEPS KILLED_AT``.

Each step records its draws. The process is killed in the body before a step, or prints all.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import numpy as np

import asyncmon as am
from asyncmon.programs import FunctionProgram


async def train(directory: str, steps: int, killed_at: int) -> list[int]:
    made = FunctionProgram(state={"drawn": np.full((steps, 4), -1), "done": np.int64(0)})

    @made.step
    async def record(state: Any, numbers: Any) -> None:
        state["drawn"][int(state["done"])] = numbers
        state["done"] += 1

    buffer = am.data.ReplayBuffer(16, sampling="prioritised", seed=3)
    scaffold = am.Scaffold(program=made, saver=am.Saver(max_to_keep=2))
    saving = am.CheckpointSaverHook(directory, save_steps=3, scaffold=scaffold, save_graph_def=False)
    creator = am.ChiefSessionCreator(scaffold, checkpoint_dir=directory)
    async with am.MonitoredSession(creator, [saving]) as sess:
        samples = sess.iterate(buffer.batches(4, least=1))
        if not len(buffer):
            buffer.add({"n": -1})
        async for batch, indices, _ in samples:
            step = sess.global_step or 0
            if step == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            buffer.update(indices, 1.0 + indices % 5)
            buffer.add({"n": step})
            await sess.run("record", {"numbers": batch["n"]})
            if step + 1 == steps:
                break
        found: list[int] = (await sess.peek("drawn")).tolist()
    return found


if __name__ == "__main__":
    json.dump(asyncio.run(train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))), sys.stdout)
