"""Pipelines beside the same loops by hand: ``python tests/benchmarks/rollouts.py [row ...]``.

Rows: environments (32 of them, batches of 16) and groups (16 writers, batches of 4 groups of 8 texts,
the weights of each version, ages of at most 2). For the rate a call waits 4 ms in the mean: a game has
an exponential distribution, a text an even one up to 8 ms. For the CPU time it does not wait. Both
sides train by the same session, in turns.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import rollouts_by_hand
from engine import LOOP
from harness import Row, command, take_turns

import asyncmon as am
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import Policy

CPU_US, BY_HAND_US = 20, 3  # on a processor of its own
ENVIRONMENTS, WRITERS, GROUP, MAX_AGE, PAUSE_SECS = 32, 16, 8, 2, 0.004
Loop = Callable[[Any, bool], Awaitable[None]]
dice = random.Random(1)


async def game(waits: bool) -> int:
    await asyncio.sleep(dice.expovariate(1 / PAUSE_SECS) if waits else 0)
    return 1


async def text(waits: bool) -> int:
    await asyncio.sleep(dice.uniform(0, 2 * PAUSE_SECS) if waits else 0)
    return 1


async def seconds(loop: Loop, count: int, waits: bool) -> float:
    """Return the seconds of a call in a loop of many; CPU seconds where calls do not wait."""
    program = FunctionProgram({"weights": np.zeros(100)})

    @program.step
    async def train(state: Any, batch: Any) -> None:
        state["weights"] += len(batch)

    clock = time.perf_counter if waits else time.process_time
    async with am.MonitoredSession(am.ChiefSessionCreator(program=program)) as sess:
        start = clock()
        await loop(sess, waits)
        return (clock() - start) / count


def compared(what: str, ours: Loop, by_hand: Loop, count: int) -> list[Row]:
    """Compare the rate of items, and in loops that wait for nothing the CPU seconds of each."""
    found = {
        waits: take_turns(
            {
                name: lambda loop=loop, waits=waits: LOOP.run(seconds(loop, count, waits))
                for name, loop in (("ours", ours), ("by hand", by_hand))
            },
            rounds=9,
        )
        for waits in (True, False)
    }
    share, cpu_share = (took["ours"] / took["by hand"] for took in found.values())
    said = ", ".join(
        f"{name} {1 / found[True][name]:,.0f}/s with {found[False][name] * 1e6:.1f} us CPU"
        for name in found[True]
    )
    wanted = f"0.95 of the rate by hand, {CPU_US} us where that by hand takes {BY_HAND_US}"
    met = share <= 1 / 0.95 and cpu_share <= CPU_US / BY_HAND_US
    return [Row(what, said, wanted, met, {"by hand": share, "its CPU": cpu_share})]


def environments() -> list[Row]:
    count, size = 4800, 16

    async def ours(sess: Any, waits: bool) -> None:
        async def play(element: int) -> int:
            return await game(waits)

        games = sess.produce(range(count), play, workers=ENVIRONMENTS)
        async for batch in games.batches(size):
            await sess.run("train", {"batch": [item.value for item in batch]})

    async def by_hand(sess: Any, waits: bool) -> None:
        async def play(element: int) -> int:
            return await game(waits)

        await rollouts_by_hand.environments(sess, play, count=count, workers=ENVIRONMENTS, size=size)

    return compared("rollouts of 32 environments", ours, by_hand, count)


def groups() -> list[Row]:
    count, size = 600, 4

    async def ours(sess: Any, waits: bool) -> None:
        async def write(element: int, policy: Policy) -> int:
            await policy.weights()
            return await text(waits)

        texts = sess.produce(
            range(count), write, workers=WRITERS, group=GROUP, max_age=MAX_AGE, weights="weights"
        )
        async for batch in texts.batches(size):
            await sess.run("train", {"batch": [item.value for item in batch]})

    async def by_hand(sess: Any, waits: bool) -> None:
        async def write(element: int, weights: Any) -> int:
            return await text(waits)

        await rollouts_by_hand.groups(
            sess, write, count=count, workers=WRITERS, group=GROUP, size=size, max_age=MAX_AGE
        )

    return compared("rollouts of texts in groups of 8", ours, by_hand, count * GROUP)


if __name__ == "__main__":
    sys.exit(command("Pipelines", {"environments": environments, "groups": groups}))
