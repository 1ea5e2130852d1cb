"""Optimizers, learning rate decay and moving averages. TF1: ``tf.train``.

::

    rate = train.exponential_decay(0.1, step, 1000, 0.96)
    train_op = train.AdamOptimizer(rate).minimize(loss, global_step=step)
"""

from asyncmon.graph.train.adagrad import AdagradOptimizer
from asyncmon.graph.train.adam import AdamOptimizer, AdamWOptimizer
from asyncmon.graph.train.decay import (
    cosine_decay,
    exponential_decay,
    inverse_time_decay,
    natural_exp_decay,
    piecewise_constant,
    polynomial_decay,
)
from asyncmon.graph.train.gradient_descent import GradientDescentOptimizer, MomentumOptimizer
from asyncmon.graph.train.moving_averages import ExponentialMovingAverage
from asyncmon.graph.train.optimizer import Optimizer
from asyncmon.graph.train.rmsprop import RMSPropOptimizer
from asyncmon.graph.variables.global_step import (
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)

__all__ = [
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "ExponentialMovingAverage",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "RMSPropOptimizer",
    "assert_global_step",
    "cosine_decay",
    "create_global_step",
    "exponential_decay",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "inverse_time_decay",
    "natural_exp_decay",
    "piecewise_constant",
    "polynomial_decay",
]
