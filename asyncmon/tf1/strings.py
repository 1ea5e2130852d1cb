"""TF1: ``tf.strings``: functions of strings, which are bytes."""

from asyncmon.system.missing_names import lacking
from asyncmon.tf1.ops.strings import string_to_number as to_number

__all__ = ["to_number"]

__getattr__ = lacking(__name__, "strings.", globals())
