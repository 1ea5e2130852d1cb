"""TF1: ``tf.contrib.slim``: the layers of ``tf.contrib.layers``, and arg_scope."""

from asyncmon.tf1.contrib.framework import add_arg_scope as add_arg_scope
from asyncmon.tf1.contrib.framework import arg_scope as arg_scope
from asyncmon.tf1.contrib.framework import create_global_step as create_global_step
from asyncmon.tf1.contrib.framework import get_global_step as get_global_step
from asyncmon.tf1.contrib.framework import get_or_create_global_step as get_or_create_global_step
from asyncmon.tf1.contrib.layers import *
