"""TF1: ``tf.layers``."""

from asyncmon.graph.layers import *
from asyncmon.system.missing_names import lacking

__getattr__ = lacking(__name__, "layers.", globals())
