"""TF1: ``tf.io``: files, records and examples."""

from typing import Any

# fmt: off
# isort: off
from asyncmon.missing_names import missing_name
from asyncmon.graph import (
    PaddingFIFOQueue, PriorityQueue, QueueBase, RandomShuffleQueue,
)
from asyncmon.tf1 import io_gfile as gfile
# isort: on

__all__ = [
    "PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RandomShuffleQueue", "gfile",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "io.", globals())
