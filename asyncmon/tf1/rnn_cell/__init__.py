"""Cells of recurrent networks. TF1: ``tf.nn.rnn_cell``, ``tf.contrib.rnn``."""

from asyncmon.tf1.namespaces import show as _show
from asyncmon.tf1.rnn_cell.cells import *
from asyncmon.tf1.rnn_cell.wrappers import *

_show(globals())
