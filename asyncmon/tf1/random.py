"""TF1: ``tf.random``: random numbers."""

from typing import Any

# fmt: off
# isort: off
from asyncmon.missing_names import missing_name
from asyncmon.graph import (
    multinomial, random_normal as normal, set_random_seed, random_shuffle as shuffle,
    truncated_normal, random_uniform as uniform,
)
from asyncmon.tf1.more_ops import (
    random_gamma as gamma, random_poisson as poisson,
)
# isort: on

__all__ = [
    "gamma", "multinomial", "normal", "poisson", "set_random_seed", "shuffle",
    "truncated_normal", "uniform",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "random.", globals())
