"""What an iteration of pytorch-ignite's engine takes; run in its own interpreter, by `harness.Peer`.

Answers ``{"steps": n}`` with the seconds of one iteration of a process function that returns a float.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from ignite.engine import Engine  # type: ignore[import-not-found,unused-ignore]


def process(_engine: Any, _batch: Any) -> float:
    return 0.5


def main() -> None:
    engine = Engine(process)
    for line in sys.stdin:
        steps = json.loads(line)["steps"]
        data = range(steps)
        start = time.perf_counter()
        engine.run(data, max_epochs=1)
        print(json.dumps({"seconds": (time.perf_counter() - start) / steps}), flush=True)


main()
