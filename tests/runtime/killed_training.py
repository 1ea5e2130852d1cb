"""Kills trainings and continues them: ``python killed_training.py DIR KILLS SEED``.

A training iterates shuffled data, and records the element of each step in its state. It has two
savers: one by time, and one that keeps the best by a concurrent evaluation.
Processes are forked, killed at random moments and continued, until a pass is complete. One line of JSON
has the number of kills, and whether all was right after each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import asyncmon as am
from asyncmon.checkpoint import CheckpointReader, get_checkpoint_state, latest_checkpoint, verify
from asyncmon.data import Dataset, from_iterable
from asyncmon.programs import FunctionProgram

STEPS = 400


def data() -> Dataset:
    async def prepare(number: int) -> int:
        await asyncio.sleep(0)
        return number

    return from_iterable(range(STEPS)).shuffle(64, seed=5).map(prepare, concurrency=3).prefetch(8)


def score(sequence: Any, step: int) -> float:
    """Return the metric of a state, which differs from that of every other state."""
    return float(np.dot(sequence[:step], np.arange(1, step + 1)) % 10007)


def program() -> FunctionProgram:
    made = FunctionProgram(
        state={"sequence": np.full(STEPS, -1), "weights": np.zeros(5000), "done": np.int64(0)}
    )

    @made.step
    async def train(state: Any, element: int) -> None:
        await asyncio.sleep(0.001)
        state["sequence"][int(state["done"])] = element
        state["weights"] += 1
        state["done"] += 1

    @made.step(read_only=True)
    async def test(state: Any) -> dict[str, float]:
        await asyncio.sleep(0.005)
        return {"score": score(state["sequence"], int(state["done"]))}

    return made


async def train(directory: str) -> None:
    made = program()
    best = Path(directory, "best")
    evaluation = am.EvalHook("test", every_steps=7)
    keeping = am.CheckpointSaverHook(
        best, save_steps=1000, metrics=evaluation, save_graph_def=False,
        saver=am.Saver(max_to_keep=1, keep_best=am.KeepBest("score", k=2, mode="max")),
    )  # fmt: skip
    scaffold = am.Scaffold(program=made, saver=am.Saver(max_to_keep=3))
    saving = am.CheckpointSaverHook(
        Path(directory, "run"), save_secs=0.02, scaffold=scaffold, save_graph_def=False
    )
    creator = am.ChiefSessionCreator(scaffold, checkpoint_dir=str(Path(directory, "run")))
    async with am.MonitoredSession(creator, [evaluation, keeping, saving]) as sess:
        async for element in sess.iterate(data()):
            await sess.run("train", {"element": element})


async def check(directory: str, expected: list[int]) -> list[str]:
    """Return the faults in the checkpoints of both savers."""
    wrong = []
    for name in ("run", "best"):
        place = Path(directory, name)
        with contextlib.suppress(ValueError):
            state = await get_checkpoint_state(place)
            for path in state.all_model_checkpoint_paths if state else ():
                async with await CheckpointReader.open(path) as reader:
                    step = int(await reader.get_tensor("done"))
                    sequence = await reader.get_tensor("sequence")
                    states, metrics = await reader.states(), reader.facts.metrics
                if sequence[:step].tolist() != expected[:step] or (sequence[step:] != -1).any():
                    wrong.append(f"{path}: the elements are {sequence[:step].tolist()}")
                if step and states.get("data", {}).get("step") != step:
                    wrong.append(f"{path}: the position is that of {states.get('data')}")
                if metrics and metrics != {"score": score(np.array(expected), step)}:
                    wrong.append(f"{path}: the metrics {metrics} are not those of step {step}")
        wrong += [str(one) for one in await verify(place) if one.problem]
    return wrong


def in_child(directory: str, dice: random.Random) -> bool:
    """Train in a child that is killed at a random moment. Return whether it was complete before.

    The moment is a time that the child computes, so that it gets as far on a busy machine.
    """
    secs = dice.uniform(0.01, 0.15)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            signal.setitimer(signal.ITIMER_PROF, secs)  # SIGPROF ends a process, as SIGKILL does
            asyncio.run(train(directory))
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status and os.WTERMSIG(status) != signal.SIGPROF:
        raise SystemExit(f"The training failed: {status}.")
    return status == 0


async def elements() -> list[int]:
    return [element async for element in data()]


def campaign(root: str, kills: int, seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    expected = asyncio.run(elements())
    killed = passes = 0
    wrong: list[str] = []
    while not wrong and (killed < kills or not passes):
        directory = os.path.join(root, str(passes))
        complete = False
        while not complete and not wrong:
            complete = in_child(directory, dice)
            killed += not complete
            wrong = asyncio.run(check(directory, expected))
            newest = asyncio.run(latest_checkpoint(os.path.join(directory, "run"))) or ""
            if complete and not newest.endswith(f"-{STEPS}"):
                wrong.append(f"the last state is {newest}")
            complete = newest.endswith(f"-{STEPS}")  # else a second pass would begin
        passes += 1
    return {"killed": killed, "passes": passes, "wrong": wrong}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(campaign(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
