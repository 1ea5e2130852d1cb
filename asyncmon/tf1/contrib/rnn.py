"""TF1: ``tf.contrib.rnn``: the cells and networks that moved to ``tf.nn``."""

from asyncmon.missing_names import lacking
from asyncmon.tf1.rnn import static_rnn as static_rnn
from asyncmon.tf1.rnn_cell import BasicLSTMCell as BasicLSTMCell
from asyncmon.tf1.rnn_cell import BasicRNNCell as BasicRNNCell
from asyncmon.tf1.rnn_cell import DropoutWrapper as DropoutWrapper
from asyncmon.tf1.rnn_cell import GRUCell as GRUCell
from asyncmon.tf1.rnn_cell import LayerRNNCell as LayerRNNCell
from asyncmon.tf1.rnn_cell import LSTMCell as LSTMCell
from asyncmon.tf1.rnn_cell import LSTMStateTuple as LSTMStateTuple
from asyncmon.tf1.rnn_cell import MultiRNNCell as MultiRNNCell
from asyncmon.tf1.rnn_cell import RNNCell as RNNCell

__getattr__ = lacking(__name__, "contrib.rnn.", globals())
