"""TF1: ``tf.random``: random numbers."""

from asyncmon.graph import multinomial, set_random_seed, truncated_normal
from asyncmon.graph import random_normal as normal
from asyncmon.graph import random_shuffle as shuffle
from asyncmon.graph import random_uniform as uniform
from asyncmon.system.missing_names import lacking

__all__ = ["multinomial", "normal", "set_random_seed", "shuffle", "truncated_normal", "uniform"]

__getattr__ = lacking(__name__, "random.", globals())
