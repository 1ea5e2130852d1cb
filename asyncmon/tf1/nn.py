"""TF1: ``tf.nn``."""

from asyncmon.graph.nn import *
from asyncmon.tf1 import rnn_cell as rnn_cell
from asyncmon.tf1.namespaces import show as _show
from asyncmon.tf1.ops.convolutions import *
from asyncmon.tf1.ops.nn import *
from asyncmon.tf1.ops.sampling import *
from asyncmon.tf1.ops.sparse import embedding_lookup_sparse as embedding_lookup_sparse
from asyncmon.tf1.rnn import *

silu = swish

_show(globals(), "rnn_cell")
