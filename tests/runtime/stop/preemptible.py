"""A program that a signal may stop anywhere: ``preemptible.py DIRECTORY MOMENT GRACE HOST HANG``.

It prints its actions, and stays in the step, the evaluation or the wait that ``MOMENT`` names. With
the moment ``any`` or ``recovery`` its session is preempted three times. ``HOST`` runs it: ``am.run``,
``asyncio.run``, or a ``service`` with handlers of its own. ``HANG`` is how the cleanup of a hook hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncmon as am

DIRECTORY, MOMENT, GRACE, HOST, HANG = sys.argv[1:]
STEPS = 60

program = am.programs.FunctionProgram(state={"weight": 0.0})


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def at(moment: str, secs: float) -> None:
    """Do something that takes a while, or does not end where this is the moment."""
    say(moment)
    await asyncio.sleep(3600 if moment == MOMENT else secs)


@program.step(name="train")
async def train_step(state: dict[str, Any], wanted: float) -> None:
    state["weight"] += 1
    if int(wanted) % 12 == 11:
        await at("step", 0.1)
    await asyncio.sleep(0.001)
    assert wanted + 1 == state["weight"] or breaks.failures


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


class Breaks(am.SessionRunHook):
    """Is preempted sometimes, and prints each state."""

    failures = 0

    async def after_create_session(self, session: Any, coord: Any) -> None:
        if self.failures:
            await at("recovery", 0.05)
        say("at", session.global_step)

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        if MOMENT in ("any", "recovery") and run_values.step % 13 == 0 and self.failures < 3:
            self.failures += 1
            say("at nothing")  # the state is lost by this, and that of the checkpoint follows
            raise am.errors.AbortedError(None, None, "preempted")
        say("at", run_values.step)


class HangsInCleanup(am.SessionRunHook):
    async def cleanup(self, error: BaseException | None) -> None:
        say("cleanup")
        while HANG == "ignores":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
        if HANG == "blocks":
            time.sleep(3600)  # noqa: ASYNC251 -- this is the fault
        if HANG == "waits":
            await asyncio.sleep(3600)


breaks = Breaks()


def batches() -> Iterator[None]:
    yield from [None] * 3


def session() -> am.MonitoredSession:
    scaffold = am.Scaffold(program=program)
    hooks = [
        am.StopAtStepHook(num_steps=STEPS),
        am.EvalHook({"score": "score"}, batches, every_steps=15, concurrent=False),
        am.EvalHook({"score": "score"}, batches, every_steps=7, name="beside"),
        am.CheckpointSaverHook(DIRECTORY, save_steps=10, listeners=[Listener()], scaffold=scaffold),
        breaks,
        SlowEnd(),
        HangsInCleanup(),
    ]
    return am.MonitoredTrainingSession(
        checkpoint_dir=DIRECTORY, scaffold=scaffold, hooks=hooks, stop_grace_period_secs=float(GRACE),
        save_checkpoint_secs=None, save_checkpoint_steps=None,
        recovery=am.Recovery(first_delay_secs=0.05),
    )  # fmt: skip


async def train(sess: am.MonitoredSession) -> None:
    say("began at", sess.global_step)
    async for number in sess.iterate(Source()):
        await sess.run("train", {"wanted": number})


async def main() -> None:
    await at("warm-up", 0.1)
    async with session() as sess:
        await train(sess)


async def serve() -> None:
    """Open and close the session in tasks of their own, as the lifespan of a service does."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await at("warm-up", 0.1)
    sess = session()
    await asyncio.create_task(sess.start())
    training = asyncio.create_task(train(sess))
    training.add_done_callback(lambda task: stopped.set())
    await stopped.wait()
    sess.request_stop("the service stops")
    await training
    await asyncio.create_task(sess.close())


logging.basicConfig(level=logging.INFO, format="log: %(message)s", stream=sys.stdout)
if HOST == "am.run":
    am.run(main, stop_grace_period_secs=float(GRACE))
else:
    asyncio.run(main() if HOST == "asyncio.run" else serve())
say("done")
