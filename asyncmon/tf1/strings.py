"""TF1: ``tf.strings``: functions of strings, which are bytes."""

from typing import Any

from asyncmon.graph.ops.strings import string_to_number as to_number
from asyncmon.missing_names import missing_name

__all__ = ["to_number"]


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "strings.", globals())
