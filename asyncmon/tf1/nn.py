"""TF1: ``tf.nn``."""

from typing import Any

from asyncmon.graph.nn import *
from asyncmon.missing_names import missing_name


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "nn.", globals())
