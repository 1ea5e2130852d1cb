"""TF1: ``tf.manip``: the layout of arrays."""

from typing import Any

from asyncmon.graph import gather_nd, reshape, reverse, scatter_nd, tile
from asyncmon.missing_names import missing_name

__all__ = ["gather_nd", "reshape", "reverse", "scatter_nd", "tile"]


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "manip.", globals())
