"""TF1: ``tf.debugging``: checks."""

from typing import Any

# fmt: off
# isort: off
from asyncmon.missing_names import missing_name
from asyncmon.graph import (
    Assert, check_numerics, is_finite, is_inf, is_nan,
)
from asyncmon.tf1.old_names import is_numeric_tensor
# isort: on

__all__ = [
    "Assert", "check_numerics", "is_finite", "is_inf", "is_nan", "is_numeric_tensor",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "debugging.", globals())
