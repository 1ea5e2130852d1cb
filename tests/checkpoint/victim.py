"""Kills savers and checks their files: ``python victim.py calls|moments DIR ROUNDS SEED``.

Each round forks a process that restores the newest checkpoint and then saves step after step, telling
every commit through a pipe. It dies by SIGKILL: at each system call of its third save in turn
(``calls``; half way through the data where that is a write), or at a random moment (``moments``). A
second process then restores. One line of JSON has the acknowledged and the restored saves, and
whether all of it was right.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio._backends._asyncio  # noqa: F401  # not in each forked process: it takes 50 ms
import numpy as np

from asyncmon.checkpoint import Saver, load_checkpoint, verify
from asyncmon.system.files import FileCalls, in_thread
from tests.checkpoint.memory_session import MemorySession


class DyingCalls(FileCalls):
    """The system's calls; the process is killed at the nth."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "left":
            self.left -= 1
            if self.left == 0 and name != "write":
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        if self.left == 0:
            super().write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write(descriptor, data)


def state(step: int, size: int) -> MemorySession:
    """Return a session in which every number is the step: a mixture of two steps would show."""
    return MemorySession(global_step=step, a=np.full(size, step), b=np.full((size, 3), float(step)))


async def train(directory: str, size: int, nth: int, tell: int, last: int | None = None) -> None:
    calls = DyingCalls(nth)
    saver = Saver(max_to_keep=2, calls=calls)
    session = state(0, size)
    await saver.restore_latest(session, directory)
    while session.state["global_step"] != last:
        session = state(int(session.state["global_step"]) + 1, size)
        step = int(session.state["global_step"])
        if nth < 0 and step % 3 == 0:
            await saver.start_save(session, f"{directory}/model.ckpt", step)
        else:
            await saver.save(session, f"{directory}/model.ckpt", step)
        os.write(tell, f"{step} {nth - calls.left}\n".encode())


async def look(directory: str, size: int, tell: int) -> None:
    session = state(0, size)
    saver = Saver(max_to_keep=2)
    path = await saver.restore_latest(session, directory)
    step = int(session.state["global_step"])
    values = {float(end(session.state[name])) for name in ("a", "b") for end in (np.min, np.max)}
    await saver.claim(directory)
    found = await verify(directory)
    await saver.save(state(step + 1, size), f"{directory}/model.ckpt", step + 1)
    names = set(await in_thread(os.listdir, directory)) - {".asyncmon.lock", "checkpoint"}
    kept = set()
    for listed in saver.last_checkpoints:
        async with await load_checkpoint(listed) as reader:
            kept |= {*reader.facts.file_names}
    answer = {
        "step": step,
        "same": values == {float(step)} and (path is None or path.endswith(f"-{step}")),
        "damaged": [one.problem for one in found if one.problem],
        "left": sorted(names - kept),
    }
    os.write(tell, json.dumps(answer).encode())


def in_child(main: Callable[[int], Coroutine[Any, Any, None]]) -> tuple[int, int]:
    """Fork, run a coroutine there, and return the child and the pipe that it writes into."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        try:
            asyncio.run(main(theirs))
        finally:
            os._exit(0)
    os.close(theirs)
    return child, ours


def read_until(pipe: int, deadline: float) -> bytes:
    text = b""
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        more = os.read(pipe, 65536)
        if not more:
            break
        text += more
    return text


def play(directory: str, size: int, nth: int, seconds: float) -> dict[str, Any]:
    child, pipe = in_child(lambda tell: train(directory, size, nth, tell))
    told = read_until(pipe, time.monotonic() + seconds)
    os.kill(child, signal.SIGKILL)
    told += read_until(pipe, time.monotonic() + 10)
    _, status = os.waitpid(child, 0)
    os.close(pipe)
    child, pipe = in_child(lambda tell: look(directory, size, tell))
    answer = read_until(pipe, time.monotonic() + 10)
    os.waitpid(child, 0)
    os.close(pipe)
    acknowledged = [int(line.split()[0]) for line in told.splitlines()]
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return {"acknowledged": max(acknowledged, default=0), "killed": killed} | json.loads(answer)


def calls_until(directory: str, size: int, step: int) -> int:
    """Return how many system calls are made until this step is saved."""
    child, pipe = in_child(lambda tell: train(directory, size, 0, tell, step))
    told = read_until(pipe, time.monotonic() + 10)
    os.waitpid(child, 0)
    os.close(pipe)
    return int(told.splitlines()[-1].split()[1])


def main() -> None:
    kind, directory, rounds, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    choose = random.Random(seed)
    gc.collect()
    gc.freeze()  # each collection in a child would copy all pages
    first = 0
    if kind != "moments":
        first = calls_until(f"{directory}/before", 20, 2)
        rounds = calls_until(f"{directory}/after", 20, 3) - first
    for number in range(1, rounds + 1):
        if kind != "moments":
            result = play(f"{directory}/{number}", 20, first + number, 10.0)
        else:
            size = choose.choice([10, 1000, 300_000])
            result = play(f"{directory}/{size}", size, -1, choose.uniform(0.02, 0.25))
        result["number"] = number
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
