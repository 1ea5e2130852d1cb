"""The figures of sessions in other processes: ``python tests/benchmarks/distributed.py [row ...]``.

Rows: local-scalar, local-mlp, local-service.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import models
from harness import Row, show, take_turns, typical

from asyncmon import graph as am

if TYPE_CHECKING:
    from collections.abc import Callable

LOOP = asyncio.Runner()
SIZES = [784, 512, 512, 10]


class Trained:
    """A model in a session of a target."""

    def __init__(
        self, target: str, build: Callable[[], models.Model], shape: list[int] | None = None
    ) -> None:
        with am.Graph().as_default() as graph:
            self.model = build()
        self.session = am.Session(target, graph)
        self.feeds: dict[Any, Any] = {}
        if shape is not None:
            tensors = self.model.images, self.model.labels
            self.feeds = dict(zip(tensors, models.batch(shape), strict=True))
        LOOP.run(self.session.run(self.model.init))

    def __call__(self, steps: int) -> float:
        return typical(lambda n: LOOP.run(self.train(n)), steps)

    async def train(self, steps: int) -> float:
        run, fetches, feeds = self.session.run, self.model.step, self.feeds
        start = time.perf_counter()
        for _ in range(steps):
            await run(fetches, feeds)
        return (time.perf_counter() - start) / steps

    def close(self) -> None:
        LOOP.run(self.session.close())


def local_scalar() -> Row:
    ours = Trained("local", lambda: models.counter(am))
    took = take_turns({"local": lambda: ours(2000)}, rounds=7)["local"]
    ours.close()
    return Row("local, scalar increment", f"{took * 1e3:.3f} ms", "0.3 ms or less", took <= 0.0003)


def local_mlp() -> Row:
    build, shape = (lambda: models.mlp(am, SIZES)), [128, 784]
    here, local = Trained("", build, shape), Trained("local", build, shape)
    found = take_turns({"here": lambda: here(60), "local": lambda: local(60)}, rounds=11)
    here.close()
    local.close()
    ratio = found["local"] / found["here"]
    said = f"{found['local'] * 1e3:.2f} ms, {ratio:.2f}x"
    return Row("local, (784,512,512,10) x 128 over in process", said, "1.1x or less", ratio <= 1.1)


async def served(ours: Trained, per_second: int, secs: float) -> list[float]:
    """Peek at the loss of one image, so often, and return how long each took from when it was due."""
    loss, one = ours.model.step[1], {key: value[:1] for key, value in ours.feeds.items()}
    found: list[float] = []

    async def answer(due: float) -> None:
        await ours.session.peek(loss, one)
        found.append(time.perf_counter() - due)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(per_second * secs)):
            due = start + number / per_second
            await asyncio.sleep(due - time.perf_counter())
            group.create_task(answer(due))
    return found


async def served_beside_training(ours: Trained, per_second: int, secs: float) -> list[float]:
    training = asyncio.create_task(ours.train(sys.maxsize))
    try:
        return await served(ours, per_second, secs)
    finally:
        training.cancel()
        await asyncio.wait((training,))


def local_service() -> Row:
    ours = Trained("local", lambda: models.mlp(am, SIZES), [128, 784])
    LOOP.run(ours.train(50))
    idle, busy = [], []
    for _ in range(5):
        idle.append(p99(LOOP.run(served(ours, 500, 2.0))))
        busy.append(p99(LOOP.run(served_beside_training(ours, 500, 2.0))))
    ours.close()
    alone, beside = statistics.median(idle), statistics.median(busy)
    said = f"{beside * 1e3:.2f} ms over {alone * 1e3:.2f} ms, {beside / alone:.1f}x"
    return Row("local, p99 of a service beside training", said, "2x or less", beside <= 2 * alone)


def p99(found: list[float]) -> float:
    return statistics.quantiles(found, n=100)[98]


ROWS: dict[str, Callable[[], Row]] = {
    "local-scalar": local_scalar,
    "local-mlp": local_mlp,
    "local-service": local_service,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        print(f"No row is called {unknown[0]!r}; there are {', '.join(ROWS)}.", file=sys.stderr)
        return 2
    with LOOP:
        rows = [ROWS[name]() for name in names or ROWS]
    return 0 if show("sessions in other processes", rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
