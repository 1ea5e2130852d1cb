"""TF1: ``tf.contrib.rnn``: the cells and networks that moved to ``tf.nn``."""

from asyncmon.tf1.rnn import static_rnn as static_rnn
from asyncmon.tf1.rnn_cell import *
