"""TF1: ``tf.contrib.rnn``: the cells and networks that moved to ``tf.nn``."""

from typing import Any

from asyncmon.missing_names import missing_name
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


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "contrib.rnn.", globals())
