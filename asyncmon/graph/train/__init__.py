"""Optimizers, learning rate decay and moving averages. TF1: ``tf.train``.

::

    rate = train.exponential_decay(0.1, step, 1000, 0.96)
    train_op = train.AdamOptimizer(rate).minimize(loss, global_step=step)
"""

# fmt: off
# isort: off
from asyncmon.graph.train.averages import ExponentialMovingAverage
from asyncmon.graph.train.decay import (
    cosine_decay, exponential_decay, inverse_time_decay, natural_exp_decay, piecewise_constant,
    polynomial_decay,
)
from asyncmon.graph.train.optimizer import Optimizer
from asyncmon.graph.train.optimizers import (
    AdagradOptimizer, AdamOptimizer, AdamWOptimizer, GradientDescentOptimizer, MomentumOptimizer,
    RMSPropOptimizer,
)
from asyncmon.graph.variables.global_step import (
    assert_global_step, create_global_step, get_global_step, get_or_create_global_step, global_step,
)
# isort: on

__all__ = [
    "AdagradOptimizer", "AdamOptimizer", "AdamWOptimizer",
    "ExponentialMovingAverage", "GradientDescentOptimizer", "MomentumOptimizer",
    "Optimizer", "RMSPropOptimizer", "assert_global_step", "cosine_decay",
    "create_global_step", "exponential_decay", "get_global_step", "get_or_create_global_step",
    "global_step", "inverse_time_decay", "natural_exp_decay",
    "piecewise_constant", "polynomial_decay",
]
# fmt: on


def __dir__() -> list[str]:
    return __all__
