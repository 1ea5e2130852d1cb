"""TF1: ``tf.layers``."""

from asyncmon.graph.layers import *
