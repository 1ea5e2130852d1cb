"""How much memory training takes whose state is 250 MB: ``memory_probe.py ours|numpy|TF1``.

Prints what the process holds at most in ten steps, beyond what it held with everything imported.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import models

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = [2048, 4096, 3000, 10]
SHAPE = [128, 2048]


def resident(field: str) -> int:
    """Return bytes: "VmRSS" now, or "VmHWM", the most since the mark was reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def measure(open_: Callable[[], Callable[[], object]]) -> int:
    before = resident("VmRSS")
    step = open_()
    for _ in range(5):
        step()
    Path("/proc/self/clear_refs").write_text("5")  # the mark starts anew: building does not count
    for _ in range(10):
        step()
    return resident("VmHWM") - before


def ours() -> int:
    from asyncmon import graph as am

    def open_() -> Callable[[], object]:
        model = models.mlp(am, SIZES)
        session, loop = am.Session(), asyncio.Runner()
        loop.run(session.run(model.init))
        feeds = dict(zip((model.images, model.labels), models.batch(SHAPE), strict=True))
        return lambda: loop.run(session.run(model.step, feeds))

    return measure(open_)


def by_hand() -> int:
    from by_hand import HandMade

    def open_() -> Callable[[], object]:
        model, feeds = HandMade(SIZES, SHAPE[0]), models.batch(SHAPE)
        return lambda: model.step(*feeds)

    return measure(open_)


def tf1() -> int:
    import tensorflow.compat.v1 as tf  # type: ignore[import-not-found,unused-ignore]

    tf.disable_v2_behavior()

    def open_() -> Callable[[], object]:
        model = models.mlp(tf, SIZES)
        session = tf.Session()
        session.run(model.init)
        feeds = dict(zip((model.images, model.labels), models.batch(SHAPE), strict=True))
        return lambda: session.run(model.step, feeds)

    return measure(open_)


if __name__ == "__main__":
    print(json.dumps({"bytes": {"ours": ours, "numpy": by_hand, "TF1": tf1}[sys.argv[1]]()}))
