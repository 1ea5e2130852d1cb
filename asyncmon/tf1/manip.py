"""TF1: ``tf.manip``: the layout of arrays."""

from typing import Any

# fmt: off
# isort: off
from asyncmon.missing_names import missing_name
from asyncmon.graph import (
    gather_nd, reshape, reverse, scatter_nd, tile,
)
from asyncmon.tf1.more_ops import roll
# isort: on

__all__ = [
    "gather_nd", "reshape", "reverse", "roll", "scatter_nd", "tile",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "manip.", globals())
