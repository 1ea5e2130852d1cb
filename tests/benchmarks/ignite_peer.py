"""What an iteration of pytorch-ignite's engine takes; run in its own interpreter, by `harness.Peer`.

Answers ``{"turns": m, "steps": n}`` with the seconds of one iteration of a process function that
returns a float, the median of some runs of the engine.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

from ignite.engine import Engine  # type: ignore[import-not-found,unused-ignore]


def process(_engine: Any, _batch: Any) -> float:
    return 0.5


def seconds(engine: Any, steps: int) -> float:
    start = time.perf_counter()
    engine.run(range(steps), max_epochs=1)
    return (time.perf_counter() - start) / steps


def main() -> None:
    engine = Engine(process)
    for line in sys.stdin:
        request = json.loads(line)
        runs = [seconds(engine, request["steps"]) for _ in range(request["turns"])]
        print(json.dumps({"seconds": statistics.median(runs)}), flush=True)


main()
