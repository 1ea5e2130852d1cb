"""Pipelines over Ray actors, in a cluster of its own: prints what each scenario has found, as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import ray

import asyncmon as am
from asyncmon.executors import RayExecutor
from asyncmon.programs import FunctionProgram

PLACE = Path(sys.argv[1])


class Broken(Exception):
    pass


async def double(element: int) -> int:
    await asyncio.sleep(0)
    return 2 * element


def seen(element: int, policy: Any) -> tuple[int, Any]:
    return policy.version, policy.weights


def die_once(element: int) -> int:
    if element == 2 and not (PLACE / "dead").exists():
        (PLACE / "dead").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return element


def die(element: int) -> int:
    if element == 2:
        os._exit(7)
    return element


def fail(element: int) -> int:
    raise Broken(f"no {element}")


class Unstartable:
    """A function that cannot be rebuilt: the process of the actor dies."""

    def __call__(self, element: int) -> int:
        return element

    def __reduce__(self) -> Any:
        return os._exit, (9,)


def slow(element: int) -> None:
    (PLACE / "slow").write_text(str(os.getpid()))
    (PLACE / "begun").write_text("")  # a pipe
    signal.pause()


async def train(executor: Any, count: int, stop: bool = False, **options: Any) -> dict[str, Any]:
    program = FunctionProgram({"weight": 0.0})
    used: list[Any] = []

    @program.step
    async def use(state: Any, batch: Any) -> None:
        state["weight"] += 1
        used.extend(batch)

    found: dict[str, Any] = {"used": used}
    try:
        async with am.MonitoredTrainingSession(program=program) as sess:
            made = sess.produce(range(count), executor, **options)
            if stop:
                begun = PLACE / "begun"
                os.mkfifo(begun)
                learner = asyncio.create_task(anext(made.batches(1), None))
                await asyncio.to_thread(begun.read_text)
                sess.request_stop()
                await learner
            async for batch in made.batches(2):
                await sess.run("use", {"batch": [item.value for item in batch]})
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
        found["notes"] = getattr(error, "__notes__", [])
    found["lost"] = made.statistics().lost
    return found


async def main() -> None:
    scenarios: dict[str, Any] = {
        "double": train(RayExecutor(double, actors=2, num_cpus=0.5), 8),
        "weights": train(RayExecutor(seen, num_cpus=0.5), 8, max_age=1, weights="weight"),
        "die once": train(RayExecutor(die_once, actors=2, num_cpus=0.5), 6),
        "die": train(RayExecutor(die, num_cpus=0.5), 4),
        "drop": train(RayExecutor(die, num_cpus=0.5), 4, on_error="drop"),
        "fail": train(RayExecutor(fail, num_cpus=0.5), 2),
        "unstartable": train(RayExecutor(Unstartable(), num_cpus=0.5), 2),
        "stop": train(RayExecutor(slow, num_cpus=0.5), 2, stop=True),
    }
    for name, scenario in scenarios.items():
        sys.stdout.write(json.dumps({name: await scenario}) + "\n")


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    asyncio.run(main())
    ray.shutdown()
