"""TF1: ``tf.strings``: functions of strings, which are bytes."""

from typing import Any

# fmt: off
# isort: off
from asyncmon.missing_names import missing_name
from asyncmon.graph.ops.strings import (
    as_string, reduce_join, regex_replace, string_join as join, string_length as length,
    string_lower as lower, string_strip as strip, string_to_number as to_number,
    string_upper as upper, substr,
)
# isort: on

__all__ = [
    "as_string", "join", "length", "lower", "reduce_join", "regex_replace", "strip", "substr",
    "to_number", "upper",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "strings.", globals())
