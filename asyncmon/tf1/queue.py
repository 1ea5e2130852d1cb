"""TF1: ``tf.queue``: queues."""

from typing import Any

# fmt: off
# isort: off
from asyncmon.missing_names import missing_name
from asyncmon.graph import (
    FIFOQueue, PaddingFIFOQueue, PriorityQueue, QueueBase, RandomShuffleQueue,
)
# isort: on

__all__ = [
    "FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RandomShuffleQueue",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "queue.", globals())
