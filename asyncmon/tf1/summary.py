"""TF1: ``tf.summary``."""

from asyncmon.summary import *
from asyncmon.tf1.namespaces import show as _show

_show(globals())
