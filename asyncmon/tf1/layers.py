"""TF1: ``tf.layers``."""

from typing import Any

from asyncmon.graph.layers import *
from asyncmon.missing_names import missing_name


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "layers.", globals())
