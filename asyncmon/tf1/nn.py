"""TF1: ``tf.nn``."""

from asyncmon.graph.nn import *
from asyncmon.tf1 import rnn_cell as rnn_cell
from asyncmon.tf1.ops.convolutions import conv1d as conv1d
from asyncmon.tf1.ops.convolutions import depthwise_conv2d as depthwise_conv2d
from asyncmon.tf1.ops.convolutions import separable_conv2d as separable_conv2d
from asyncmon.tf1.ops.sparse import embedding_lookup_sparse as embedding_lookup_sparse
from asyncmon.tf1.rnn import bidirectional_dynamic_rnn as bidirectional_dynamic_rnn
from asyncmon.tf1.rnn import dynamic_rnn as dynamic_rnn
from asyncmon.tf1.rnn import static_bidirectional_rnn as static_bidirectional_rnn
from asyncmon.tf1.rnn import static_rnn as static_rnn

silu = swish
