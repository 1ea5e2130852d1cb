"""TF1: ``tf.nn``."""

from asyncmon.graph.nn import *
from asyncmon.tf1 import rnn_cell as rnn_cell
from asyncmon.tf1.ops.convolutions import *
from asyncmon.tf1.ops.sparse import *
from asyncmon.tf1.rnn import *

silu = swish
