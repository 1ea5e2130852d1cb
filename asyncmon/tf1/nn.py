"""TF1: ``tf.nn``."""

from asyncmon.graph.nn import *
from asyncmon.tf1 import rnn_cell as rnn_cell
from asyncmon.tf1.rnn import bidirectional_dynamic_rnn as bidirectional_dynamic_rnn
from asyncmon.tf1.rnn import dynamic_rnn as dynamic_rnn
from asyncmon.tf1.rnn import static_rnn as static_rnn

silu = swish
