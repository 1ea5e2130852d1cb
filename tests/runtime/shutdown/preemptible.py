"""A program that a signal may stop anywhere: ``preemptible.py DIRECTORY MOMENT GRACE``.

It prints what it does, and stays in the step, the evaluation or the wait that ``MOMENT`` names.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Any

import asyncmon as am

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

DIRECTORY, MOMENT, GRACE = sys.argv[1:]
STEPS = 60

program = am.programs.FunctionProgram(state={"weight": 0.0})


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def at(moment: str, secs: float) -> None:
    """Do something that takes a while, or does not end where this is the moment."""
    say(moment)
    await asyncio.sleep(3600 if moment == MOMENT else secs)


@program.step
async def train(state: dict[str, Any], wanted: float) -> None:
    state["weight"] += 1
    if int(wanted) % 12 == 11:
        await at("step", 0.1)
    await asyncio.sleep(0.001)
    assert wanted + 1 == state["weight"]


@program.step
async def score(state: dict[str, Any]) -> float:
    await at("evaluation", 0.02)
    return float(state["weight"])


class Source:
    """Numbers from 0 on, with a position; every tenth one is late."""

    position = 0

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        if self.position % 10 == 9:
            await at("data", 0.05)
        self.position += 1
        return self.position - 1

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Listener(am.CheckpointSaverListener):
    async def before_save(self, session: Any, global_step_value: int) -> None:
        say("save")
        await asyncio.sleep(0.02)


class SlowEnd(am.SessionRunHook):
    async def end(self, session: Any) -> None:
        say("close")
        await asyncio.sleep(0.2)


def batches() -> Iterator[None]:
    yield from [None] * 3


async def main() -> None:
    await at("warm-up", 0.1)
    scaffold = am.Scaffold(program=program)
    hooks = [
        am.StopAtStepHook(num_steps=STEPS),
        am.EvalHook({"score": "score"}, batches, every_steps=15, concurrent=False),
        am.EvalHook({"score": "score"}, batches, every_steps=7, name="beside"),
        am.CheckpointSaverHook(DIRECTORY, save_steps=10, listeners=[Listener()], scaffold=scaffold),
        SlowEnd(),
    ]
    async with am.MonitoredTrainingSession(
        checkpoint_dir=DIRECTORY, scaffold=scaffold, hooks=hooks,
        save_checkpoint_secs=None, save_checkpoint_steps=None,
    ) as sess:  # fmt: skip
        say("began at", sess.global_step)
        async for number in sess.iterate(Source()):
            await sess.run("train", {"wanted": number})


logging.basicConfig(level=logging.INFO, format="log: %(message)s", stream=sys.stdout)
am.run(main, stop_grace_period_secs=float(GRACE))
