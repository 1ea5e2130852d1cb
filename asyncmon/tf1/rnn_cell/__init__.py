"""Cells of recurrent networks. TF1: ``tf.nn.rnn_cell``, ``tf.contrib.rnn``."""

from asyncmon.missing_names import lacking
from asyncmon.tf1.rnn_cell.base import LayerRNNCell as LayerRNNCell
from asyncmon.tf1.rnn_cell.base import LSTMStateTuple as LSTMStateTuple
from asyncmon.tf1.rnn_cell.base import RNNCell as RNNCell
from asyncmon.tf1.rnn_cell.cells import BasicLSTMCell as BasicLSTMCell
from asyncmon.tf1.rnn_cell.cells import BasicRNNCell as BasicRNNCell
from asyncmon.tf1.rnn_cell.cells import GRUCell as GRUCell
from asyncmon.tf1.rnn_cell.cells import LSTMCell as LSTMCell
from asyncmon.tf1.rnn_cell.wrappers import DropoutWrapper as DropoutWrapper
from asyncmon.tf1.rnn_cell.wrappers import MultiRNNCell as MultiRNNCell

__getattr__ = lacking(__name__, "nn.rnn_cell.", globals())
