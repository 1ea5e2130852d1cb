"""TF1: ``tf.contrib.slim``: the layers of ``tf.contrib.layers``, and arg_scope."""

from asyncmon.tf1.contrib.framework import *
from asyncmon.tf1.contrib.layers import *
