"""TF1: ``tf.contrib.slim``: the layers of ``tf.contrib.layers``, arg_scope, variables by scope."""

from asyncmon.tf1.contrib.framework import *
from asyncmon.tf1.contrib.layers import *
from asyncmon.tf1.contrib.slim import prefetch_queue as prefetch_queue
from asyncmon.tf1.namespaces import show as _show

_show(globals(), "prefetch_queue")
