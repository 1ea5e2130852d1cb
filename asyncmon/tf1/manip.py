"""TF1: ``tf.manip``: the layout of arrays."""

from asyncmon.graph import gather_nd, reshape, reverse, scatter_nd, tile
from asyncmon.system.missing_names import lacking

__all__ = ["gather_nd", "reshape", "reverse", "scatter_nd", "tile"]

__getattr__ = lacking(__name__, "manip.", globals())
