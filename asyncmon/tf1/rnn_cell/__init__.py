"""Cells of recurrent networks. TF1: ``tf.nn.rnn_cell``, ``tf.contrib.rnn``."""

# fmt: off
# isort: off
from asyncmon.tf1.rnn_cell.cells import (
    BasicLSTMCell, BasicRNNCell, GRUCell, LayerRNNCell, LSTMCell, LSTMStateTuple, RNNCell,
)
from asyncmon.tf1.rnn_cell.wrappers import DropoutWrapper, MultiRNNCell, ResidualWrapper
# isort: on

__all__ = [
    "BasicLSTMCell", "BasicRNNCell", "DropoutWrapper", "GRUCell", "LSTMCell", "LSTMStateTuple",
    "LayerRNNCell", "MultiRNNCell", "RNNCell", "ResidualWrapper",
]
# fmt: on
