"""The figures of the service of ``examples/service``: ``python tests/benchmarks/service.py [row ...]``.

The service is a process of its own. This one sends 500 requests a second to it over loopback, while it
waits for its first rows (idle) and while it trains flat out. Rows: in-process, local.
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

from harness import Row, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "service"
sys.path.insert(0, str(EXAMPLE))
from client import Client, digits  # noqa: E402  # the example is no package

ASKED, TAUGHT, _ = digits(784)
RATE, SECS, ROUNDS = 500, 3.0, 1


class Found(NamedTuple):
    """Of one service: p99 in seconds idle and training, and the share of its steps that it keeps."""

    idle: float
    busy: float
    kept: float


@contextlib.contextmanager
def service(directory: str, *options: str) -> Iterator[int]:
    """Start the service, and yield its port."""
    command = [sys.executable, str(EXAMPLE / "main.py"), "--port", "0", "--dir", directory]
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


async def load(port: int) -> tuple[float, int, float]:
    """Send requests; return the p99 from when one is due to its answer, steps meanwhile, seconds."""
    client = Client(port)
    gc.collect()
    start = time.perf_counter()
    answers = await client.load("/predict", ASKED, RATE, SECS)
    secs = time.perf_counter() - start
    assert client.counts == {200: RATE * SECS}, client.counts
    late = statistics.quantiles(client.latencies, n=100)[98]
    first, last = (json.loads(answers[i] or b"")["step"] for i in (0, -1))
    return late, last - first, secs


async def step(port: int) -> int:
    (answer,) = await Client(port).load("/predict", ASKED[:1], 1, 1)
    return json.loads(answer or b"")["step"]


async def measure(*options: str) -> Found:
    with tempfile.TemporaryDirectory() as directory, service(directory, *options) as port:
        await load(port)
        idle, _, _ = await load(port)
        await Client(port).load("/learn", TAUGHT, 500, 1)
        await asyncio.sleep(1)
        busy, steps, secs = await load(port)
        first, start = await step(port), time.perf_counter()
        await asyncio.sleep(SECS)
        alone = (await step(port) - first) / (time.perf_counter() - start)
    return Found(idle, busy, steps / secs / alone)


def figures(name: str, times: float, *options: str) -> list[Row]:
    found = [asyncio.run(measure(*options)) for _ in range(ROUNDS)]
    idle, busy, kept = (statistics.median(column) for column in zip(*found, strict=True))
    said = f"{busy * 1e3:.1f} ms over {idle * 1e3:.1f} ms, {busy / idle:.1f}x"
    target = f"{times:g}x, 10 ms"
    return [
        Row(f"{name}: p99 beside training", said, target, busy <= min(times * idle, 0.01)),
        Row(f"{name}: rate of steps under load", f"{kept:.0%} kept", "60 %", kept >= 0.6),
    ]


ROWS: dict[str, Callable[[], list[Row]]] = {
    "in-process": lambda: figures("in process", 3),
    "local": lambda: figures('master="local"', 2, "--master", "local"),
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        print(f"No row is called {unknown[0]!r}; there are {', '.join(ROWS)}.", file=sys.stderr)
        return 2
    rows = [row for name in names or ROWS for row in ROWS[name]()]
    return 0 if show("a service that learns", rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
