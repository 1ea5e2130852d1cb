"""TF1: ``tf.version``."""

from typing import Any

from asyncmon.missing_names import missing_name
from asyncmon.tf1.constants import VERSION as VERSION


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "version.", globals())
