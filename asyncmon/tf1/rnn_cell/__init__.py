"""Cells of recurrent networks. TF1: ``tf.nn.rnn_cell``, ``tf.contrib.rnn``."""

from asyncmon.missing_names import lacking
from asyncmon.tf1.rnn_cell.base import LayerRNNCell, LSTMStateTuple, RNNCell
from asyncmon.tf1.rnn_cell.cells import BasicLSTMCell, BasicRNNCell, GRUCell, LSTMCell
from asyncmon.tf1.rnn_cell.wrappers import DropoutWrapper, MultiRNNCell

__all__ = [
    "BasicLSTMCell", "BasicRNNCell", "DropoutWrapper", "GRUCell", "LSTMCell", "LSTMStateTuple",
    "LayerRNNCell", "MultiRNNCell", "RNNCell",
]  # fmt: skip

__getattr__ = lacking(__name__, "nn.rnn_cell.", globals())
