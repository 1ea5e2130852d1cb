"""The figures of the service of ``examples/service``: ``python tests/benchmarks/service.py [row ...]``.

The service is a process of its own. This one sends 500 requests a second to it over loopback, while it
waits for its first rows (idle) and while it trains flat out. Rows: in-process, local, and by-hand: the
same service as its user would write it otherwise, with numpy in a thread under a lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness import QUICK, Measure, Row, command

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "service"
sys.path.insert(0, str(EXAMPLE))
from client import Client, digits  # noqa: E402  # the example is no package

ASKED, TAUGHT, _ = digits(784)
RATE, SECS, STRETCHES, ROUNDS = 500, 3.0, 3, 3


class Found(NamedTuple):
    """Of one service: p99 in seconds idle and training, and the share of its steps that it keeps."""

    idle: float
    busy: float
    kept: float


@contextlib.contextmanager
def service(directory: str, *options: str, script: Path = EXAMPLE / "main.py") -> Iterator[int]:
    """Start the service, and yield its port."""
    command = [sys.executable, str(script), "--port", "0", "--dir", directory]
    with subprocess.Popen(
        [*command, "--sizes", "784,512,512,10", *options], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None, "PIPE"
        port = 0
        for line in process.stderr:
            if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", line):
                port = int(found[1])
                break
        try:
            yield port
        finally:
            process.terminate()
            process.communicate()


async def load(port: int, secs: float, rate: int = RATE) -> tuple[list[float], float]:
    """Send requests; return the seconds from when each was due to its answer, and steps a second."""
    client, start = Client(port), time.perf_counter()
    gc.collect()
    answers = await client.load("/predict", ASKED, rate, secs)
    took = time.perf_counter() - start
    assert client.counts == {200: rate * secs}, client.counts
    return client.latencies, (step_in(answers[-1]) - step_in(answers[0])) / took


async def alone(port: int, secs: float) -> float:
    """Return the steps a second without requests."""
    client, start = Client(port), time.perf_counter()
    first = await client.load("/predict", ASKED[:1], 1, 1)
    await asyncio.sleep(secs)
    last = await client.load("/predict", ASKED[:1], 1, 1)
    return (step_in(last[0]) - step_in(first[0])) / (time.perf_counter() - start)


def step_in(answer: bytes | None) -> int:
    assert answer is not None, "counted as answered"
    step: int = json.loads(answer)["step"]
    return step


def p99(found: list[float]) -> float:
    return statistics.quantiles(found, n=100)[98]


async def measure(*options: str) -> Found:
    with tempfile.TemporaryDirectory() as directory, service(directory, *options) as port:
        await load(port, 1.0)
        idle, _ = await load(port, SECS)
        await Client(port).load("/learn", TAUGHT, 500, 1)
        await alone(port, 1.0)  # the first steps are slower
        busy, kept = [], []
        for _ in range(STRETCHES):
            found, rate = await load(port, SECS / STRETCHES)
            busy += found
            kept.append(rate / await alone(port, SECS / STRETCHES))
    return Found(p99(idle), p99(busy), statistics.median(kept))


def figures(name: str, times: float, *options: str) -> list[Row]:
    found = [asyncio.run(measure(*options)) for _ in range(ROUNDS)]
    idle, busy, kept = (statistics.median(column) for column in zip(*found, strict=True))
    said = f"{busy * 1e3:.1f} ms, alone {idle * 1e3:.1f} ms; {kept:.0%} of the steps kept"
    met = busy <= times * idle and kept >= 0.6
    what = f"p99 of a service beside training, {name}"
    return [Row(what, said, f"{times:g}x alone, 60 % kept", met, {"alone": busy / idle})]


def local() -> list[Row]:
    """The rows of sessions in a child process."""
    return figures("local", 2, "--master", "local")


async def beside_by_hand(rate: int) -> Row:
    """Both services train flat out and take turns at answering a number of requests a second."""
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "by hand": []}
    scripts = {"ours": EXAMPLE / "main.py", "by hand": Path(__file__).with_name("service_by_hand.py")}
    for _ in range(1 if QUICK else ROUNDS):
        for name, script in scripts.items():
            with tempfile.TemporaryDirectory() as directory, service(directory, script=script) as port:
                await Client(port).load("/learn", TAUGHT, 500, 1)
                await alone(port, 1.0)
                for _ in range(STRETCHES):
                    late, steps = await load(port, SECS, rate)
                    found[name].append((p99(late), steps))
    middle = {
        name: [statistics.median(column) for column in zip(*figures, strict=True)]
        for name, figures in found.items()
    }
    (ours, our_steps), (theirs, their_steps) = middle.values()
    said = ", ".join(
        f"{name}: p99 {late * 1e3:.1f} ms, {steps:.0f} steps/s"
        for name, (late, steps) in middle.items()
    )
    met = ours <= theirs and our_steps >= 0.9 * their_steps
    ratios = {"p99 by hand": ours / theirs, "a step by hand": their_steps / our_steps}
    return Row(f"a service that learns, {rate} requests/s", said, "p99 1x, steps 0.9x", met, ratios)


async def by_hand() -> list[Row]:
    return [await beside_by_hand(200)]


ROWS: dict[str, Measure] = {
    "in-process": lambda: figures("in process", 3),
    "local": local,
    "by-hand": by_hand,
}


if __name__ == "__main__":
    sys.exit(command("a service that learns", ROWS))
